"""Close-k in other training loops: Lightning, Hugging Face's Trainer, accelerate and skorch.

There is one module for each package; the extra ``integrations`` installs the packages. Each module advances a schedule
once per optimiser step, even if gradients are accumulated. When a run is resumed, the module restores the schedule and
the reducer's memory.
"""
