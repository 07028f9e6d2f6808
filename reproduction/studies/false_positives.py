"""How often the tests are wrong: their false-positive rates on splits with no true difference.

Each simulated data set has two blocks of features with the same distribution; one method sees the first block, the
other the second. By symmetry neither is better in expectation, so every rejection is a false positive. The blocks may
be correlated: two aggregates of one loss err on nearly the same examples, which a test for independent samples ignores
and which hides part of its optimism. The method is the nearest class mean, trained on the training part: closed form,
and it varies with the training part as any learner does. Splits are the benchmark's: random, 50/25/25, overlapping.

    python -m reproduction.studies.false_positives [datasets]

With 4000 data sets it takes about a minute on one core.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np

from closecall._names import Array
from closecall.stats import SIGNIFICANCE, PairTest, corrected_test
from reproduction.protocol.pairs import compare
from reproduction.protocol.stats import paper_test, wilcoxon

#: Name -> test on (..., splits) scores. The plain paired t is here only to be measured.
TESTS: dict[str, PairTest] = {
    "paper (independent t)": paper_test,
    "plain paired t": partial(corrected_test, test_over_train=0.0),
    "sound (corrected paired t)": corrected_test,
}


def null_scores(
    rng: np.random.Generator, *, rows: int = 400, splits: int = 25, features: int = 5, correlation: float = 0.0
) -> Array:
    """Test accuracies (2, splits) of two equally good methods on one simulated data set.

    Parameters
    ----------
    rng : numpy Generator
    rows, splits, features : int
        Size of the data set, number of splits, features that each method sees.
    correlation : float
        Between a feature of one block and its twin in the other, within a class.

    Examples
    --------
    >>> null_scores(np.random.default_rng(0), rows=40, splits=3).shape
    (2, 3)
    """
    y = np.where(rng.random(rows) < 0.5, 1.0, -1.0)
    X = rng.standard_normal((rows, 2, features))
    X[:, 1] = correlation * X[:, 0] + np.sqrt(1 - correlation**2) * X[:, 1]
    X[:, :, 0] += y[:, None] / 2  # the class means are one standard deviation apart: accuracies near 0.69
    train, held_out = rows // 2, rows // 4
    scores = np.empty((2, splits))
    for split in range(splits):
        order = rng.permutation(rows)
        fit, test = order[:train], order[-held_out:]
        positive, negative = X[fit][y[fit] > 0].mean(axis=0), X[fit][y[fit] < 0].mean(axis=0)
        coef, middle = positive - negative, (positive + negative) / 2
        margins = y[test][:, None] * ((X[test] - middle) * coef).sum(axis=2)
        scores[:, split] = (margins > 0).mean(axis=0)
    return scores


def false_positive_rates(
    rng: np.random.Generator, *, datasets: int = 1000, suite: int = 25, rows: int = 400, correlation: float = 0.0
) -> dict[str, float]:
    """Rejection rates at the 5 % level where the null hypothesis is true.

    Parameters
    ----------
    rng : numpy Generator
    datasets : int
        How many data sets to simulate; the standard error of a rate is ``sqrt(rate * (1 - rate) / datasets)``.
    suite : int
        How many data sets make a suite, for the tests across data sets.
    rows : int
        Rows of each data set.
    correlation : float
        See :func:`null_scores`.

    Returns
    -------
    rates : dict
        For each pairwise test the fraction of data sets on which it claims a difference; for Holm over a suite the
        fraction of suites with any false claim; for Wilcoxon the fraction of suites on which it claims one.

    Examples
    --------
    >>> sorted(false_positive_rates(np.random.default_rng(0), datasets=4, suite=2, rows=40))[0]
    'Wilcoxon over a suite'
    """
    scores = np.stack([null_scores(rng, rows=rows, correlation=correlation) for _ in range(datasets)])
    rates = {name: float((test(scores[:, 0], scores[:, 1]) < SIGNIFICANCE).mean()) for name, test in TESTS.items()}
    suites = [scores[start : start + suite] for start in range(0, datasets - suite + 1, suite)]
    any_claim = [(compare(part, ("a", "b"), "sound")["a", "b"].p < SIGNIFICANCE).any() for part in suites]
    rates["sound with Holm, any claim in a suite"] = float(np.mean(any_claim))
    across = [wilcoxon(part[:, 0].mean(axis=1), part[:, 1].mean(axis=1)) < SIGNIFICANCE for part in suites]
    rates["Wilcoxon over a suite"] = float(np.mean(across))
    return rates


def main() -> None:
    datasets = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    print(f"{datasets} data sets without a true difference, 25 splits each; a 5 % test should claim 5 %")
    for rows, correlation in ((100, 0.0), (400, 0.0), (400, 0.9), (400, 0.99), (1600, 0.9)):
        print(f"\n{rows} rows, correlation {correlation:g} between the two methods' features")
        rng = np.random.default_rng(2024)
        for name, rate in false_positive_rates(rng, datasets=datasets, rows=rows, correlation=correlation).items():
            print(f"  {name:38} {100 * rate:5.1f} %")


if __name__ == "__main__":
    main()
