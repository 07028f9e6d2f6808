"""How results are shown: safe text, tables as CSV and Markdown, charts, and pages without outside references."""
