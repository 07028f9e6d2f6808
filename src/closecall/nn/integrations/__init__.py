"""Close-k in the training loops of others: Lightning, Hugging Face's Trainer, accelerate and skorch.

One module for each, imported by name; the packages come with the extra ``integrations``. Each moves a schedule by
optimiser steps, whatever is accumulated, and keeps it and the reducer's memory through a resume.
"""
