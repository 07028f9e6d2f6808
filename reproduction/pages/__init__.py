"""Present the results as tables, charts and sentences, on an HTML page or on pages of the documentation."""
