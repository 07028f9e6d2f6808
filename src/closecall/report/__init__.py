"""Present results as safe text, CSV tables, charts, and pages without external references."""
