"""Read user files: parse CSV and Parquet, detect the types of columns, and encode them as a matrix."""
