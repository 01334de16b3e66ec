"""How a verdict looks and what it means: a word, a tone and a shape, so that colour alone never says it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from msbench.gate.judgement import Verdict
from msbench.report.cells import Table

Tone = Literal["good", "bad", "unsure", "absent"]


@dataclass(frozen=True)
class Look:
    """`shape` is the id of a symbol of the page, without its prefix; `meaning` stands in the legend."""

    tone: Tone
    shape: str
    meaning: str


LOOKS: Mapping[Verdict, Look] = {
    "pass": Look("good", "tick", "not below what was expected, less its margin"),
    "improved": Look("good", "up", "above what was expected by more than its margin"),
    "inconclusive": Look("unsure", "question", "too few seeds, or too wide a spread, to tell"),
    "fail": Look("bad", "cross", "below what was expected, less its margin"),
    "chance-level": Look("bad", "dice", "no better than guessing"),
    "trivial-rule": Look("bad", "equals", "no better than a rule that needs no training"),
    "diverged": Look("bad", "burst", "training stopped at a value that is not finite"),
    "missing": Look("absent", "ring", "no result where one was asked for"),
    "invalid": Look("bad", "bar", "runs that may not be compared with what was expected"),
    "other-data": Look("unsure", "pair", "measured on other data than what was expected"),
    "xfail": Look("absent", "known", "fails, as is known and written down"),
}


def count(tables: Iterable[Table]) -> list[tuple[Verdict, int]]:
    """How many cells have each verdict, in the order of the legend; those that none has are left out."""
    judgements = (cell.judgement for table in tables for row in table.rows for cell in row.cells)
    found = Counter(judgement.verdict for judgement in judgements if judgement)
    return [(verdict, found[verdict]) for verdict in LOOKS if found[verdict]]
