"""What all studies share: a store that can be resumed, divisions, tables, pages, intervals."""

from __future__ import annotations
