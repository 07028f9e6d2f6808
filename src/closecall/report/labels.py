"""The display name of every method."""

from closecall.aggregates import AGGREGATES

LABELS = {
    **{name: name.replace("_", " ") for name in AGGREGATES},
    **{f"{name}_top_two": f"{name.replace('_', ' ')}, top-two" for name in AGGREGATES},
    "average_exact_intercept": "average, exact intercept",
    "logistic_regression": "LogisticRegression",
    "linear_svc": "LinearSVC",
    "gradient_boosting": "HistGradientBoosting",
}
