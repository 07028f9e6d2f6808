"""Detect the type of a column (numbers, dates, categories, an identifier or no values), and parse it.

Numbers may have a decimal comma, thousands separators, a currency symbol or a per cent sign (``$1,234.50``,
``1.234,50 €``, ``12 %``), or come in pairs (``140/82``). A column of dates may mix two formats.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from closecall._names import Array
from closecall.report.text import counted

from .dataset import DataError, need_pandas
from .files import MISSING

#: Usual names of a target column, in order of preference.
TARGETS = ("target", "class", "label", "y")
#: Formats of dates, tried in this order; 05/06/2024 fits two of them.
DATES = ("ISO8601", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d-%m-%Y",
         "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y")  # fmt: skip
#: The separator between the two formats of a column that mixes dates.
EITHER = "|"
#: Formats of numbers: plain, 1,234.5, 1234,5 and 1.234,5; the second and the fourth allow currency symbols.
PLAIN, THOUSANDS, COMMA, CONTINENTAL = "", "#.", ",", "#,"
NUMBERS = (PLAIN, THOUSANDS, COMMA, CONTINENTAL)
#: The first and the second number of a pair such as 140/82.
PAIR = ("/1", "/2")
_PAIRED = re.compile(r"([-+]?\d+(?:[.,]\d+)?)\s*/\s*([-+]?\d+(?:[.,]\d+)?)")
_MARKS = r"(?:[$€£¥₹₽₩₺₫₴]|(?:USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|kr|zł|Fr)\.?|%)"
_WRITTEN = {
    THOUSANDS: r"[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?|\d*\.?\d+|\d+\.",
    CONTINENTAL: r"[1-9]\d{0,2}(?:[.'\s]\d{3})+(?:,\d*)?|\d*,?\d+|\d+,",
}
#: A column holds numbers (or dates) if at least this share of its known values are numbers (or dates); the others count
#: as missing.
MOSTLY = 0.95
#: Half of the known values are enough if more than ten of them are distinct and the others are at most two words for a
#: missing value ("k.A.", "unknown").
HALF, DIFFERENT, WORDS = 0.5, 10, 2
#: In a table with fewer rows than this, distinct integers need not be an identifier.
_FEW = 20
#: A target with more distinct values than this, some of them fractions, is not a class label.
MOST_FRACTIONS = 20
_LOOK = 1000
_DAY = 86_400e9  # nanoseconds


@dataclass(frozen=True)
class Column:
    """A feature: its name, its kind (``nominal`` or one of :data:`KINDS`), and the format of its text."""

    name: str
    kind: str
    form: str = ""

    @property
    def label(self) -> str:
        """The name and, for one of a pair of numbers, its position (first or second)."""
        return f"{self.name} ({'first' if self.form == PAIR[0] else 'second'})" if self.form in PAIR else self.name

    @property
    def is_known(self) -> bool:
        """Whether the kind and the format are valid."""
        if self.kind not in KINDS:
            return self.kind == "nominal" and not self.form
        parts = self.form.split(EITHER) if self.kind == "date" else [self.form]
        return len(parts) < 3 and all(part in ("", *KINDS[self.kind].forms) for part in parts)


def quoted(names: Sequence[str], most: int = 8) -> str:
    """Return the first few names for a message, with control characters escaped."""
    return ", ".join(repr(str(name)) for name in names[:most]) + (", ..." if len(names) > most else "")


def suggestion(name: str, names: Sequence[str]) -> str:
    """Return the end of a message about an unknown column: the most similar name, and the first few columns."""
    near = nearest(name, names)
    return f"{f'did you mean {near!r}? Its' if near else 'its'} columns are {quoted(names)}"


def nearest(name: str, names: Collection[str]) -> str:
    """Return the most similar name, ignoring case and accents; empty if there is none.

    Examples
    --------
    >>> nearest("INCOME", ["age", "income"]), nearest("grosse", ["Größe"]), nearest("x", ["income"])
    ('income', 'Größe', '')
    """
    plain = {_bare(each): each for each in names}
    found = difflib.get_close_matches(_bare(name), plain, n=1, cutoff=0.6)
    return plain[found[0]] if found else ""


def _bare(name: str) -> str:
    spread = unicodedata.normalize("NFKD", name.casefold())
    return "".join(mark for mark in spread if not unicodedata.combining(mark))


def texts(column: Any) -> Any:
    """Return a column as trimmed text, with NaN for missing values; integral floats are written as integers."""
    pd = need_pandas()
    if pd.api.types.is_float_dtype(column):
        column = column.map(lambda v: None if v != v else str(int(v)) if float(v).is_integer() else str(v))
    elif not pd.api.types.is_string_dtype(column) or column.dtype == object:
        column = column.map(lambda v: v if isinstance(v, str) else str(v), na_action="ignore")
    text = column.astype("str").str.strip()
    return text.mask(text.isin(MISSING))


def numbers(column: Any, what: Column) -> Array:
    """Return a column of numbers or dates (days since 1970) as an array (samples,); any other value is NaN.

    Examples
    --------
    >>> import pandas as pd
    >>> numbers(pd.Series(["02.01.1970", "1970-01-03"]), Column("a", "date", "%d.%m.%Y|ISO8601")).tolist()
    [1.0, 2.0]
    >>> numbers(pd.Series(["$1,234.50", "($3)", "7"]), Column("a", "number", THOUSANDS)).tolist()
    [1234.5, -3.0, 7.0]
    >>> numbers(pd.Series(["140/82"]), Column("a", "number", PAIR[1])).tolist()
    [82.0]
    """
    values = KINDS[what.kind].parse(column, what.form)
    return np.where(np.isfinite(values), values, np.nan)


def _parse_numbers(column: Any, form: str) -> Array:
    pd = need_pandas()
    if not pd.api.types.is_numeric_dtype(column):
        text = texts(column)
        if form in PAIR:
            text = text.str.extract(rf"^{_PAIRED.pattern}$")[PAIR.index(form)].str.replace(",", ".", regex=False)
        elif form in _WRITTEN:
            text = _unwritten(text, form)
        elif form == COMMA:
            text = text.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
        column = pd.to_numeric(text, errors="coerce")
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _parse_dates(column: Any, form: str) -> Array:
    pd = need_pandas()
    if not pd.api.types.is_datetime64_any_dtype(column):
        text, forms = texts(column), (form or "ISO8601").split(EITHER)
        days = [pd.to_datetime(text, format=each, errors="coerce", utc=True) for each in forms]
        column = days[0].fillna(days[-1])
    elif column.dt.tz is not None:
        column = column.dt.tz_convert("UTC")
    moments = column.dt.tz_localize(None).to_numpy(dtype="datetime64[ns]")
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / _DAY)


def _write_date(value: float, form: str) -> str:
    if not np.isfinite(value) or abs(value) > 1e6:
        return ""
    day = np.datetime64(0, "D") + round(value)
    plain = form in DATES[1:] and "%H" not in form
    return day.astype("datetime64[D]").item().strftime(form) if plain else str(day)


@dataclass(frozen=True)
class Kind:
    """A type of column that is read as numbers.

    ``forms`` are the formats to try, in order. ``parse`` takes a column (a pandas series) and a format and returns
    numbers (samples,), with NaN where a value does not fit; ``write`` turns a number back into text.
    """

    label: str
    forms: tuple[str, ...]
    parse: Callable[[Any, str], Array]
    write: Callable[[float, str], str] = lambda value, form: f"{value:.6g}"


#: The types of columns by name, in order of preference; all other columns are nominal.
KINDS = {
    "number": Kind("number", (*NUMBERS, *PAIR), _parse_numbers),
    "date": Kind("date, as days", DATES, _parse_dates, _write_date),
}


def _unwritten(text: Any, form: str) -> Any:
    """Strip currency symbols, per cent signs and thousands separators from numbers; other values become NaN."""
    pattern = rf"^(?P<minus>[-(]?)\+?\s*{_MARKS}?\s*(?P<late>-?)(?P<number>{_WRITTEN[form]})\s*{_MARKS}?\)?$"
    parts = text.str.extract(pattern)
    number = parts["number"].str.replace(r"[,\s]" if form == THOUSANDS else r"[.'\s]", "", regex=True)
    number = number.str.replace(",", ".", regex=False)
    negative = (parts["minus"].fillna("") + parts["late"].fillna("")) != ""
    return number.where(~negative, "-" + number)


def target_of(frame: Any, given: str, what: str) -> tuple[str, tuple[str, ...]]:
    """Return the target column, and a note if the user did not name it."""
    names = [str(name) for name in frame.columns]
    if given in names:
        return given, ()
    if given:
        raise DataError(f"{what!r} has no column {given!r}; {suggestion(given, names)}")
    by_name = {name.strip().lower(): name for name in reversed(names)}
    for name in TARGETS:
        if name in by_name:
            return by_name[name], (f"the target is the column {by_name[name]!r}, chosen by its name",)
    return names[-1], (f"the target is the last column, {names[-1]!r} (use --target to choose another)",)


def labels_of(column: Any, target: str, what: str) -> tuple[Array, Array, tuple[str, ...]]:
    """Return labels as text (known rows,), a mask of the known rows, and notes; reject targets that are not classes."""
    text = texts(column)
    known = text.notna().to_numpy()
    labels = text[known].to_numpy(dtype=object)
    if not len(labels):
        raise DataError(f"{what!r}: the target {target!r} is empty in every row; choose another with --target")
    values = numbers(column, Column(target, "number"))
    classes = np.unique(labels.astype(str)).tolist()
    check_target(classes, (values[~np.isnan(values)] % 1 != 0).any(), target, what)
    if len(classes) > max(2, len(labels) // 2):
        raise DataError(
            f"{what!r}: {len(classes)} classes in {len(labels)} rows; {target!r} is not a class label: choose "
            "another column with --target"
        )
    return labels, known, without_label(int((~known).sum()), target)


def check_target(classes: Sequence[str], fractions: bool, target: str, what: str) -> None:
    """Raise an error if there is only one class, or if there are many distinct numbers and some are ``fractions``."""
    if len(classes) < 2:
        raise DataError(f"{what!r}: the target {target!r} has only one class ({classes[0]!r}); a classifier needs two")
    if len(classes) > MOST_FRACTIONS and fractions:
        raise DataError(
            f"{what!r}: the target {target!r} has {len(classes)} different numbers; closecall predicts classes: "
            "choose another column with --target, or divide this one into classes first"
        )


def without_label(count: int, target: str) -> tuple[str, ...]:
    """Return a note on rows without a label, if there are any."""
    return (f"{count} rows without a value in {target!r} are left out",) if count else ()


def columns_of(
    frame: Any, names: list[str], keep: Collection[str] = (), forced: Mapping[str, str] | None = None
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Return the features among the named columns of a frame, and notes on those left out or read in an unusual way.

    Columns in ``keep`` stay even if they look like identifiers; ``forced`` maps columns to ``number`` or ``nominal``.

    Examples
    --------
    >>> import pandas as pd
    >>> days = ["2024-01-01", None, "2024-02-01"]
    >>> frame = pd.DataFrame({"id": ["u1", "u2", "u3"], "n": ["1", "2", "2"], "when": days})
    >>> columns, notes = columns_of(frame, list(frame))
    >>> [(column.name, column.kind) for column in columns]
    [('n', 'number'), ('when', 'date')]
    >>> notes
    ("'id' is left out: all its values differ, as in an identifier (use --keep to include it)",)
    """
    found, notes = [], []
    for name in names:
        wanted = (forced or {}).get(str(name), "")
        column, note = _detect(str(name), frame[name], str(name) in keep or bool(wanted))
        if column and wanted and column.kind != wanted:
            column, note = _forced(str(name), frame[name], wanted)
        both = PAIR if column and column.form in PAIR else ()
        found += [replace(column, form=form) for form in both] or [column] if column else []
        notes += [note] if note else []
    return tuple(found), tuple(notes)


