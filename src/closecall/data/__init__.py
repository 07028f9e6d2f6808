"""Data sets: generated, embedded, and read from PMLB, OpenML or files."""
