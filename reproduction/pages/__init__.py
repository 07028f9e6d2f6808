"""Presentation of the runs: scores -> tables, charts and sentences -> an HTML page, or the pages of the docs."""
