"""Runs: cells, engines, the store, exports, and the scores that are read from the store."""
