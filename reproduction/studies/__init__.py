"""Experiments beyond the paper's tables: ``python -m reproduction.studies NAME`` from the project's root.

An experiment can be resumed, because its results are in a store of its own (``--raw FOLDER``), which has the same
format as the store of the tables. It writes one small CSV file from the store, and its page and figure from that file
alone. ``--page`` regenerates the page without running anything.
"""
