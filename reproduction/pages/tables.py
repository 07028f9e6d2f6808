"""Tables of the scores and of the published numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np

from closecall.report.formats import Row
from closecall.report.text import p_value
from reproduction.protocol import stats
from reproduction.protocol.grid import LABELS
from reproduction.protocol.protocol import CRITERIA, get_protocol, win_fractions
from reproduction.protocol.published import LOSSES, METHODS, PairTable, table3_error
from reproduction.run.scores import PAIR, Scores, title

from .formats import Column, Table, listed, said, table_of

CRITERION_WORDS = {
    "significant": "with p < 0.05",
    "points": "by at least 2 points",
    "joint": "with p < 0.05 and by at least 2 points",
}


def notes_on(scores: Scores) -> tuple[str, ...]:
    """Return notes on how the numbers were computed and which data sets are missing."""
    notes = [
        f"The numbers are for the {scores.model} model under the {scores.protocol} protocol, with "
        f"{len(scores.datasets)} data sets, {scores.splits} splits and {scores.max_iter} steps."
    ]
    if scores.splits == 1:
        notes.append("With only one split, differences cannot be tested, so none counts as significant.")
    if scores.holes:
        # With many missing sets, the table lists only their names, and the section the reasons.
        few = len(scores.holes) <= 4
        holes = [f"{title(hole.dataset)} ({hole.why})" if few else title(hole.dataset) for hole in scores.holes]
        reasons = "" if few else "; notes.md states the reasons"
        notes.append(f"Data sets left out ({len(holes)}): {'; '.join(holes)}{reasons}.")
    return tuple(notes)


def _table(
    kind: str, heading: str, scores: Scores, loss: str, columns: Mapping[str, Column], records: Sequence[Row],
    notes: Sequence[str] = (),
) -> Table:  # fmt: skip
    """Return a table for one loss; its title, heading and records name the loss."""
    placed = [scores.where(loss) | record for record in records]
    heading = f"{heading}: {scores.model}, {loss}, {scores.protocol} protocol"
    name = f"{kind}-{scores.protocol}-{scores.model}-{loss}"
    return table_of(name, heading, columns, placed, (*notes, *notes_on(scores)))


def _by_method(table: Table, first: str, rows: Sequence[tuple[str, ...]]) -> Table:
    """Return a table with one cell for each method in every row."""
    return replace(table, header=(first, *(LABELS[method] for method in METHODS)), rows=tuple(rows))


def pair_table(scores: Scores, loss: str, criterion: str, published: PairTable | None = None) -> Table:
    """Return one block of the paper's square tables: how often a column's method beats a row's.

    With a published table, each cell also shows the paper's number in brackets.
    """
    fractions, total = win_fractions(scores.pairs(loss), METHODS, criterion), len(scores.datasets)
    theirs = np.full_like(fractions, np.nan) if published is None else published.fractions(scores.model, loss)
    records: list[Row] = []
    for i, j in permutations(range(len(METHODS)), 2):
        wins = round(fractions[i, j] * total)
        low, high = stats.fraction_interval(wins, total)
        record: Row = {
            "criterion": criterion, "beaten": METHODS[i], "by": METHODS[j], "wins": wins, "datasets": total,
            "fraction": fractions[i, j], "low": low, "high": high,
        }  # fmt: skip
        if published is not None:
            sets = published.denominators[scores.model][0]
            low, high = stats.fraction_interval(round(theirs[i, j] * sets), sets)
            record |= {
                "published": theirs[i, j], "published_low": low, "published_high": high,
                "difference": fractions[i, j] - theirs[i, j],
            }  # fmt: skip
        records.append(record)
    notes = ["Entries are the fractions of data sets on which the method in the column beats the method in the row."]
    if published is not None:
        denominators = " or ".join(map(str, published.denominators[scores.model]))
        notes.append(
            f"Values in brackets are from the paper's {published.name.replace('table', 'Table ')}; they are "
            f"consistent with a total of {denominators} data sets."
        )
    table = _table(criterion, f"Wins {CRITERION_WORDS[criterion]}", scores, loss, {}, records, notes)
    rows = [(LABELS[method], *map(_beside, fractions[i], theirs[i])) for i, method in enumerate(METHODS)]
    return _by_method(table, "beaten / by", rows)


def _beside(ours: float, theirs: float) -> str:
    return "" if np.isnan(ours) else f"{ours:.2f}" if np.isnan(theirs) else f"{ours:.2f} ({theirs:.2f})"


def error_table(scores: Scores, loss: str, *, published: bool = False) -> Table:
    """Return the mean test errors in percent, as in Table 3; a star marks a significant difference from ``average``.

    With ``published``, each data set in Table 3 has two more rows, which show the paper's errors and the differences. A
    plus marks a significant difference between close decay and ``atk``, about which the paper makes a claim.
    """
    pairs, errors = scores.pairs(loss), 100 * (1 - scores.test(loss).mean(axis=-1))
    rows: list[tuple[str, ...]] = []
    records: list[Row] = []
    for i, name in enumerate(map(title, scores.datasets)):
        average, cells = float(errors[i, METHODS.index("average")]), []
        for method, error in zip(METHODS, map(float, errors[i]), strict=True):
            p = 1.0 if method == PAIR[0] else float(pairs[PAIR[0], method].p[i])
            plus = published and method == PAIR[1] and pairs[_CLAIM].p[i] < stats.SIGNIFICANCE
            cells.append(f"{error:.2f}{'*' if p < stats.SIGNIFICANCE else ''}{'+' if plus else ''}")
            record: Row = {
                "dataset": name, "rows": int(scores.sizes[i, 0]), "features": int(scores.sizes[i, 1]),
                "method": method, "error": error, "p": p, "gain_over_average": average - error,
            }  # fmt: skip
            if published:
                theirs = table3_error(name, loss, method)
                record |= {"published": theirs, "difference": None if theirs is None else error - theirs}
            records.append(record)
        rows.append((name, *cells))
        mine = records[-len(METHODS) :]
        if published and mine[0]["published"] is not None:
            rows.append(("  paper", *(f"{each['published']:.2f}" for each in mine)))
            rows.append(("  difference", *(f"{each['difference']:+.2f}" for each in mine)))
    notes = [
        "Entries are mean test errors in percent; a star marks a significant difference from average (p < 0.05 in the "
        "protocol's test)."
    ]
    if published:
        notes.append(_claim(scores, loss))
    return _by_method(_table("errors", "Test errors", scores, loss, {}, records, notes), "data set", rows)


#: The paper's text on Table 3 compares close decay with average top-k.
_CLAIM = ("atk", "close_decay")


def _claim(scores: Scores, loss: str) -> str:
    """Return a sentence with the paper's claim about close decay and average top-k on these sets, and our result."""
    pair = scores.pairs(loss)[_CLAIM]
    found: dict[str, list[str]] = {"better than": [], "worse than": [], "as good as": []}
    for name, gain, p in zip(map(title, scores.datasets), pair.gains, pair.p, strict=True):
        if p < stats.SIGNIFICANCE:
            found["better than" if gain > 0 else "worse than"].append(f"{name} by {100 * abs(gain):.1f} points")
        else:
            found["as good as"].append(name)
    words = [f"{outcome} atk on {len(names)} ({', '.join(names)})" for outcome, names in found.items() if names]
    return said("note.claim", words=listed(words))


