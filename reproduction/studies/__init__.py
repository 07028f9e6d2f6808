"""Experiments beyond the paper's tables: ``python -m reproduction.studies NAME`` from the project's root.

Each can be resumed: its results are in its own store (``--raw FOLDER``), of the same kind as the benchmark's. From that
it writes one small CSV, and from the CSV alone its page and figure, so a page never says more than its table.
``--page`` regenerates the page without running anything.
"""
