"""Runs: cells, engines, the store, exports, and scores read from the store."""