def _detect(name: str, column: Any, keep: bool) -> tuple[Column | None, str]:
    types = need_pandas().api.types
    if types.is_datetime64_any_dtype(column):
        return Column(name, "date"), ""
    text = texts(column)
    known, different = text.dropna(), text.nunique()
    if different < 2:
        why = f"only one value, {known.iloc[0][:40]!r}" if different else "no values"
        return None, f"{name!r} is left out: it has {why}"
    what, note = (Column(name, "nominal"), "") if types.is_bool_dtype(column) else _kind(name, column, known)
    if different == len(text) and not keep:
        plain = what == Column(name, "number") and len(text) >= _FEW
        whole = plain and (numbers(column, what) % 1 == 0).all() and not known.str.contains(r"[.,eE]").any()
        if whole or what.kind == "nominal":
            differ = f"all its {'integers' if whole else 'values'} differ"
            return None, f"{name!r} is left out: {differ}, as in an identifier (use --keep to include it)"
    return what, note


def _forced(name: str, column: Any, wanted: str) -> tuple[Column, str]:
    """Read a column as numbers or names at the user's request; raise an error if no value is a number."""
    if wanted == "nominal":
        return Column(name, "nominal"), ""
    known = texts(column).dropna()
    shares = {form: _share(known, Column(name, "number", form)) for form in NUMBERS}
    best = max(shares, key=shares.__getitem__)
    if not shares[best]:
        text = repr(known.iloc[0][:40])
        raise DataError(f"{name!r} contains no numbers, only text such as {text}; omit --numeric {name!r}")
    odd = round((1 - shares[best]) * len(known))
    note = f"{name!r} is read as numbers; {odd} of its values are not numbers and count as missing"
    return Column(name, "number", best), note if odd else ""


