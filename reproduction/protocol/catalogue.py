"""The named suites and facts about their data sets, read from the tables next to this file."""

from pathlib import Path

from .embedded import EMBEDDED
from .files import csv_rows

#: The 94 binary sets of PMLB as they were in 2017: (rows, features, first 12 digits of the content's SHA-256).
PMLB94: dict[str, tuple[int, int, str]] = {
    row["name"]: (int(row["rows"]), int(row["features"]), row["sha256"])
    for row in csv_rows(Path(__file__).with_name("pmlb94.csv"))
}
#: Those of the 94 that today's PMLB no longer has, or has with different content; the others only changed their names.
PMLB_GONE: dict[str, str] = {
    "bupa": "today's bupa has a different target (drinks, which used to be a feature) and 5 features instead of 6",
    "liver-disorder": "it was removed as a duplicate of bupa, whose target has since changed",
    "molecular-biology_promoters": "today's set lacks the row number that the 2017 file counts among its 58 features",
    "promoters": "it was removed as a duplicate of molecular-biology_promoters, which has since lost a column",
}
#: The 54 binary tasks of the OpenML100 suite (study 14): task id -> (data set id, name).
OPENML100: dict[int, tuple[int, str]] = {
    int(row["task"]): (int(row["data_id"]), row["name"]) for row in csv_rows(Path(__file__).with_name("openml100.csv"))
}
#: The rows of the paper's Table 3 -> the sets they may stand for. "monk" is PMLB's monk3 (its 554 rows); the paper does
#: not state which german it used, so both are run.
FAN8: dict[str, tuple[str, ...]] = {
    "monk": ("pmlb:monk3",), "phoneme": ("pmlb:phoneme",), "madelon": ("openml100:9976",),
    "spambase": ("pmlb:spambase",), "titanic": ("pmlb:titanic",), "australian": ("pmlb:australian",),
    "splice": ("fan8:splice3175",), "german": ("fan8:german-num", "pmlb:german"),
}  # fmt: skip
#: The sets of Fan et al. (2017) that neither PMLB nor OpenML has in this form: (rows, features, where they come from).
FAN8_FILES: dict[str, tuple[int, int, str]] = {
    "german-num": (1000, 24, "the UCI repository's Statlog German credit data, file german.data-numeric"),
    "splice3175": (3175, 60, "splice from the LIBSVM data page, with the training and test parts combined"),
}


def pmlb_today(name: str) -> str:
    """Return the current PMLB name of a set from the 2017 edition, with underscores instead of hyphens."""
    return name.replace("-", "_")


#: Today's spelling -> the spelling of 2017.
PMLB_OF_2017: dict[str, str] = {pmlb_today(name): name for name in PMLB94}
#: Every suite by name; its members are names that `load_dataset` accepts. ``fan8`` has nine, with both
#: versions of german; ``hu4`` contains the sets of Hu et al. (2020), and ``he2`` two of He and Little (2023).
SUITES: dict[str, tuple[str, ...]] = {
    "embedded": tuple(f"embedded:{name}" for name in EMBEDDED),
    "fan8": tuple(name for names in FAN8.values() for name in names),
    "pmlb94": tuple(f"pmlb:{name}" for name in PMLB94),
    "openml100": tuple(f"openml100:{task}" for task in OPENML100),
    "hu4": ("pmlb:monk3", "pmlb:australian", "fan8:splice3175", "pmlb:phoneme"),
    "he2": ("pmlb:haberman", "openml100:10101"),
}
