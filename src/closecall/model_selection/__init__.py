"""Referees for any classifier: is a challenger really better, and does another threshold really help?"""

from .displays import GuardDisplay, ThresholdDisplay
from .guarded import GuardedClassifierCV
from .threshold import ExactThresholdClassifier

__all__ = ["ExactThresholdClassifier", "GuardDisplay", "GuardedClassifierCV", "ThresholdDisplay"]
