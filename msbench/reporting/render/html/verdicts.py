"""Display of verdicts by a word, a tone and a shape, so that none is shown by colour alone."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from msbench.reporting.render import formatting
from msbench.reporting.tables.cells import ClaimVerdict, Table, Verdict

Tone = Literal["good", "bad", "unsure", "absent"]


@dataclass(frozen=True)
class VerdictStyle:
    """`shape` is the id of a symbol of the page, without its prefix."""

    tone: Tone
    shape: str


LOOKS: Mapping[Verdict | ClaimVerdict, VerdictStyle] = {
    "pass": VerdictStyle("good", "tick"),
    "improved": VerdictStyle("good", "up"),
    "inconclusive": VerdictStyle("unsure", "question"),
    "fail": VerdictStyle("bad", "cross"),
    "chance-level": VerdictStyle("bad", "dice"),
    "trivial-rule": VerdictStyle("bad", "equals"),
    "diverged": VerdictStyle("bad", "burst"),
    "missing": VerdictStyle("absent", "ring"),
    "invalid": VerdictStyle("bad", "bar"),
    "other-data": VerdictStyle("unsure", "pair"),
    "xfail": VerdictStyle("absent", "known"),
    "agrees": VerdictStyle("good", "same-order"),
    "contradicts": VerdictStyle("bad", "other-order"),
    "undecided": VerdictStyle("unsure", "wave"),
}


def count(tables: Iterable[Table]) -> list[tuple[Verdict | ClaimVerdict, int]]:
    """Return the number of cells with each verdict, in the order of `LOOKS`, without zeros."""
    found = Counter(
        formatting.find_verdict(cell) for table in tables for row in table.rows for cell in row.cells
    )
    return [(verdict, found[verdict]) for verdict in LOOKS if found[verdict]]
