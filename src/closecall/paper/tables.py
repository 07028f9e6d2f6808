"""Scores -> tables beside the published numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from closecall._names import Array
from closecall.evaluate import stats
from closecall.evaluate.stats import win_fractions
from closecall.report.formats import Row, Table, float_table
from closecall.report.text import escape_latex

from .published import LOSSES, METHODS, PairTable, table3_error
from .scores import LABELS, Scores, title


def notes_on(scores: Scores) -> tuple[str, ...]:
    """How the numbers came about and which data sets are missing."""
    notes = [
        f"{len(scores.datasets)} data sets, {scores.splits} splits, {scores.max_iter} steps, {scores.model} model, "
        f"protocol {scores.protocol}."
    ]
    if scores.splits == 1:
        notes.append("One split cannot be tested: no difference counts as significant.")
    if scores.holes:
        # Many reasons under every table would bury it: beyond a few, names here and reasons with the section.
        few = len(scores.holes) <= 4
        holes = [f"{title(hole.dataset)} ({hole.why})" if few else title(hole.dataset) for hole in scores.holes]
        reasons = "" if few else "; notes.md says why"
        notes.append(f"Left out, {len(holes)} data sets: {'; '.join(holes)}{reasons}.")
    return tuple(notes)


def pair_table(scores: Scores, loss: str, criterion: str, published: PairTable | None = None) -> Table:
    """One block of the paper's square tables: how often the column's method beats the row's.

    Parameters
    ----------
    scores : Scores
    loss : str
    criterion : str
        ``significant``, ``points`` or ``joint``.
    published : PairTable, optional
        The table to set beside; each cell then shows ours and the difference to it.
    """
    fractions = stats.win_fractions(scores.test(loss), METHODS, scores.protocol, criterion)
    theirs = np.full_like(fractions, np.nan) if published is None else published.fractions(scores.model, loss)
    records = tuple(
        _pair_record(scores, loss, criterion, (i, j), fractions, theirs, published)
        for i in range(len(METHODS))
        for j in range(len(METHODS))
        if i != j
    )
    rows = tuple(
        (LABELS[method], *(_beside(fractions[i, j], theirs[i, j], 2) for j in range(len(METHODS))))
        for i, method in enumerate(METHODS)
    )
    words = {"significant": "p < 0.05", "points": "at least 2 points", "joint": "p < 0.05 and at least 2 points"}
    notes = ["Fraction of data sets on which the column's method beats the row's."]
    if published is not None:
        denominators = " or ".join(map(str, published.denominators[scores.model]))
        notes.append(f"Second number: ours minus the paper's {published.name} (which fits {denominators} data sets).")
    return Table(
        f"{criterion}-{scores.protocol}-{scores.model}-{loss}",
        f"Wins by {words[criterion]}: {scores.model}, {loss}, protocol {scores.protocol}",
        ("beaten / by", *(LABELS[method] for method in METHODS)),
        rows,
        records,
        (*notes, *notes_on(scores)),
    )


def _pair_record(
    scores: Scores,
    loss: str,
    criterion: str,
    place: tuple[int, int],
    fractions: Array,
    theirs: Array,
    published: PairTable | None,
) -> Row:
    total = len(scores.datasets)
    wins = round(float(np.nan_to_num(fractions[place])) * total)
    low, high = stats.fraction_interval(wins, total)
    record: Row = {
        "protocol": scores.protocol, "model": scores.model, "loss": loss, "criterion": criterion,
        "beaten": METHODS[place[0]], "by": METHODS[place[1]],
        "wins": wins, "datasets": total, "fraction": fractions[place], "low": low, "high": high,
    }  # fmt: skip
    if published is not None:
        total = published.denominators[scores.model][0]
        low, high = stats.fraction_interval(round(theirs[place] * total), total)
        record |= {
            "published": theirs[place], "published_low": low, "published_high": high,
            "difference": fractions[place] - theirs[place],
        }  # fmt: skip
    return record


def _beside(ours: float, theirs: float, digits: int) -> str:
    if np.isnan(ours):
        return ""
    return f"{ours:.{digits}f}" if np.isnan(theirs) else f"{ours:.{digits}f} {ours - theirs:+.{digits}f}"


def error_table(scores: Scores, loss: str, *, published: bool = False) -> Table:
    """Mean test errors in percent, as in Table 3; a star marks a significant difference from ``average``.

    With ``published`` each data set of Table 3 has two more lines: the paper's errors and the differences.
    """
    pairs = stats.compare(scores.test(loss), METHODS, scores.protocol) if len(scores.datasets) else {}
    errors = 100 * (1 - scores.test(loss).mean(axis=-1))
    rows: list[tuple[str, ...]] = []
    records: list[Row] = []
    for i, dataset in enumerate(scores.datasets):
        name = title(dataset)
        p = [1.0 if method == "average" else float(pairs["average", method].p[i]) for method in METHODS]
        stars = ["*" if each < stats.SIGNIFICANCE else "" for each in p]
        rows.append((name, *(f"{error:.2f}{star}" for error, star in zip(errors[i], stars, strict=True))))
        theirs = [table3_error(name, loss, method) if published else None for method in METHODS]
        given = [value for value in theirs if value is not None]
        if given:
            rows.append(("  paper", *(f"{value:.2f}" for value in given)))
            rows.append(
                ("  difference", *(f"{ours - value:+.2f}" for ours, value in zip(errors[i], given, strict=True)))
            )
        for j, method in enumerate(METHODS):
            record: Row = {
                "protocol": scores.protocol, "model": scores.model, "loss": loss, "dataset": name,
                "rows": int(scores.sizes[i, 0]), "features": int(scores.sizes[i, 1]), "method": method,
                "error": float(errors[i, j]), "p": p[j],
                "gain_over_average": float(errors[i, METHODS.index("average")] - errors[i, j]),
            }  # fmt: skip
            if published:
                value = theirs[j]
                record |= {"published": value, "difference": None if value is None else float(errors[i, j]) - value}
            records.append(record)
    notes = ["Mean test error in percent; * differs from average (p < 0.05 by the protocol's test)."]
    return Table(
        f"errors-{scores.protocol}-{scores.model}-{loss}",
        f"Test errors: {scores.model}, {loss}, protocol {scores.protocol}",
        ("data set", *(LABELS[method] for method in METHODS)),
        tuple(rows),
        tuple(records),
        (*notes, *notes_on(scores)),
    )


def gain_table(scores: Scores, loss: str) -> Table:
    """Close decay against ``average`` on every data set, largest gain first, with the protocol's p."""
    pair = ("average", "close_decay")
    means = 100 * scores.test(loss, pair).mean(axis=-1)
    one = stats.compare(scores.test(loss, pair), pair, scores.protocol)[pair] if len(means) else None
    order = np.argsort(-one.gains, kind="stable") if one else ()
    records: list[Row] = [
        {
            "protocol": scores.protocol, "model": scores.model, "loss": loss, "dataset": title(scores.datasets[i]),
            "average": float(means[i, 0]), "close_decay": float(means[i, 1]), "gain": 100 * float(one.gains[i]),
            "p": float(one.p[i]),
        }
        for i in order if one
    ]  # fmt: skip
    rows = tuple(
        (r["dataset"], f"{r['average']:.2f}", f"{r['close_decay']:.2f}", f"{r['gain']:+.2f}", _p(r["p"]))
        for r in records
    )
    corrected = ", Holm-adjusted over the data sets" if stats.RULES[scores.protocol].corrected else ""
    return Table(
        f"gains-{scores.protocol}-{scores.model}-{loss}",
        f"Close decay against average: {scores.model}, {loss}, protocol {scores.protocol}",
        ("data set", "average", "close decay", "gain", "p"),
        rows,
        tuple(records),
        (f"Mean test accuracy in percent, gain in points, p by the protocol's test{corrected}.", *notes_on(scores)),
    )


