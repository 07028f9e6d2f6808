"""Close-k in other training loops: Lightning, Hugging Face's Trainer, accelerate and skorch.

There is one module for each package; the ``integrations`` extra installs the packages. Each module advances a schedule
once per optimiser step, even with accumulated gradients, and restores the schedule and memory when a run is resumed.
"""
