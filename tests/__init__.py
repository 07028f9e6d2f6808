"""Tests, in folders that mirror ``src/closecall``; ``project`` holds the rest."""

from pathlib import Path

#: The project's root.
ROOT = Path(__file__).parents[1]