def method_table(scores: Scores, loss: str) -> Table:
    """Every method, baselines too: mean accuracy, train-test gap, rank, and wins and losses against ``average``."""
    methods = scores.methods
    test, train = scores.test(loss, methods), scores.of("train", loss, methods)
    pairs = stats.compare(test, methods, scores.protocol) if len(test) else {}
    ranks = stats.average_ranks(test.mean(axis=-1)) if len(test) else np.full(len(methods), np.nan)
    records: list[Row] = []
    for j, method in enumerate(methods):
        own = method != "average" and bool(pairs)
        records.append(
            {
                "protocol": scores.protocol, "model": scores.model, "loss": loss, "method": method,
                "accuracy": float(test[:, j].mean()) if len(test) else np.nan,
                "gap": float((train[:, j] - test[:, j]).mean()) if len(test) else np.nan,
                "rank": float(ranks[j]),
                "wins": int(pairs["average", method].wins("significant").sum()) if own else None,
                "losses": int(pairs[method, "average"].wins("significant").sum()) if own else None,
                "joint_wins": int(pairs["average", method].wins("joint").sum()) if own else None,
                "joint_losses": int(pairs[method, "average"].wins("joint").sum()) if own else None,
            }
        )  # fmt: skip
    rows = tuple(
        (
            LABELS[record["method"]], f"{100 * record['accuracy']:.2f}", f"{100 * record['gap']:+.2f}",
            f"{record['rank']:.2f}", _versus(record["wins"], record["losses"]),
            _versus(record["joint_wins"], record["joint_losses"]),
        )
        for record in records
    )  # fmt: skip
    distance = stats.critical_difference(len(methods), len(test)) if len(test) else np.nan
    notes = [
        "Accuracy: mean over data sets, in percent. Gap: training minus test accuracy, in points. Wins-losses are data "
        "sets against average: p < 0.05, then also at least 2 points.",
        f"Ranks that differ by less than {distance:.2f} cannot be told apart (Nemenyi, 0.05).",
    ]
    return Table(
        f"methods-{scores.protocol}-{scores.model}-{loss}",
        f"All methods: {scores.model}, {loss}, protocol {scores.protocol}",
        ("method", "accuracy", "gap", "rank", "p < .05", "joint"),
        rows,
        tuple(records),
        (*notes, *notes_on(scores)),
    )


