"""Escape untrusted names for CSV, HTML and terminals."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any


def visible(value: Any) -> Any:
    r"""Escape control and bidirectional characters, so that a name can neither hide nor reorder text.

    Examples
    --------
    >>> print(visible("a\x1b[31mb"), visible("safe\u202egnp"), visible(3))
    a\x1b[31mb safe\u202egnp 3
    """
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    hidden = ("Cc", "Cf", "Zl", "Zp", "Cs")
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in hidden and c != "\n" else c for c in value
    )


def shown(text: object) -> str:
    r"""Return text for a terminal, with unprintable characters (such as control characters and newlines) escaped.

    Examples
    --------
    >>> shown("plain <b>"), shown("\x1b[31mred")
    ('plain <b>', '\\x1b[31mred')
    """
    given = str(text)
    return given if given.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in given)


def counted(count: int, thing: str) -> str:
    """Return a count with its noun, such as ``2 rows``."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def listed(words: Sequence[str], most: int, more: str = "and {} more") -> str:
    """Return the first few words, separated by commas, and how many more there are.

    Examples
    --------
    >>> listed(["a", "b", "c"], 2), listed(["a", "b"], 2)
    ('a, b and 1 more', 'a, b')
    """
    return ", ".join(words[:most]) + (f" {more.format(len(words) - most)}" if len(words) > most else "")


#: Characters that begin a formula in a spreadsheet, including variants of the signs; leading blanks are ignored.
SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20\ufe62\ufe63\ufe66\ufe6b\u207a\u207b\u207c\u208a\u208b\u208c"
#: A formula may also begin after a semicolon, where many spreadsheets split lines even inside quotes.
_FORMULA = re.compile(rf"(^|;)(?=\s*[{SIGNS}])")


def is_number(text: str) -> bool:
    """Return whether a string is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def no_formula(text: str) -> str:
    """Put ``'`` before any text that a spreadsheet would evaluate as a formula; numbers are unchanged.

    Examples
    --------
    >>> no_formula("=cmd|' /C calc'!A0"), no_formula("-1"), no_formula("a;=1+1"), no_formula("a = b")
    ("'=cmd|' /C calc'!A0", '-1', "a;'=1+1", 'a = b')
    """
    return text if is_number(text) else _FORMULA.sub(r"\1'", text)


def cell(value: object) -> str:
    r"""Return a value for a CSV file: unprintable characters are escaped, and no text can become a formula.

    Examples
    --------
    >>> cell("=cmd|' /C calc'!A0"), cell("-1"), cell("-a"), cell("yes")
    ("'=cmd|' /C calc'!A0", '-1', "'-a", 'yes')
    """
    return no_formula(shown(value))


def p_value(p: float, form: str = ".4f") -> str:
    """Return a p-value for a table.

    Examples
    --------
    >>> p_value(0.0312), p_value(1e-9)
    ('0.0312', '< 0.0001')
    """
    return "< 0.0001" if p < 1e-4 else f"{p:{form}}"


def p_words(p: float, form: str = ".4f") -> str:
    """Return a p-value for a sentence.

    Examples
    --------
    >>> p_words(0.0312), p_words(0.0), p_words(0.0312, ".2g")
    ('p = 0.0312', 'p < 0.0001', 'p = 0.031')
    """
    return f"p {'' if p < 1e-4 else '= '}{p_value(p, form)}"
