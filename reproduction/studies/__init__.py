"""Experiments beyond the paper's tables: ``python -m reproduction.studies NAME`` from the project's root.

Each is resumable: what it has run is in a store of its own (``--raw FOLDER``), the benchmark's own kind of store. From
that it writes one small CSV, and from that CSV alone its page and its figure, so that a page never says more than its
table. ``--page`` makes the page again without running anything.
"""
