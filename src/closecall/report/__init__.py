"""How results are shown: safe text, tables as CSV, Markdown and LaTeX, charts, and pages without outside references."""
