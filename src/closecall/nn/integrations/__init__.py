"""Close-k in other training loops: Lightning, Hugging Face's Trainer, accelerate and skorch.

There is one module for each package; the extra ``integrations`` installs the packages. Each module advances a schedule
by optimiser steps, even if gradients are accumulated, and restores it and the reducer's memory when a run is resumed.
"""
