"""Tests, in folders that mirror ``src/closecall``; ``stress`` holds what breaks and loads, ``project`` the rest."""

from pathlib import Path

#: The project's root.
ROOT = Path(__file__).parents[1]
