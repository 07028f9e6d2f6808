"""Presentation of the runs: tables, charts and sentences from the scores, as an HTML page or as pages of the docs."""
