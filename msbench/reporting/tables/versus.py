"""Comparison of a table's models with one of them, by significance tests: for ``--versus`` and for claims.

Rules: docs/statistics.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from msbench.errors import ConfigError, DamagedRecord, DataError, UnknownName
from msbench.reporting.outcomes import FoundRun, check_same_test, run_paired_test
from msbench.reporting.tables.cells import (
    COMPARED,
    MODIFIED_GROUP,
    RESULTS,
    UNITS,
    Cell,
    CellComparison,
    ClaimStanding,
    ClaimVerdict,
    Part,
    Report,
    Row,
    Table,
)
from msbench.results.mixing_documents import find_comparable
from msbench.results.record import get_metric_key
from msbench.results.reported import ReportedCell
from msbench.runs.suite_file import Claim
from msbench.stats.bootstrap import Paired
from msbench.stats.difference import Difference, find_detectable_difference, holm, welch

CellIndex = tuple[int, int]
"""Row and column of a table, counted from 0."""
LEVEL = 0.05
"""Significance level for adjusted p-values; intervals have the confidence level 1 - `LEVEL`."""
POWER = 0.8
"""Probability with which the difference is found that an undecided verdict names."""
NAMED = 3
"""The most rows that a note names, of those not compared for one reason."""


@dataclass(frozen=True)
class Comparison:
    """A model and a reference model in one metric: `test` has the difference, as a fraction, and its p-value.

    `p_holm` is that p-value adjusted for all comparisons of the table, of a single one until then.
    `over_seeds` distinguishes tests over seeds from tests over examples, and `how` describes the test in
    words; `words` are for above and below.
    """

    reference: str
    test: Difference | Paired
    p_holm: float
    over_seeds: bool
    how: str
    words: tuple[str, str] = ("better", "worse")

    @property
    def verdict(self) -> str:
        """A text such as ``better than mamba``, or that the two models cannot be distinguished."""
        if self.p_holm >= LEVEL:
            return f"not distinguishable from {self.reference}"
        more, less = self.words
        return f"{more if self.test.difference > 0 else less} than {self.reference}"

    @property
    def mark(self) -> str:
        """The text of the mark of a cell."""
        p = format_p(self.p_holm)
        return f"{self.verdict}, p {p if p.startswith('<') else f'= {p}'} (Holm, {self.how})"

    def as_part_of_cell(self) -> CellComparison:
        """Return the comparison as plain values."""
        found = self.test
        numbers = (found.difference, found.low, found.high, self.p_holm)
        return CellComparison(self.reference, *numbers, self.over_seeds, self.mark)


def format_p(p: float) -> str:
    """Return a p-value as text: ``0.03``, or ``< 0.001``; next to a verdict 0.0497 is not rounded to 0.05."""
    if p < 0.001:
        return "< 0.001"
    texts = (f"{p:.{digits}g}" for digits in range(2, 17))
    return next((text for text in texts if (float(text) < LEVEL) == (p < LEVEL)), repr(p))


@dataclass(frozen=True)
class TableComparison:
    """All comparisons of a table with one reference model; `notes` give the missing ones with reasons."""

    comparisons: Mapping[CellIndex, Comparison]
    notes: tuple[str, ...] = ()


def compare_tables(report: Report, reference: str) -> Report:
    """Return the report with comparisons; tables of claims have their own and stay unchanged.

    Raises UnknownName where no table has the reference model.
    """
    tables = report.tables
    if all(_find_reference(table, reference) is None for table in tables):
        known = {row.model for table in tables for row in table.rows if _is_measured(row)}
        raise UnknownName("model", reference, known, "--versus")
    compared = (
        table if table.base else add_comparisons(table, compare_table(report, table, reference))
        for table in tables
    )
    return replace(report, tables=tuple(compared))


def judge_claim(report: Report, table: Table, claim: Claim, reported: Iterable[ReportedCell]) -> Table:
    """Return the table of a claim with `Cell.standing` wherever a row is comparable with the base row.

    Means are compared as by ``--versus``, mixing distances by Welch's test over seeds; Holm's correction is
    over the table. Cells that the suite does not list are compared and have no standing.
    """
    printed = {
        (cell.group, cell.row): float(cell.value)
        for cell in reported
        if cell.table == claim.table and cell.column == claim.column and cell.value
    }
    compare = compare_distances if claim.measure == "mixing" else compare_table
    found = compare(report, table, claim.base)
    base = next((row for row in table.rows if row.model == claim.base), None)
    theirs = printed.get((base.group, base.name)) if base else None
    rows = []
    for at, row in enumerate(table.rows):
        value = printed.get((row.group, row.name))
        compared = None if row.cells[0].unlisted else found.comparisons.get((at, 0))
        if compared is not None and value is not None and theirs is not None and value != theirs:
            standing = _decide_claim(compared, UNITS[table.columns[0].unit].scale, higher=value > theirs)
            row = replace(row, cells=(replace(row.cells[0], standing=standing),))
        rows.append(row)
    return add_comparisons(replace(table, rows=tuple(rows), base=claim.base), found)


def _decide_claim(compared: Comparison, scale: float, *, higher: bool) -> ClaimStanding:
    """Return the verdict on a row that the paper has above the base row (`higher`) or below it."""
    numbers = (compared.test.difference, compared.test.low, compared.test.high)
    difference, low, high = (f"{scale * number:+.2f}".replace("-", "−") for number in numbers)
    verdict: ClaimVerdict = "agrees" if (compared.test.difference > 0) == higher else "contradicts"
    # A single seed distinguishes two trained models, but does not test a claim on two methods.
    if compared.p_holm >= LEVEL or not compared.over_seeds:
        verdict = "undecided"
    reason = (
        f"the paper has it {'above' if higher else 'below'} {compared.reference};"
        f" here the difference is {difference} ({low} to {high}): {compared.mark}"
    )
    if verdict == "undecided" and isinstance(compared.test, Difference):
        least = scale * find_detectable_difference(compared.test, POWER)
        reason += f"; a true difference of {least:.2f} would be found by {POWER:.0%} of such tests"
    return ClaimStanding(verdict, reason)


def compare_table(report: Report, table: Table, reference: str) -> TableComparison:
    """Compare every measured cell of `table` with that of the model or row `reference` in its column.

    Holm's correction is over all of them; rows that show the same runs count once. Cells that cannot be
    compared are left out, with a note.
    """
    index = _find_reference(table, reference)
    if index is None:
        return _compare_nothing(reference)
    base = table.rows[index]
    found: dict[CellIndex, Comparison] = {}
    refused: dict[tuple[str, str], list[str]] = {}
    for i, row in enumerate(table.rows):
        for j, (cell, theirs) in enumerate(zip(row.cells, base.cells, strict=True)):
            if not (_has_runs(cell) and _has_runs(theirs)) or cell.run_ids == theirs.run_ids:
                continue
            try:
                part: Part = "test" if UNITS[table.columns[j].unit].metric in RESULTS else "validation"
                sides = [_list_runs(report, table, each, j, part) for each in (row, base)]
                compared = compare_runs(*sides, part=part)
                found[i, j] = replace(compared, reference=reference)
            except (DataError, DamagedRecord, ConfigError) as error:
                refused.setdefault((table.columns[j].label, str(error)), []).append(row.name)
    notes = (
        f"{_join(rows)} on {column} {'is' if len(rows) == 1 else 'are'} not compared with {reference}: {why}"
        for (column, why), rows in refused.items()
    )
    return _adjust(table, reference, found, notes)


def compare_distances(report: Report, table: Table, reference: str) -> TableComparison:
    """Compare mean mixing distances of two seeds or more on both sides, by Welch's test over seeds."""
    means = [_list_distances(report, row) for row in table.rows]
    pairs = zip(table.rows, means, strict=True)
    theirs = next((found for row, found in pairs if row.model == reference and found), None)
    if theirs is None:
        return _compare_nothing(reference)
    found: dict[CellIndex, Comparison] = {}
    for at, row in enumerate(table.rows):
        if row.model != reference and min(len(means[at]), len(theirs)) > 1:
            compared = compare_over_seeds(reference, means[at], theirs)
            found[at, 0] = replace(compared, words=("larger", "smaller"))
    return _adjust(table, reference, found)


