"""Experiments beyond the paper's tables: ``python -m studies NAME`` from the project's root.

Each experiment is resumable: its raw results are lines of JSON (``--raw FOLDER``), and what is there is not run again.
From them it writes one small CSV, and from that CSV alone its page and its figure, so that a page never says more than
its table. ``--page`` makes the page again without running anything.
"""