def _kind(name: str, column: Any, known: Any) -> tuple[Column, str]:
    """Return the kind of a column, and a note on how it is read."""
    pd = need_pandas()
    if pd.api.types.is_numeric_dtype(column):
        return Column(name, "number"), ""
    head = known.iloc[:_LOOK]
    forms = NUMBERS if known.str.contains(r"[^\d.eE+-]", regex=True).any() else NUMBERS[:1]
    choices = [Column(name, "number", form) for form in (*forms, PAIR[0])]
    choices += [Column(name, kind, form) for kind in KINDS if kind != "number" for form in KINDS[kind].forms]
    what, share, shares = Column(name, "nominal"), 0.0, dict[str, float]()
    for each in choices:
        # All values are parsed only with formats that fit most of the first thousand.
        shares[each.form] = fits = _share(known, each) if _share(head, each) > 0.5 else 0.0
        if fits > share and (fits >= MOSTLY or _but_for_words(known, each, fits)):
            what, share = each, fits
        if what.kind == "number" and each.form == forms[-1]:
            break
    if what.kind == "nominal":
        what = _two_formats(name, known) or what
    return what, _how_read(what, known, shares)


def _two_formats(name: str, known: Any) -> Column | None:
    """Return the two unambiguous date formats that occur in the column, if there are any."""
    head = known.iloc[:_LOOK]
    first = max(DATES, key=lambda form: _share(head, Column(name, "date", form)))
    others = [form for form in DATES if {first[:5], form[:5]} != {"%d/%m", "%m/%d"} and form != first]
    both = [Column(name, "date", f"{first}{EITHER}{form}") for form in others]
    found = max(both, key=lambda each: _share(head, each))
    return found if _share(head, found) > 0.5 and _share(known, found) >= MOSTLY else None