def gain_table(scores: Scores, loss: str) -> Table:
    """Compare close decay with ``average`` on every data set, largest gain first, with p from the protocol's test."""
    one, means = scores.pairs(loss)[PAIR], 100 * scores.test(loss, PAIR).mean(axis=-1)
    records = [
        {
            "dataset": title(scores.datasets[i]), "average": float(means[i, 0]), "close_decay": float(means[i, 1]),
            "gain": 100 * float(one.gains[i]), "p": float(one.p[i]),
        }
        for i in np.argsort(-one.gains, kind="stable")
    ]  # fmt: skip
    corrected = ", with Holm's correction across the data sets" if get_protocol(scores.protocol).corrected else ""
    columns: dict[str, Column] = {
        "data set": "{dataset}", "average": "{average:.2f}", "close decay": "{close_decay:.2f}", "gain": "{gain:+.2f}",
        "p": lambda record: p_value(record["p"]),
    }  # fmt: skip
    note = f"Accuracies are means in percent, gains are in points, and p is from the protocol's test{corrected}."
    return _table("gains", "Close decay against average", scores, loss, columns, records, [note])


def method_table(scores: Scores, loss: str) -> Table:
    """Return the accuracy, train-test gap, rank, wins and losses (against ``average``) of all methods and baselines."""
    methods, pairs = scores.methods, scores.pairs(loss)
    test, train = scores.test(loss, methods), scores.of("train", loss, methods)
    ranks = stats.average_ranks(test.mean(axis=-1))
    records: list[Row] = []
    for j, method in enumerate(methods):
        record: Row = {
            "method": method, "accuracy": float(test[:, j].mean()), "gap": float((train[:, j] - test[:, j]).mean()),
            "rank": float(ranks[j]),
        }  # fmt: skip
        for name, criterion in (("", "significant"), ("joint_", "joint")):
            for outcome, pair in (("wins", ("average", method)), ("losses", (method, "average"))):
                record[name + outcome] = int(pairs[pair].wins(criterion).sum()) if pair in pairs else None
        records.append(record)
    columns: dict[str, Column] = {
        "method": lambda record: LABELS[record["method"]],
        "accuracy": lambda record: f"{100 * record['accuracy']:.2f}",
        "gap": lambda record: f"{100 * record['gap']:+.2f}",
        "rank": "{rank:.2f}",
        "p < .05": lambda record: "" if record["wins"] is None else "{wins}-{losses}".format_map(record),
        "joint": lambda record: "" if record["wins"] is None else "{joint_wins}-{joint_losses}".format_map(record),
    }
    distance = stats.critical_difference(len(methods), len(test))
    differ = f"Ranks that differ by less than {distance:.2f} do not differ significantly (Nemenyi test, level 0.05)."
    return _table("methods", "All methods", scores, loss, columns, records, [said("note.methods"), differ])


