"""How results are shown: safe text, tables as CSV and Markdown, charts, and pages without external references."""
