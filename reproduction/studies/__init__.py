"""Experiments beyond the paper's tables: ``python -m reproduction.studies NAME`` from the project's root.

An experiment can be resumed, because it keeps its results in a separate store (``--raw FOLDER``), in the same format as
the store for the tables. It writes one small CSV file from the store, and its page and figure from that file alone.
``--page`` regenerates the page without running anything.
"""
