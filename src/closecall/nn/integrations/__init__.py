"""Close-k in other training loops: Lightning, Hugging Face's Trainer, accelerate and skorch.

There is one module for each, imported by name; the extra ``integrations`` installs the packages. Each advances a
schedule by optimiser steps, even if gradients are accumulated, and preserves it and the reducer's memory when a run is
resumed.
"""
