"""Close-k in other training loops: Lightning, Hugging Face's Trainer, accelerate and skorch.

There is one module for each package; the ``integrations`` extra installs the packages. Each module advances a schedule
once per optimiser step, even if gradients are accumulated, and restores it and the memory when a run is resumed.
"""