def _how_read(what: Column, known: Any, shares: Mapping[str, float]) -> str:
    """Return a note on how a column is read; empty if that is obvious."""
    if what.kind == "nominal":
        return ""
    found, name = numbers(known, what), what.name
    if what.form == "%d/%m/%Y" and shares.get("%m/%d/%Y") == shares[what.form]:
        return f"{name!r} is read as day/month/year; every date also fits month/day/year"
    note = ""
    if what.form in PAIR:
        note = f"{name!r} is read as pairs: {known.iloc[0][:30]!r} becomes two columns"
    elif EITHER in what.form:
        note = f"{name!r} is read as dates in two formats, {what.form.replace(EITHER, ' and ')}"
    elif what.form in _WRITTEN:
        plain = need_pandas().to_numeric(known, errors="coerce").to_numpy()
        place = int((np.isnan(plain) & ~np.isnan(found)).argmax())
        note = f"{name!r} is read as numbers, {known.iloc[place][:30]!r} as {found[place]:.12g}"
    odd = known[np.isnan(found)]
    if len(odd):
        verb = "counts" if len(odd) == 1 else "count"
        lost = f"{counted(len(odd), 'value')} such as {odd.iloc[0][:40]!r} {verb} as missing"
        note = f"{note or f'{name!r} contains {what.kind}s'}; {lost}"
    return note


def _share(known: Any, what: Column) -> float:
    return float((~np.isnan(numbers(known, what))).mean())


def _but_for_words(known: Any, what: Column, fits: float) -> bool:
    """Return whether the values that do not fit the format are only one or two words for missing values."""
    if fits < HALF:
        return False
    found = numbers(known, what)
    odd = np.isnan(found)
    return known[odd].nunique() <= WORDS and len(np.unique(found[~odd])) > DIFFERENT
