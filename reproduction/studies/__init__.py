"""Experiments beyond the paper's tables: ``python -m reproduction.studies NAME`` from the project's root.

Each can be resumed: its results are in a store of its own (``--raw FOLDER``), of the same kind as the tables'. From the
store it writes one small CSV file, and from that file alone its page and figure. ``--page`` regenerates the page
without running anything.
"""
