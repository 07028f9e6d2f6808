"""Experiments beyond the paper's tables: ``python -m reproduction.studies NAME`` from the project's root.

Each can be resumed: its results are in its own store (``--raw FOLDER``), which has the same format as that of the
tables. From the store it writes one small CSV file, and from that file alone its page and figure. ``--page``
regenerates the page without running anything.
"""
