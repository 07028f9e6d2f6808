"""User files -> tables: reading CSV and Parquet, detecting column types, and encoding them as a matrix."""