def _versus(wins: int | None, losses: int | None) -> str:
    return "" if wins is None else f"{wins}-{losses}"


def across_table(scores: Scores, loss: str) -> Table:
    """Wilcoxon's signed-rank test over the data sets for every pair of the five methods, with Holm's correction."""
    means = scores.test(loss).mean(axis=-1)
    pairs = list(combinations(range(len(METHODS)), 2))
    p = np.array([stats.wilcoxon(means[:, i], means[:, j]) for i, j in pairs])
    adjusted = stats.holm(p)
    records: tuple[Row, ...] = tuple(
        {
            "protocol": scores.protocol, "model": scores.model, "loss": loss, "first": METHODS[i], "second": METHODS[j],
            "mean_gain": float((means[:, i] - means[:, j]).mean()) if len(means) else np.nan,
            "p": float(p[place]), "p_holm": float(adjusted[place]),
        }
        for place, (i, j) in enumerate(pairs)
    )  # fmt: skip
    rows = tuple(
        (
            f"{LABELS[record['first']]} - {LABELS[record['second']]}",
            f"{100 * record['mean_gain']:+.2f}",
            _p(record["p"]),
            _p(record["p_holm"]),
        )
        for record in records
    )
    return Table(
        f"across-{scores.protocol}-{scores.model}-{loss}",
        f"Across data sets: {scores.model}, {loss}, protocol {scores.protocol}",
        ("pair", "mean gain (points)", "Wilcoxon p", "Holm"),
        rows,
        records,
        notes_on(scores),
    )


def _p(value: float) -> str:
    return "< 0.0001" if value < 1e-4 else f"{value:.4f}"


