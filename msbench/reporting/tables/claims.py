"""Verdicts on claims: is a row above or below the base row as in the paper? Rules: docs/statistics.md."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from msbench.reporting.tables.cells import UNITS, Cell, ClaimStanding, ClaimVerdict, Row, Table
from msbench.reporting.tables.significance import LEVEL, Comparison, over_seeds
from msbench.reporting.tables.versus import Place, Versus, compare_table, summary, with_comparisons
from msbench.results.mixing_documents import find_comparable, read_distances
from msbench.results.reported import ReportedCell
from msbench.runs.suite_claims import Claim
from msbench.stats import holm

Order = Mapping[tuple[str, str], float]
"""The paper's values of a column, by group and row."""


def standings(table: Table, claim: Claim, reported: Iterable[ReportedCell], results: Path) -> Table:
    """Return the table of a claim with `Cell.standing` wherever a row is comparable with the base row.

    Means are compared as by ``--versus``, mixing distances by Welch's test over seeds; Holm's correction is
    over the table.
    """
    printed = {
        (cell.group, cell.row): float(cell.value)
        for cell in reported
        if cell.table == claim.table and cell.column == claim.column and cell.value
    }
    compare = _compare_distances if claim.measure == "mixing" else compare_table
    versus = compare(table, results, claim.base)
    base = next((row for row in table.rows if row.model == claim.base), None)
    theirs = printed.get((base.group, base.name)) if base else None
    rows = [
        replace(row, cells=(_standing(row, printed, theirs, versus, at, table),))
        for at, row in enumerate(table.rows)
    ]
    return with_comparisons(replace(table, rows=tuple(rows), base=claim.base), versus)


def _standing(row: Row, printed: Order, base: float | None, versus: Versus, at: int, table: Table) -> Cell:
    (cell,) = row.cells
    compared, value = versus.comparisons.get((at, 0)), printed.get((row.group, row.name))
    if compared is None or value is None or base is None or value == base:
        return cell
    higher = value > base
    scale = UNITS[table.columns[0].unit].scale
    found, low, high = (_signed(scale * x) for x in (compared.difference, compared.low, compared.high))
    reason = (
        f"the paper has it {'above' if higher else 'below'} {versus.reference};"
        f" here the difference is {found} ({low} to {high}): {compared.mark}"
    )
    return replace(cell, standing=ClaimStanding(_verdict(compared, higher=higher), reason))


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


def _verdict(compared: Comparison, *, higher: bool) -> ClaimVerdict:
    # A single seed distinguishes two trained models, but does not test a claim on two methods.
    if compared.p_holm >= LEVEL or not compared.over_seeds:
        return "undecided"
    return "agrees" if (compared.difference > 0) == higher else "contradicts"


def _compare_distances(table: Table, results: Path, reference: str) -> Versus:
    """Compare mean mixing distances of two seeds or more on both sides, by Welch's test over seeds."""
    means = [_distances(row, table, results) for row in table.rows]
    theirs = next(
        (found for row, found in zip(table.rows, means, strict=True) if row.model == reference and found),
        None,
    )
    if theirs is None:
        return Versus(reference, {}, (f"no measured {reference} in this table: nothing is compared with it",))
    found: dict[Place, Comparison] = {
        (at, 0): replace(over_seeds((row.model, reference), means[at], theirs), words=("larger", "smaller"))
        for at, row in enumerate(table.rows)
        if row.model != reference and min(len(means[at]), len(theirs)) > 1
    }
    adjusted = holm({place: each.p for place, each in found.items()})
    comparisons = {place: replace(each, p_holm=adjusted[place]) for place, each in found.items()}
    return Versus(reference, comparisons, summary(comparisons, len(adjusted)))


def _distances(row: Row, table: Table, results: Path) -> list[float]:
    """Return the mean mixing distance of each run behind a row; its cells use only runs that have one."""
    (column,), (cell,) = table.columns, row.cells
    folders = (results / column.suite / column.task / row.model / identity for identity in cell.run_ids)
    measured = (find_comparable(read_distances(folder)[0]) for folder in folders)
    return [each.mean for each in measured if each is not None and each.mean is not None]
