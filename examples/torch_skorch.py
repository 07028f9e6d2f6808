"""Close-k with skorch: the loss is the criterion, the schedule a callback, and the result a scikit-learn model.

``AggregateNetClassifier`` turns logits into probabilities, which skorch's own classifier does only with torch's losses.
"""

import numpy as np
import torch
from sklearn.datasets import make_moons
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from closecall.nn import CloseKLoss, ResidualMLP
from closecall.nn.integrations.skorch import AggregateNetClassifier, SkorchSchedule

EPOCHS = 15


def main() -> dict[str, float]:
    """Return the cross-validated accuracies if the loss uses half of each batch, and if it uses all of it."""
    X, y = make_moons(400, noise=0.25, random_state=0)
    X = X.astype(np.float32)
    scores = {}
    for k in (0.5, None):
        torch.manual_seed(0)
        net = AggregateNetClassifier(
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
            callbacks=[SkorchSchedule()],
            train_split=None,
            verbose=0,
        )
        scores[f"k = {k}"] = float(cross_val_score(make_pipeline(StandardScaler(), net), X, y, cv=3).mean())
    return scores


if __name__ == "__main__":
    for name, accuracy in main().items():
        print(f"{name:12} {100 * accuracy:.1f} %")
