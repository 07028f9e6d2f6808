"""The sentences of tables, captions and pages, from ``words.toml``, with placeholders for their numbers."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

_WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


def said(name: str, /, **values: Any) -> str:
    """Return the sentence of that name with the values filled in.

    Examples
    --------
    >>> said("answer.ranges", pairs=8, named="atk on 3")
    'The lowest test error is that of atk on 3 of 8 combinations of a data set and a loss.'
    """
    section, _, key = name.partition(".")
    return " ".join(_WORDS[section][key].split()).format_map(values)
