"""Which PMLB sets are versions of each other: what one of them teaches must not be tested on another."""

from __future__ import annotations

#: Members by family; a set that is not named is its own family. Sources: the sets' descriptions in UCI and PMLB.
FAMILIES = {
    "credit approval": ("australian", "buggyCrx", "credit-a", "crx"),
    "german credit": ("german", "credit-g"),
    "heart": ("cleve", "heart-c", "heart-h", "heart-statlog", "hungarian"),
    "breast cancer wisconsin": ("breast", "breast-w", "breast-cancer-wisconsin"),
    "congress": ("vote", "house-votes-84"),
    "liver": ("bupa", "liver-disorder"),
    "diabetes": ("diabetes", "pima"),
    "horse colic": ("colic", "horse-colic"),
    "promoters": ("promoters", "molecular-biology_promoters"),
    "mushroom": ("mushroom", "agaricus-lepiota"),
    "chess": ("chess", "kr-vs-kp"),
    "monk": ("monk1", "monk2", "monk3"),
    "parity": ("parity5", "parity5+5"),
    "musk": ("clean1", "clean2"),
    "spect": ("spect", "spectf"),
    "norms": ("ring", "ringnorm", "twonorm"),
    "thyroid": ("dis", "hypothyroid"),
}
#: Sets whose names begin alike and that come from one generator or collection of the same question.
PREFIXES = ("GAMETES", "Hill_Valley", "analcatdata_boxing", "analcatdata_cyyoung")


def family(name: str) -> str:
    """The family of a data set.

    Examples
    --------
    >>> family("crx"), family("GAMETES_Epistasis_2-Way_20atts_0.1H_EDM-1_1"), family("phoneme")
    ('credit approval', 'GAMETES', 'phoneme')
    """
    for word, members in FAMILIES.items():
        if name in members:
            return word
    return next((prefix for prefix in PREFIXES if name.startswith(prefix)), name)
