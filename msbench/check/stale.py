"""Results of other source code than what is here: a verdict on them says nothing of the code that is."""

from collections.abc import Iterable

from msbench import agenda
from msbench.again import resolved
from msbench.errors import ConfigError
from msbench.report import Report, Table
from msbench.store import RunRecord


def stale(report: Report, table: Table) -> tuple[str, ...]:
    """A line for each task and model whose runs are of other source than what is here."""
    found: dict[str, None] = {}
    for row in table.rows:
        for number, column in enumerate(table.columns):
            runs = report.behind(table, row, number) if column.source == "run" else ()
            if any(_other_source(record) for record in _one_a_source(runs)):
                (suite, task) = column.places[0]
                again = f"msbench run {suite} --model {row.model} --task {task}"
                found[
                    f"{task} · {row.model}: its runs are of other source code than what is here; '{again}'"
                    " trains it with this one"
                ] = None
    return tuple(found)


def _one_a_source(runs: Iterable[RunRecord]) -> Iterable[RunRecord]:
    return {record.source_digest: record for record in runs}.values()


def _other_source(record: RunRecord) -> bool:
    try:
        spec = resolved(record)
    except ConfigError:  # its settings are not understood any more: they are of another version, too
        return True
    return agenda.identify(spec, record.data_digest).source_digest != record.source_digest
