"""The benchmark: plan, run, store, compare and report, resumable from one machine to a cluster."""
