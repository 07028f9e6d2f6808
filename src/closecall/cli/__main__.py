"""``python -m closecall.cli``."""

from . import main

main()
