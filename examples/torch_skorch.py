"""Close-k with skorch: the loss is the criterion, the schedule a callback, the result a scikit-learn classifier."""

import numpy as np
import torch
from sklearn.datasets import make_moons
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback

from closecall.nn import CloseKLoss, KDecay, ResidualMLP

EPOCHS = 15


class Decay(Callback):
    """Let the criterion's k fall over the epochs of a fit."""

    def on_train_begin(self, net: NeuralNetClassifier, **kwargs: object) -> None:
        """A new schedule for each fit."""
        self.schedule_ = KDecay(net.criterion_, total_steps=net.max_epochs)

    def on_epoch_end(self, net: NeuralNetClassifier, **kwargs: object) -> None:
        """The next epoch's k."""
        self.schedule_.step()


def main() -> dict[str, float]:
    """Cross-validated accuracies with half of each batch and with all of it."""
    X, y = make_moons(400, noise=0.25, random_state=0)
    X = X.astype(np.float32)
    scores = {}
    for k in (0.5, None):
        torch.manual_seed(0)
        net = NeuralNetClassifier(
            ResidualMLP,
            module__features=2,
            module__hidden=16,
            module__outputs=2,
            criterion=CloseKLoss,
            criterion__loss="cross_entropy",
            criterion__k=k,
            optimizer=torch.optim.Adam,
            lr=0.02,
            batch_size=128,
            max_epochs=EPOCHS,
            callbacks=[Decay()],
            train_split=None,
            verbose=0,
        )
        scores[f"k = {k}"] = float(cross_val_score(make_pipeline(StandardScaler(), net), X, y, cv=3).mean())
    return scores


if __name__ == "__main__":
    for name, accuracy in main().items():
        print(f"{name:12} {100 * accuracy:.1f} %")
