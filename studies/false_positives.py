"""Print the false-positive rate of each test of the benchmark on splits with no true difference.

    python -m studies.false_positives [datasets]

With 4000 data sets it takes about a minute on one core.
"""

from __future__ import annotations

import sys

import numpy as np

from closecall.evaluate.false_positives import false_positive_rates


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