def across_table(scores: Scores, loss: str) -> Table:
    """Return Wilcoxon signed-rank tests across the data sets for every pair of methods, with Holm's correction."""
    means = scores.test(loss).mean(axis=-1)
    pairs = list(combinations(range(len(METHODS)), 2))
    p = np.array([stats.wilcoxon(means[:, i], means[:, j]) for i, j in pairs])
    records: list[Row] = [
        {
            "first": METHODS[i], "second": METHODS[j],
            "mean_gain": float((means[:, i] - means[:, j]).mean()),
            "p": float(single), "p_holm": float(adjusted),
        }
        for (i, j), single, adjusted in zip(pairs, p, stats.holm(p), strict=True)
    ]  # fmt: skip
    columns: dict[str, Column] = {
        "pair": lambda record: f"{LABELS[record['first']]} - {LABELS[record['second']]}",
        "mean gain (points)": lambda record: f"{100 * record['mean_gain']:+.2f}",
        "Wilcoxon p": lambda record: p_value(record["p"]),
        "Holm": lambda record: p_value(record["p_holm"]),
    }
    return _table("across", "Across data sets", scores, loss, columns, records)


def suite_tables(scores: Scores, published: Sequence[PairTable], criteria: Sequence[str] = CRITERIA) -> list[Table]:
    """Return all tables of one (protocol, model): pairs for each criterion, gains, errors, methods and tests."""
    by_criterion = {table.criterion: table for table in published}
    tables = []
    for loss in LOSSES:
        tables += [pair_table(scores, loss, criterion, by_criterion.get(criterion)) for criterion in criteria]
        tables += [make(scores, loss) for make in (gain_table, error_table, method_table, across_table)]
    return tables
