"""A table of the paper as plain values, the input of every renderer."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from msbench.results.mixing_documents import Distances
from msbench.results.record import Metric, RunRecord, get_metric_key

CellStatus = Literal[
    "measured", "missing", "diverged", "out-of-memory", "interrupted", "failed", "trivial-rule"
]
Source = Literal["run", "mixing", "average", "bin"]
"""The content of a column: results of runs, their mean mixing distances, an average of tasks, or results on
the examples of a bin (or those of the last bin less those of the first)."""
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
    better. `signed` numbers are differences, shown with their sign.
    """

    metric: str
    scale: float
    digits: int
    words: str
    ranked: bool = True
    signed: bool = False

    def count_decimals(self, sd: float | None) -> int:
        """Return the decimals for a mean and its sd: two significant digits of the sd, at most `digits`.

        Without a spread, or with one of zero, return `digits`. Raises ValueError where the spread is not
        finite or negative.
        """
        if sd is None or sd == 0:
            return self.digits
        if not (math.isfinite(sd) and sd > 0):
            raise ValueError(f"a standard deviation of {sd} cannot be shown")
        # The exponent of the rounded spread: 9.96 is 10 in two digits.
        exponent = int(f"{sd:.1e}".partition("e")[2])
        return min(self.digits, max(0, 1 - exponent))

    def format_mean(self, mean: float, sd: float | None) -> tuple[str, str]:
        """Return a mean and its sd as text, to the same decimals; the latter empty for None.

        Raises ValueError where either is no finite number.
        """
        if not math.isfinite(mean):
            raise ValueError(f"a mean of {mean} cannot be shown")
        digits = self.count_decimals(sd)
        return f"{mean:{'+' if self.signed else ''}.{digits}f}", "" if sd is None else f"{sd:.{digits}f}"


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
    "points": Unit("test_accuracy_change", 100.0, 2, "difference in points", ranked=False, signed=True),
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
class Bin:
    """The `n` test examples with a property of `low` to `high`, both of which occur, and of this mean."""

    low: int
    high: int
    mean: float
    n: int

    @property
    def label(self) -> str:
        """Its bounds, such as ``502-700``, or its one value."""
        return f"{self.low}" if self.low == self.high else f"{self.low}-{self.high}"


@dataclass(frozen=True)
class Column:
    """A task of a suite; `label` heads the paper's column and `unit` is a key of `UNITS`.

    `source` is what is shown of the task's runs: their result, or their mean mixing distance. An average has
    a task name of its own, and is over the tasks `of`. `printed` is False where the paper has no such column.
    `bin` has the examples that a column of a table by a property is of.
    """

    task: str
    label: str
    unit: str = "percent"
    suite: str = ""
    source: Source = "run"
    of: tuple[Place, ...] = ()
    printed: bool = True
    bin: Bin | None = None

    @property
    def places(self) -> tuple[Place, ...]:
        """The suites and tasks whose runs are behind it."""
        return self.of or ((self.suite, self.task),)


Verdict = Literal[
    "pass",
    "improved",
    "inconclusive",
    "fail",
    "chance-level",
    "trivial-rule",
    "diverged",
    "missing",
    "invalid",
    "other-data",
    "xfail",
]


