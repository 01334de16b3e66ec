"""A table of the paper as plain values, the input of every renderer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from msbench.reporting.tables.judgement import Evidence, Judgement
from msbench.results.record import Metric, get_metric_key

CellStatus = Literal[
    "measured", "missing", "diverged", "out-of-memory", "interrupted", "failed", "trivial-rule"
]
Source = Literal["run", "mixing", "average"]
"""The content of a column: results of runs, their mean mixing distances, or an average of tasks."""
Place = tuple[str, str]
"""Suite and task."""

RULES_GROUP = "Trivial rules"
MEASURED_GROUP = "Measured only"
MODELS_GROUP = "Models"
"""The heading of measured rows in a table without reported rows."""
MODIFIED_GROUP = "Modified runs"
MODIFIED_MARK = "†"


@dataclass(frozen=True)
class Unit:
    """Display settings of a metric: key in a record, scale factor, decimals, and words for captions.

    `digits` is the maximum of decimals: a spread may allow fewer. `ranked` is False where higher is not
    better.
    """

    metric: str
    scale: float
    digits: int
    words: str
    ranked: bool = True


UNITS = {
    "percent": Unit(get_metric_key("test", "accuracy"), 100.0, 2, "accuracy in percent"),
    "auroc": Unit(get_metric_key("test", "macro-auroc"), 1.0, 3, "macro AUROC"),
    "auroc-percent": Unit(get_metric_key("test", "macro-auroc"), 100.0, 2, "macro AUROC in percent"),
    "validation-percent": Unit(
        get_metric_key("validation", "accuracy"), 100.0, 2, "validation accuracy in percent"
    ),
    "validation-auroc": Unit(
        get_metric_key("validation", "macro-auroc"), 100.0, 2, "validation macro AUROC in percent"
    ),
    "tokens": Unit("mean_mixing_distance", 1.0, 2, "distance in tokens", ranked=False),
}
COMPARED = frozenset(unit.metric for unit in UNITS.values() if unit.ranked)
"""The metrics by which models are compared: higher is better, and 1 is perfect."""
RESULTS = COMPARED - {get_metric_key("validation", "accuracy"), get_metric_key("validation", "macro-auroc")}
"""The metrics of `COMPARED` that are results and get verdicts."""
Part = Literal["test", "validation"]
"""The split that a table shows: test for results, validation for choosing settings."""
UNIT_OF_METRIC: Mapping[Part, Mapping[Metric, str]] = {
    "test": {"accuracy": "percent", "macro-auroc": "auroc-percent"},
    "validation": {"accuracy": "validation-percent", "macro-auroc": "validation-auroc"},
}
"""The unit of a column for which the paper prints none."""


@dataclass(frozen=True)
class Column:
    """A task of a suite; `label` heads the paper's column and `unit` is a key of `UNITS`.

    An average (`source`) has a task name of its own, and is over the tasks `of`.
    """

    task: str
    label: str
    unit: str = "percent"
    suite: str = ""
    source: Source = "run"
    of: tuple[Place, ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """The suites and tasks whose runs are behind it."""
        return self.of or ((self.suite, self.task),)


ClaimVerdict = Literal["agrees", "contradicts", "undecided"]


@dataclass(frozen=True)
class ClaimStanding:
    """A verdict on a claim: the order of a cell and the base row's cell, compared with the paper's order.

    `reason` is the evidence in one sentence.
    """

    verdict: ClaimVerdict
    reason: str


@dataclass(frozen=True)
class Cell:
    """One model on one task.

    `reported` and `reported_sd` are as the paper prints them, empty where it has none. `measured` (mean over
    `n` seeds of `n_planned`) and `sd` (of the sample; None for one seed) are in the unit of the column,
    unrounded; `measured` is None for every status but ``measured`` and ``trivial-rule``. Marks refer to the
    table's notes. `evidence` is the input of a verdict, in fractions; `judgement` is the verdict, where one
    was requested, and `standing` the verdict on a claim, in tables of claims.
    """

    reported: str = ""
    reported_sd: str = ""
    measured: float | None = None
    sd: float | None = None
    n: int = 0
    n_planned: int = 0
    status: CellStatus = "missing"
    marks: tuple[str, ...] = ()
    reported_marks: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    best: bool = False
    evidence: Evidence | None = None
    judgement: Judgement | None = None
    standing: ClaimStanding | None = None


@dataclass(frozen=True)
class Row:
    """A model; `cells` has one for each column. `provenance` is the source of its numbers."""

    name: str
    group: str
    model: str
    cells: tuple[Cell, ...]
    provenance: str = ""

    @property
    def run_ids(self) -> list[str]:
        """The runs behind the row, each once."""
        return list(dict.fromkeys(identity for cell in self.cells for identity in cell.run_ids))


@dataclass(frozen=True)
class Note:
    """A line below the table; `mark` is empty if it concerns the whole table."""

    mark: str
    text: str


@dataclass(frozen=True)
class Table:
    """A table of the paper, or of one suite, with reported and measured numbers.

    `id` is the name of either, `number` the paper's, None for a suite's own. `base` is the model that the
    rows of a table of claims are compared with.
    """

    id: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[Note, ...] = ()
    protocol: str = "paper"
    number: int | None = None
    base: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    @cached_property
    def kinds(self) -> tuple[tuple[str, ...], ...]:
        """The kinds of numbers in each column: reported and measured, or measured alone."""
        printed = (any(row.cells[index].reported for row in self.rows) for index in range(len(self.columns)))
        return tuple(("reported", "measured") if found else ("measured",) for found in printed)

    @property
    def heading(self) -> str:
        """The title, preceded by the paper's table number if there is one."""
        return self.title if self.number is None else f"Table {self.number}: {self.title}"

    @property
    def measured(self) -> int:
        """The number of cells with a measured mean; 0 means that every run failed or is missing."""
        return sum(cell.status == "measured" for row in self.rows for cell in row.cells)


def lettered(rows: Sequence[Row], general: Iterable[str]) -> tuple[tuple[Row, ...], tuple[Note, ...]]:
    """Replace the text marks of rows by letters, in reading order; return the rows and the notes.

    The same text has the same letter everywhere; `general` notes come last, each once.
    """
    marks: dict[str, str] = {}

    def short(texts: tuple[str, ...]) -> tuple[str, ...]:
        found = [marks.setdefault(text, letters(len(marks))) for text in texts]
        return tuple(sorted(found, key=lambda mark: (len(mark), mark)))

    done = [
        replace(
            row,
            cells=tuple(
                replace(cell, reported_marks=short(cell.reported_marks), marks=short(cell.marks))
                for cell in row.cells
            ),
        )
        for row in rows
    ]
    notes = [
        *((mark, text) for text, mark in marks.items()),
        *(("", text) for text in dict.fromkeys(general)),
    ]
    return tuple(done), tuple(Note(*note) for note in notes)


def letters(number: int) -> str:
    """Return the letters of a number: 0 -> a, 25 -> z, 26 -> aa."""
    text = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("a") + digit) + text
    return text
