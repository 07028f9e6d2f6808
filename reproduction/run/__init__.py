"""Runs: cells, engines, the store, what is exported, and the scores that are read from it."""
