"""The sentences of tables, captions and pages, from ``words.toml``, with placeholders for their numbers."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


def said(name: str, /, **values: Any) -> str:
    """Return the sentence of the given name, with the values filled in.

    Examples
    --------
    >>> said("answer.ranges", pairs=8, named="atk on 3")
    'Over 8 combinations of a data set and a loss, the lowest test error comes from atk on 3.'
    """
    section, _, key = name.partition(".")
    return " ".join(_WORDS[section][key].split()).format_map(values)


def listed(parts: Sequence[str]) -> str:
    """Return the parts as an enumeration in words.

    Examples
    --------
    >>> listed(["one"]), listed(["one", "two"]), listed(["one", "two", "three"])
    ('one', 'one and two', 'one, two and three')
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
