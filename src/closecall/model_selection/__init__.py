"""Meta-estimators that replace a classifier, or move its threshold, only if the gain is significant."""

from .displays import GuardDisplay, ThresholdDisplay
from .guarded import GuardedClassifierCV
from .threshold import ExactThresholdClassifier

__all__ = ["ExactThresholdClassifier", "GuardDisplay", "GuardedClassifierCV", "ThresholdDisplay"]
