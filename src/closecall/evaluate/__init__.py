"""What is measured and how: divisions, protocols, the grid, baselines and statistics."""
