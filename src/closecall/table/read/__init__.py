"""Files of one's own -> tables: CSV and Parquet, what their columns are, and their matrix of numbers."""
