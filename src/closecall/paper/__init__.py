"""The reproduction of the paper: plan, run, store, compare and report, resumable from one machine to a cluster."""
