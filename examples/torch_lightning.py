"""Close-k with Lightning: the loss belongs to the module, and the schedule is a callback.

The callback advances once per optimiser step, so batches may be accumulated. The position of the schedule and the
memory of the reducer are part of the module's state, so ``ckpt_path=`` resumes both.
"""

from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from closecall.nn import CloseKLoss, KDecay
from closecall.nn.integrations.lightning import LightningSchedule


class CloseKModule(lightning.LightningModule):
    """A classifier; k is a share of the data and falls over the whole run."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, classes))
        self.loss = CloseKLoss("cross_entropy", k=0.3, memory="global")

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        inputs, targets = batch
        return self.loss(self.model(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return an optimiser; any will do."""
        return torch.optim.Adam(self.parameters(), lr=0.02)


def main(**options: Any) -> dict[str, float]:
    """Compute the accuracy on new data."""
    torch.manual_seed(0)
    centers = torch.tensor([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])
    targets = torch.randint(3, (1500,))
    inputs = centers[targets] + torch.randn(1500, 2)
    loader = DataLoader(TensorDataset(inputs[:1000], targets[:1000]), batch_size=25, shuffle=True)
    decay = LightningSchedule(lambda trainer, module: KDecay(module.loss, trainer.estimated_stepping_batches))
    module = CloseKModule(features=2, classes=3)
    trainer = lightning.Trainer(
        max_epochs=10, accumulate_grad_batches=2, callbacks=[decay], accelerator="cpu", logger=False, **options
    )
    trainer.fit(module, loader)
    with torch.no_grad():
        right = module.model(inputs[1000:]).argmax(dim=1) == targets[1000:]
    return {"accuracy": float(right.float().mean()), "steps": float(decay.schedule.last_step)}


if __name__ == "__main__":
    print(f"accuracy {100 * main()['accuracy']:.1f} %")