def add_comparisons(table: Table, found: TableComparison) -> Table:
    """Return the table with a note on each compared cell, and notes on the method."""

    def add_note(cell: Cell, place: CellIndex) -> Cell:
        compared = found.comparisons.get(place)
        if compared is None:
            return cell
        return replace(cell, notes=(*cell.notes, compared.mark), comparison=compared.as_part_of_cell())

    rows = [
        replace(row, cells=tuple(add_note(cell, (i, j)) for j, cell in enumerate(row.cells)))
        for i, row in enumerate(table.rows)
    ]
    return replace(table, rows=tuple(rows), notes=tuple(dict.fromkeys([*table.notes, *found.notes])))


def find_leaders(table: Table) -> dict[CellIndex, bool]:
    """Return the leading group of each column: True for a cell that is alone, False for those of several.

    The group is the highest mean and every mean that Welch's test over seeds, Holm's correction over the
    column, does not tell apart from it. A cell of one seed is not tested: no column that it leads has a
    group, and next to it no other is alone. Rows that show the same runs count once.
    """
    leaders: dict[CellIndex, bool] = {}
    for j in range(len(table.columns)):
        cells = {i: row.cells[j] for i, row in enumerate(table.rows) if row.group != MODIFIED_GROUP}
        ranked = {i: cell for i, cell in cells.items() if _has_runs(cell) and not cell.unlisted}
        best = max(ranked.values(), key=lambda cell: cell.measured or 0.0, default=None)
        if best is None or best.n < 2:
            continue
        others = {cell.run_ids: cell for cell in ranked.values() if cell.run_ids != best.run_ids}
        tests = {runs: p for runs, cell in others.items() if (p := _compare_seeds(best, cell)) is not None}
        behind = {runs for runs, p in holm(tests).items() if p < LEVEL}
        group = {best.run_ids, *tests} - behind
        alone = len(behind) == len(others) > 0
        if alone or len(group) > 1:
            leaders |= {(i, j): alone for i, cell in ranked.items() if cell.run_ids in group}
    return leaders


