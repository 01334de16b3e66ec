"""How a verdict looks: a word, a tone and a shape, so that colour alone never says it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from msbench.reporting.render import words
from msbench.reporting.tables.cells import ClaimVerdict, Table
from msbench.reporting.tables.judgement import Verdict

Tone = Literal["good", "bad", "unsure", "absent"]


@dataclass(frozen=True)
class Look:
    """`shape` is the id of a symbol of the page, without its prefix."""

    tone: Tone
    shape: str


LOOKS: Mapping[Verdict | ClaimVerdict, Look] = {
    "pass": Look("good", "tick"),
    "improved": Look("good", "up"),
    "inconclusive": Look("unsure", "question"),
    "fail": Look("bad", "cross"),
    "chance-level": Look("bad", "dice"),
    "trivial-rule": Look("bad", "equals"),
    "diverged": Look("bad", "burst"),
    "missing": Look("absent", "ring"),
    "invalid": Look("bad", "bar"),
    "other-data": Look("unsure", "pair"),
    "xfail": Look("absent", "known"),
    "agrees": Look("good", "same-order"),
    "contradicts": Look("bad", "other-order"),
    "undecided": Look("unsure", "wave"),
}


def count(tables: Iterable[Table]) -> list[tuple[Verdict | ClaimVerdict, int]]:
    """How many cells have each verdict, in the order of `LOOKS`; those that none has are left out."""
    found = Counter(words.verdict_of(cell) for table in tables for row in table.rows for cell in row.cells)
    return [(verdict, found[verdict]) for verdict in LOOKS if found[verdict]]
