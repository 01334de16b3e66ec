"""Rows for runs whose spec differs from the planned one."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from msbench.reporting.tables.cells import MODIFIED_GROUP, MODIFIED_MARK, Cell, Column, Place, Row
from msbench.reporting.tables.collect import difference, newest, outcome
from msbench.reporting.tables.contracts import Planned
from msbench.reporting.tables.measure import measure
from msbench.reporting.tables.pool import Pool
from msbench.results.record import RunRecord


def modified_rows(pool: Pool, columns: Sequence[Column], notes: list[str]) -> list[Row]:
    """Return a row for every model and every way in which its runs differ from the plan."""
    groups: dict[tuple[str, str], dict[Place, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
    for (suite, task, model), records in pool.modified.items():
        for record in records:
            label = difference(record, _nearest(pool, record))
            groups[model, label][suite, task].append(record)
    return [
        Row(
            f"{model} {MODIFIED_MARK} {label}",
            MODIFIED_GROUP,
            model,
            tuple(_cell(pool, column, places, notes) for column in columns),
            label,
        )
        for (model, label), places in sorted(groups.items())
    ]


def _nearest(pool: Pool, record: RunRecord) -> Planned | None:
    """Return the planned spec that a modified run is compared with: that of its seed, else the first."""
    specs = pool.plan.get((record.suite, record.task, record.model), [])
    return next((spec for spec in specs if spec.seed == record.seed), specs[0] if specs else None)


def _cell(pool: Pool, column: Column, places: dict[Place, list[RunRecord]], notes: list[str]) -> Cell:
    """Return the cell of these runs; averages and mixing distances are of planned runs only."""
    records = places.get(column.places[0], []) if column.source == "run" else []
    if not records:
        return Cell()
    digest = newest(records).data_digest
    cell = measure(column, outcome(records, digest), len({record.seed for record in records}), notes)
    place = column.places[0]
    planned = {found for key, found in pool.data.items() if key[:2] == place and found}
    if not planned or digest in planned:
        return cell
    return replace(cell, marks=(*cell.marks, "measured on other data than the planned runs"))