def _compare_seeds(best: Cell, cell: Cell) -> float | None:
    """Return the p-value of two cells over seeds; None where either has one seed, or their data differ."""
    ours, theirs = best.evidence, cell.evidence
    if ours is None or theirs is None or cell.n < 2 or ours.data_digest != theirs.data_digest:
        return None
    step = 1 / ours.n_test if ours.n_test and ours.metric == get_metric_key("test", "accuracy") else 0.0
    return welch(ours.values, theirs.values, step=step).p


def _find_reference(table: Table, reference: str) -> int | None:
    """Return the index of the first row with results of this model, or of this name; None if none has."""
    rows = enumerate(table.rows)
    return next((i for i, row in rows if reference in (row.model, row.name) and _is_measured(row)), None)


def _is_measured(row: Row) -> bool:
    return any(_has_runs(cell) for cell in row.cells)


def _has_runs(cell: Cell) -> bool:
    """Return True for means of results of one task: not for averages of tasks, nor for trivial rules."""
    return cell.status == "measured" and cell.evidence is not None and cell.evidence.metric in COMPARED


def _list_runs(report: Report, table: Table, row: Row, index: int, part: Part) -> list[FoundRun]:
    """Return the runs behind a cell; raises DataError where a result is not what the column shows."""
    metric, runs = UNITS[table.columns[index].unit].metric, report.list_runs(table, row, index)
    for record in runs:
        if get_metric_key(part, record.metric) != metric:
            raise DataError(f"run {record.run_id}: its result, {record.metric}, is not what the column shows")
    return [FoundRun(record, report.find_folder(record)) for record in runs]


def _list_distances(report: Report, row: Row) -> list[float]:
    """Return the mean mixing distance of each run behind a row; its cells use only runs that have one."""
    measured = (find_comparable(report.distances[identity]) for identity in row.cells[0].run_ids)
    return [each.mean for each in measured if each is not None and each.mean is not None]


def _compare_nothing(reference: str) -> TableComparison:
    note = f"no measured {reference} in this table: nothing is compared with it"
    return TableComparison({}, (note,))


