"""Close-k in a module of Lightning's shape.

``CloseKModule`` has the methods that Lightning calls. Here it derives from ``torch.nn.Module`` and a short loop calls
them in Lightning's order, so that the example runs without it; with Lightning installed derive from
``lightning.LightningModule``, leave ``fit`` out and give the module to ``lightning.Trainer``.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from closecall.nn import CloseKLoss, KDecay


class CloseKModule(nn.Module):
    """A classifier of three classes; k is a share of the data and falls over the whole run."""

    def __init__(self, features: int, classes: int, total_steps: int) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(features, 32), nn.ReLU(), nn.Linear(32, classes))
        self.loss = CloseKLoss("cross_entropy", k=0.3, memory="global")
        self.schedule = KDecay(self.loss, total_steps)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The loss of a batch."""
        inputs, targets = batch
        return self.loss(self.model(inputs), targets)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """The next step's k."""
        self.schedule.step()

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """How many of a batch are right."""
        inputs, targets = batch
        return (self.model(inputs).argmax(dim=1) == targets).float().mean()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The memory is in the state dict; the schedule's position goes beside it."""
        checkpoint["k_decay"] = self.schedule.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the schedule up where it was."""
        self.schedule.load_state_dict(checkpoint["k_decay"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Any optimiser will do."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def fit(module: CloseKModule, loader: Iterable[Any], epochs: int) -> None:
    """What Lightning's Trainer does with the module."""
    optimizer = module.configure_optimizers()
    module.train()
    for _ in range(epochs):
        for index, batch in enumerate(loader):
            value = module.training_step(batch, index)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            module.on_train_batch_end(value, batch, index)


def main() -> dict[str, float]:
    """Accuracy on new data."""
    torch.manual_seed(0)
    centers = torch.tensor([[2.0, 0.0], [-1.0, 1.7], [-1.0, -1.7]])
    targets = torch.randint(3, (1500,))
    inputs = centers[targets] + torch.randn(1500, 2)
    train, test = TensorDataset(inputs[:1000], targets[:1000]), (inputs[1000:], targets[1000:])
    epochs = 10
    loader = DataLoader(train, batch_size=50, shuffle=True)
    module = CloseKModule(features=2, classes=3, total_steps=epochs * len(loader))
    fit(module, loader, epochs)
    module.eval()
    return {"accuracy": float(module.validation_step(test, 0))}


if __name__ == "__main__":
    print(f"accuracy {100 * main()['accuracy']:.1f} %")
