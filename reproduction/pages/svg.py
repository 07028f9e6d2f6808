"""Smaller pictures for the site."""

from __future__ import annotations

import re
from collections import Counter

_MARK = re.compile(r'<path transform="translate\(([-\d.]+),([-\d.]+)\)" (d="[^"]*"[^>]*)/>')
_NUMBERS = re.compile(r'(?<= )(?:transform|d|x|y|x1|x2|y1|y2|width|height)="[^"]*"')


def slim(svg: str) -> str:
    """Return a smaller version of a picture.

    Coordinates are rounded to a tenth of a pixel. Descriptions of single marks for screen readers are removed, because
    they are never read in an embedded picture.

    Examples
    --------
    >>> slim('<path aria-label="a: 1.234" role="x" d="M1.2345,6" opacity="0.85"/>')
    '<path d="M1.2,6" opacity="0.85"/>'
    """
    svg = re.sub(r' (?:aria-\w+|role|pointer-events|class)="[^"]*"', "", svg)
    svg = _NUMBERS.sub(lambda found: re.sub(r"-?\d+\.\d\d+", lambda n: f"{float(n[0]):.1f}", found[0]), svg)
    # A mark that is drawn many times is defined once and placed by reference.
    often = {mark: f"m{i}" for i, (mark, n) in enumerate(Counter(m[3] for m in _MARK.finditer(svg)).items()) if n > 9}
    svg = _MARK.sub(lambda m: f'<use href="#{often[m[3]]}" x="{m[1]}" y="{m[2]}"/>' if m[3] in often else m[0], svg)
    marks = "".join(f'<path id="{name}" {mark}/>' for mark, name in often.items())
    return re.sub(r"(<svg[^>]*>)", rf"\1<defs>{marks}</defs>", svg, count=1) if often else svg