def _adjust(
    table: Table, reference: str, found: Mapping[CellIndex, Comparison], notes: Iterable[str] = ()
) -> TableComparison:
    """Return the comparisons after Holm's correction, in which rows that show the same runs count once."""
    same = {(i, j): (j, table.rows[i].cells[j].run_ids) for i, j in found}
    adjusted = holm({same[place]: each.test.p for place, each in found.items()})
    comparisons = {place: replace(each, p_holm=adjusted[same[place]]) for place, each in found.items()}
    return TableComparison(comparisons, (*_describe_tests(reference, comparisons, len(adjusted)), *notes))


def _describe_tests(
    reference: str, comparisons: Mapping[CellIndex, Comparison], number: int
) -> Iterable[str]:
    """Yield notes that apply to all comparisons of a table."""
    if comparisons:
        plural = "s" if number > 1 else ""
        yield (
            f"compared with {reference} by two-sided tests at {LEVEL:.0%},"
            f" Holm over {number} comparison{plural}"
        )
    if not all(each.over_seeds for each in comparisons.values()):
        yield (
            "comparisons over examples are of two trained models: they do not cover the spread of seeds,"
            " and another seed may reverse them"
        )


def _join(rows: list[str]) -> str:
    return ", ".join(rows[:NAMED]) + (f" and {len(rows) - NAMED} more" if len(rows) > NAMED else "")


def compare_runs(ours: Sequence[FoundRun], theirs: Sequence[FoundRun], *, part: Part = "test") -> Comparison:
    """Compare the runs of a model with those of the reference on the same task, on a `part` of the data.

    With two seeds or more on both sides: Welch's test over seeds. Else example by example, for one run of
    each, of the same seed if they share one: McNemar's exact test with an interval by the paired bootstrap,
    or, for macro AUROC, the paired bootstrap alone. Raises DataError where the runs are not of the same test
    set and metric, or the predictions cannot be read; there are none of the validation split.
    """
    if not (ours and theirs):
        raise DataError("a comparison needs finished runs on both sides; 'msbench list runs' lists them")
    check_same_test([run.record for run in (*ours, *theirs)])
    first = ours[0].record
    if min(len(ours), len(theirs)) > 1:
        # An accuracy over n examples is a multiple of 1 / n; a few seeds may agree by chance.
        is_accuracy = first.metric == "accuracy" and part == "test"
        step = 1 / first.n_test if is_accuracy and first.n_test else 0.0
        key = get_metric_key(part, first.metric)
        values = ([run.record.metrics[key] for run in side] for side in (ours, theirs))
        return compare_over_seeds(theirs[0].record.model, *values, step=step)
    if part == "validation":
        raise DataError("predictions are of the test split only: train two seeds of both models")
    shared = {run.record.seed for run in ours} & {run.record.seed for run in theirs}
    pair = (
        min((run for run in side if not shared or run.record.seed in shared), key=lambda run: run.record.seed)
        for side in (ours, theirs)
    )
    return _compare_over_examples(*pair)


def compare_over_seeds(
    reference: str, ours: Sequence[float], theirs: Sequence[float], *, step: float = 0.0
) -> Comparison:
    """Compare two models by Welch's test over seeds, two or more on either side; `step` is passed to it."""
    found = welch(ours, theirs, 1 - LEVEL, step=step)
    how = f"Welch over seeds, n = {len(ours)} and {len(theirs)}"
    return Comparison(reference, found, found.p, True, how)


def _compare_over_examples(ours: FoundRun, theirs: FoundRun) -> Comparison:
    test = run_paired_test(theirs, ours)
    seeds = (ours.record.seed, theirs.record.seed)
    which = f"seed {seeds[0]} of each" if seeds[0] == seeds[1] else f"seeds {seeds[0]} and {seeds[1]}"
    name, p = ("paired bootstrap", test.bootstrap.p) if test.mcnemar is None else ("McNemar", test.mcnemar)
    how = f"{name} over {test.n} examples, {which}"
    return Comparison(theirs.record.model, replace(test.bootstrap, p=p), p, False, how)
