"""Joint losses of all classes: a loss of the top-two margin, or the cross-entropy of the softmax.

*Top two*: the margin of an example is ``m = z_y - max of the other scores``, its loss is ``l(m)``, and the threshold is
``T = l(0)``. As with two classes, an example is misclassified if and only if ``m <= 0``. The proof of the paper's Lemma
k needs only this property, so a minimiser of the close-k loss makes at most k - 1 more training errors than the
optimum. Because l is decreasing, ``l(m)`` is the largest of the losses ``l(z_y - z_j)``: it is convex in the scores if
l is convex.

*Softmax*: no value of the cross-entropy separates correct from misclassified examples. A misclassified example has a
loss of at least log 2, but a correct one may have any loss below log(classes); the threshold is log 2, and Lemma k does
not hold.
"""

from __future__ import annotations

import numpy as np

from .._names import Array
from ..losses import Loss

#: The values of ``multiclass`` for which one problem learns all classes.
JOINT = ("top_two", "softmax")


def threshold_of(kind: str, loss: Loss) -> float:
    """Return the loss at the decision boundary."""
    return float(np.log(2)) if kind == "softmax" else loss.threshold


def top_two_margins(scores: Array, codes: Array) -> Array:
    """Return the true class's score minus the best other score (samples,), given scores (samples, classes).

    Examples
    --------
    >>> top_two_margins(np.array([[2.0, 0.5, 1.0], [0.0, 1.0, 3.0]]), np.array([0, 1])).tolist()
    [1.0, -2.0]
    """
    samples, others = np.arange(len(codes)), np.array(scores, dtype=float)
    others[samples, codes] = -np.inf
    return scores[samples, codes] - others.max(axis=1)


def individual_losses(kind: str, loss: Loss, scores: Array, codes: Array) -> Array:
    """Return the losses (samples,) of scores (samples, classes).

    Examples
    --------
    >>> from closecall import get_loss
    >>> individual_losses("softmax", get_loss("logistic"), np.zeros((1, 3)), np.array([0])).round(4).tolist()
    [1.0986]
    """
    return losses_and_pull(kind, loss, scores.T[None].copy(), codes)[0][0]


def losses_and_pull(kind: str, loss: Loss, scores: Array, codes: Array) -> tuple[Array, Array]:
    """Return the losses (problems, samples) of scores (problems, classes, samples), and their derivatives.

    The scores may be overwritten.

    Examples
    --------
    >>> from closecall import get_loss
    >>> scores = np.array([[[2.0], [0.5], [1.0]]])
    >>> losses, pull = losses_and_pull("top_two", get_loss("hinge"), scores, np.array([2]))
    >>> losses.tolist(), pull[0, :, 0].tolist()
    ([[2.0]], [1.0, 0.0, -1.0])
    """
    samples = np.arange(len(codes))
    own = scores[:, codes, samples]
    if kind == "softmax":
        top = scores.max(axis=1, keepdims=True)
        pull = np.exp(scores - top)
        total = pull.sum(axis=1, keepdims=True)
        pull /= total
        pull[:, codes, samples] -= 1
        return (np.log(total) + top)[:, 0] - own, pull
    scores[:, codes, samples] = -np.inf
    top = scores.max(axis=1)
    margins = own - top
    slope = loss.slope(margins)
    rivals = scores == top[:, None]
    if np.count_nonzero(rivals) > top.size:  # of tied classes, only the first one is the rival
        rivals = scores.argmax(axis=1)[:, None] == np.arange(scores.shape[1])[:, None]
    pull = np.multiply(rivals, -slope[:, None])
    pull[:, codes, samples] = slope
    return loss.value(margins), pull
