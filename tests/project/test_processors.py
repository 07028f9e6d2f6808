"""Results are the same on another kind of processor, where rounding differs."""

import json
import os
import platform
import subprocess
import sys

import pytest

#: The program that is run twice, once with OpenBLAS, NumPy and torch restricted to instructions without AVX.
CODE = """
import json, sys
from sklearn.preprocessing import StandardScaler
from closecall import CloseKClassifier, CloseKClassifierCV, diagnose
from reproduction.protocol import load_dataset
found = {}
for name in ("monk3", "titanic", "wdbc", "mux6"):
    data = load_dataset(name)
    X, y = StandardScaler().fit_transform(data.X)[::2], data.y[::2]
    search = CloseKClassifierCV(alphas=(0.01, 1.0)).fit(X, y)
    compared = search.guard_report_["comparisons"]
    found[name] = {
        "gains": [f"{each['gain']:.3e} {each['standard_error']:.3e}" for each in compared],
        "search": search.predict(X).tolist(),
        "average": CloseKClassifier(k=None, alpha=0.1).fit(X, y).predict(X).tolist(),
        "diagnosis": str(diagnose(data.X, data.y)),
    }
json.dump(found, sys.stdout)
"""


def other_processor() -> dict[str, str]:
    """Return environment variables that emulate a processor of 2008, using NumPy's list of processor features."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    disabled = " ".join(name for name in __cpu_dispatch__ if __cpu_features__.get(name))
    return {"OPENBLAS_CORETYPE": "Nehalem", "NPY_DISABLE_CPU_FEATURES": disabled, "ATEN_CPU_CAPABILITY": "default"}


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="core types are those of x86-64")
def test_another_processor_gives_the_same_answers() -> None:
    answers = []
    for extra in ({}, other_processor()):
        run = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CODE],
            env=os.environ | extra,
            capture_output=True,
            text=True,
            check=True,
        )
        answers.append(json.loads(run.stdout))
    assert answers[0] == answers[1]


if __name__ == "__main__":  # the gate sets these variables for a whole test run
    print("\n".join(f"{name}={value}" for name, value in other_processor().items()))