def start_table(scores: Scores, other: Scores, names: tuple[str, str], loss: str) -> Table:
    """Sensitivity to the start: the same splits solved from two starts, method by method.

    Parameters
    ----------
    scores, other : Scores
        The two starts; compared on the data sets that both have.
    names : tuple of str
        What the starts are called.
    """
    common = [name for name in scores.datasets if name in other.datasets]
    first, second = (
        part.test(loss)[[part.datasets.index(name) for name in common]].mean(axis=-1) for part in (scores, other)
    )
    records: tuple[Row, ...] = tuple(
        {
            "protocol": scores.protocol, "model": scores.model, "loss": loss, "method": method,
            "mean_change": float((second - first)[:, j].mean()) if common else np.nan,
            "largest_change": float(np.abs(second - first)[:, j].max(initial=0)),
            "datasets_beyond_1_point": int((np.abs(second - first)[:, j] >= 0.01).sum()), "datasets": len(common),
        }
        for j, method in enumerate(METHODS)
    )  # fmt: skip
    rows = tuple(
        (
            LABELS[record["method"]],
            f"{100 * record['mean_change']:+.2f}",
            f"{100 * record['largest_change']:.2f}",
            f"{record['datasets_beyond_1_point']} of {record['datasets']}",
        )
        for record in records
    )
    return Table(
        f"start-{names[1]}-{scores.protocol}-{scores.model}-{loss}",
        f"Sensitivity to the start ({names[0]} -> {names[1]}): {scores.model}, {loss}, protocol {scores.protocol}",
        ("method", "mean change", "largest", "over 1 point"),
        rows,
        records,
        ("Change of the mean test accuracy of a data set, in points.", *notes_on(scores)),
    )


def suite_tables(
    scores: Scores, published: Sequence[PairTable] = (), *, criteria: Sequence[str] = stats.CRITERIA
) -> list[Table]:
    """Every table of one (protocol, model): pairs by each criterion, errors, methods, across data sets."""
    by_criterion = {table.criterion: table for table in published}
    tables = []
    for loss in LOSSES:
        tables += [pair_table(scores, loss, criterion, by_criterion.get(criterion)) for criterion in criteria]
        tables += [gain_table(scores, loss), error_table(scores, loss), method_table(scores, loss)]
        tables.append(across_table(scores, loss))
    return tables


def pairs_latex(parts: Sequence[Scores], criterion: str, published: PairTable | None, notes: Sequence[str]) -> str:
    """The paper's layout: a block of rows for each model, logistic left of hinge; ours, published, difference.

    Parameters
    ----------
    parts : sequence of Scores
        One for each model, all of one protocol.
    criterion : str
    published : PairTable, optional
    notes : sequence of str
    """
    blocks = []
    for scores in parts:
        ours = np.hstack([win_fractions(scores.test(loss), METHODS, scores.protocol, criterion) for loss in LOSSES])
        blocks.append((f"{scores.model}, ours", ours, ""))
        if published is not None:
            theirs = np.hstack([published.fractions(scores.model, loss) for loss in LOSSES])
            blocks += [("paper", theirs, ""), ("difference", ours - theirs, "+")]
    names = [escape_latex(LABELS[method]) for method in METHODS]
    head = [
        r"\toprule",
        r" & & \multicolumn{5}{c}{Logistic} & \multicolumn{5}{c}{Hinge} \\",
        r"\cmidrule(lr){3-7}\cmidrule(lr){8-12}",
        " & & " + " & ".join(names * 2) + r" \\",
    ]
    for label, values, sign in blocks:
        head += [r"\midrule", rf"\multirow{{5}}{{*}}{{{escape_latex(label)}}}"]
        for name, row in zip(names, values, strict=True):
            cells = ["" if np.isnan(value) else f"{value:{sign}.2f}" for value in row]
            head.append(f"& {name} & " + " & ".join(cells) + r" \\")
    caption = published.caption if published is not None else f"Fraction of data sets with wins ({criterion})"
    return float_table(
        f"{caption}; protocol {parts[0].protocol}", notes, "llcccccccccc", "\n".join([*head, r"\bottomrule"])
    )