@dataclass(frozen=True)
class Evidence:
    """The results of the runs behind a cell.

    `values` has the recorded result of each finished seed of `seeds`. `unfinished` counts the seeds without a
    result by status. `rules` are the results of trivial rules on the same test split; `chance` is the chance
    level of the metric, where known. `hardware` is the class of device, such as ``cpu`` or the name of a GPU;
    it is empty where runs were on several. `data_notes` are the notes of the data setup, such as that part of
    the published data is missing. `newer` counts by status the runs that are not among these, though they are
    of the present code and data or ended after these without a result. `unread` has a line for each run of
    the present code without a readable record, and `stale` is True if these results are of other source code
    than the present one. `seconds` is what these runs trained and tested in total.
    """

    metric: str
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    n_planned: int
    n_test: int | None = None
    rules: Mapping[str, float] = field(default_factory=dict)
    chance: float | None = None
    data_digest: str = ""
    hardware: str = ""
    unfinished: Mapping[str, int] = field(default_factory=dict)
    data_notes: tuple[str, ...] = ()
    newer: Mapping[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    stale: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Judgement:
    """A verdict with its evidence in one sentence.

    `expected` and `margin` define the test: the mean must not be below ``expected - margin``. `low` and
    `high` are the one-sided 95 % confidence bounds of the mean, the uncertainty of `expected` included;
    `seeds_needed` is the number of further seeds like these that would decide, where it can be estimated.
    """

    verdict: Verdict
    reason: str
    expected: float | None = None
    margin: float | None = None
    low: float | None = None
    high: float | None = None
    seeds_needed: int | None = None


ClaimVerdict = Literal["agrees", "contradicts", "undecided"]


@dataclass(frozen=True)
class ClaimStanding:
    """A verdict on a claim: the order of a cell and the base row's cell, compared with the paper's order.

    `reason` is the evidence in one sentence.
    """

    verdict: ClaimVerdict
    reason: str


@dataclass(frozen=True)
class CellComparison:
    """A cell and that of the model `reference` in its column: `difference`, its 95 % interval and p-value.

    They are in the metric, a fraction for accuracy. `p` is adjusted for all comparisons of the table.
    `over_seeds` distinguishes tests over seeds from tests over examples. `note` is the verdict and the test
    in words, which is one of the notes of the cell.
    """

    reference: str
    difference: float
    low: float
    high: float
    p: float
    over_seeds: bool
    note: str


@dataclass(frozen=True)
class Cell:
    """One model on one task.

    `reported` and `reported_sd` are as the paper prints them, empty where it has none. `measured` (mean over
    `n` seeds of `n_planned`) and `sd` (of the sample; None for one seed) are in the unit of the column,
    unrounded; `measured` is None for every status but ``measured`` and ``trivial-rule``. `notes` and
    `reported_notes` are the texts of its footnotes. `evidence` is the input of a verdict, in fractions;
    `judgement` is the verdict, where one was requested, `standing` the verdict on a claim, in tables of
    claims, and `comparison` a test against another model. `unlisted` marks results at settings that the suite
    has for no such row. `interval` is the 95 % interval of `measured`, in tables by a property.
    """

    reported: str = ""
    reported_sd: str = ""
    measured: float | None = None
    sd: float | None = None
    n: int = 0
    n_planned: int = 0
    status: CellStatus = "missing"
    notes: tuple[str, ...] = ()
    reported_notes: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()
    best: bool = False
    evidence: Evidence | None = None
    judgement: Judgement | None = None
    standing: ClaimStanding | None = None
    comparison: CellComparison | None = None
    unlisted: bool = False
    interval: tuple[float, float] | None = None


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
class Table:
    """A table of the paper, or of one suite, with reported and measured numbers.

    `id` is the name of either, `number` the paper's, None for a suite's own. `notes` concern the whole table.
    `base` is the model that the rows of a table of claims are compared with. `by` is the property of the test
    examples by which a table has accuracies, and empty for others.
    """

    id: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    protocol: str = "paper"
    number: int | None = None
    base: str = ""
    by: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: cells have `marks`, the letters of their notes, and only numbers."""
        plain = asdict(self)
        for row in plain["rows"]:
            for cell in row["cells"]:
                cell["marks"] = self.mark(cell.pop("notes"))
                cell["reported_marks"] = self.mark(cell.pop("reported_notes"))
                for name in ("reported", "reported_sd"):
                    cell[name] = float(cell[name]) if cell[name] else None
        for column in plain["columns"]:
            del column["printed"]
        plain["notes"] = [{"mark": mark, "text": text} for mark, text in self.footnotes]
        return plain

    @cached_property
    def letters(self) -> Mapping[str, str]:
        """The letter of each note of a cell, in reading order; equal texts share a letter."""
        cells = (cell for row in self.rows for cell in row.cells)
        texts = dict.fromkeys(text for cell in cells for text in (*cell.reported_notes, *cell.notes))
        return {text: count_in_letters(number) for number, text in enumerate(texts, 1)}

    @property
    def footnotes(self) -> list[tuple[str, str]]:
        """Letter and text of every note; the notes on the whole table come last and have no letter."""
        lettered = [(letter, text) for text, letter in self.letters.items()]
        return [*lettered, *(("", text) for text in self.notes)]

    def mark(self, notes: Iterable[str]) -> tuple[str, ...]:
        """Return the letters of these notes of a cell, in alphabetical order."""
        return tuple(sorted((self.letters[text] for text in notes), key=lambda mark: (len(mark), mark)))

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


@dataclass(frozen=True)
class Report:
    """Tables, with the records and the mixing distances that they were built from, by run id."""

    tables: tuple[Table, ...]
    results: Path
    records: Mapping[str, tuple[RunRecord, ...]]
    distances: Mapping[str, Sequence[Distances]] = field(default_factory=dict)

    def list_runs(self, table: Table, row: Row, column: int) -> tuple[RunRecord, ...]:
        """Return the runs behind a cell, in the order of its run ids."""
        places = table.columns[column].places
        return tuple(
            record
            for identity in row.cells[column].run_ids
            for record in self.records.get(identity, ())
            if record.model == row.model and (record.suite, record.task) in places
        )

    def find_folder(self, record: RunRecord) -> Path:
        """Return the folder with the files of a run."""
        return find_run_folder(self.results, record)


def find_run_folder(results: Path, record: RunRecord) -> Path:
    """Return the folder with the files of a run."""
    return results / record.suite / record.task / record.model / record.run_id


def count_in_letters(number: int) -> str:
    """Return the letters of a number: 1 -> a, 26 -> z, 27 -> aa."""
    text = ""
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("a") + digit) + text
    return text
