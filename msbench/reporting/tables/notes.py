"""The caption of a table, and the notes on the whole of it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msbench.reporting.tables.cells import UNITS, Column, Row
from msbench.reporting.tables.definitions import TableDefinition
from msbench.reporting.tables.selection import RunPool
from msbench.results.record import RunRecord
from msbench.results.reported import ReportedCell
from msbench.runs.suite import Suite

PROTOCOLS = {
    "paper": "paper",
    "scaled": "scaled down from the paper's, so no test of its numbers",
    "own": "its own, not the paper's",
}


def write_caption(
    definition: TableDefinition, pool: RunPool, columns: Sequence[Column], *, reported: bool
) -> str:
    """Return the definition's caption, then protocol, units, seeds and the sizes of the test splits."""
    units = ", ".join(dict.fromkeys(UNITS[column.unit].words for column in columns))
    parts = [
        " ".join(definition.caption.split()).rstrip("."),
        f"Protocol: {PROTOCOLS[definition.protocol]}",
        f"Unit: {units}; {'reported is what the paper prints, ' if reported else ''}"
        f"{_describe_measured(pool, columns)}",
        _describe_sizes(pool, columns) if definition.part == "test" else "",
    ]
    return "".join(f"{part}. " for part in parts if part).rstrip()


def _describe_measured(pool: RunPool, columns: Sequence[Column]) -> str:
    if all(column.source == "mixing" for column in columns):
        return "measured is from trained models"
    seeds = {each.suite.name: len({spec.seed for spec in each.specs}) for each in pool.material}
    counts = sorted(set(seeds.values())) or [1]
    if counts == [1]:
        several = ", or the mean ± sample standard deviation of those noted" if pool.more else ""
        return f"measured is one seed{several}"
    over = f"{counts[0]} seeds" if len(counts) == 1 else f"the seeds planned ({_join(seeds.items())})"
    fewer = f"(k/{counts[0]})" if len(counts) == 1 else "(k/n)"
    also = ", more where noted" if pool.more else ""
    return f"measured is the mean ± sample standard deviation over {over}, fewer where {fewer}{also}"


def _describe_sizes(pool: RunPool, columns: Sequence[Column]) -> str:
    results = (column for column in columns if column.source != "mixing")
    places = dict.fromkeys(place for column in results for place in column.places)
    sizes = {place: [record.n_test for record in pool.list_runs(place) if record.n_test] for place in places}
    several = len({task for _, task in places}) < len(places)
    named = [(f"{s}/{t}" if several else t, found[-1]) for (s, t), found in sizes.items() if found]
    return f"Test examples: {_join(named)}" if named else ""


def _join(pairs: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {number}" for name, number in pairs)


def note_more_seeds(pool: RunPool, columns: Sequence[Column], models: Iterable[str]) -> Iterator[str]:
    """Yield a note on seeds beyond the plan, which follow the protocol and count."""
    places = list(dict.fromkeys(place for column in columns for place in column.places))
    counted = [
        f"{model} {pool.count_planned(place, model)} ({place[1]})"
        for model in models
        for place in places
        if pool.more.get((*place, model))
    ]
    if counted:
        yield f"seeds beyond the plan count too; in all: {', '.join(counted)}"


def note_unlisted_models(pool: RunPool, models: Sequence[str]) -> Iterator[str]:
    """Yield a note for each suite that does not list some of these models, and has planned runs of them."""
    ran = [place for place, records in pool.planned.items() if records]
    for each in pool.material:
        name = each.suite.name
        unlisted = {
            model: [
                task
                for suite, task, m in ran
                if (suite, m) == (name, model) and (task, m) not in each.suite.cells
            ]
            for model in models
        }
        if named := [_name_cells(each.suite, *found) for found in unlisted.items() if found[1]]:
            yield (
                f"not listed by suite {name}, run with its settings for all models or for their family, and"
                f" so neither best nor judged: {', '.join(named)}"
            )


def _name_cells(suite: Suite, model: str, tasks: Sequence[str]) -> str:
    """Return a model's name, with the tasks if the suite lists it for others."""
    return f"{model} ({', '.join(tasks)})" if model in suite.models else model


def note_own_settings(pool: RunPool, columns: Sequence[Column], rows: Iterable[Row]) -> Iterator[str]:
    """Yield one note on the rows whose settings are not those of the row's source, which publishes none."""
    own = {(each.suite.name, *cell) for each in pool.material for cell in each.suite.own_settings}
    places = {place: column for column in columns if column.source != "average" for place in column.places}
    names = []
    for row in rows:
        listed = [column for place, column in places.items() if (*place, row.model) in pool.plan]
        ours = [column.label for place, column in places.items() if (*place, row.model) in own]
        if ours:
            names.append(row.name if len(ours) == len(listed) else f"{row.name} ({', '.join(ours)})")
    if names:
        yield (
            "settings are msbench's own, as the source of the row publishes none:"
            f" {', '.join(dict.fromkeys(names))}"
        )


def note_unlike_hardware(pool: RunPool, columns: Sequence[Column], models: Sequence[str]) -> Iterator[str]:
    """Yield a note for each column whose runs used different hardware or precision, which changes numbers."""
    for column in columns:
        groups: dict[str, set[str]] = defaultdict(set)
        for place in column.places if column.source == "run" else ():
            for model in models:
                for record in pool.select(place, model).finished:
                    groups[describe_hardware(record)].add(record.model)
        groups.pop("", None)
        if len(groups) > 1:
            listed = "; ".join(f"{name}: {', '.join(sorted(of))}" for name, of in sorted(groups.items()))
            yield (
                f"not all runs of {column.label} used the same hardware and precision, which changes digits"
                f" by itself: {listed}"
            )


def describe_hardware(record: RunRecord) -> str:
    """Return the class of device, on a GPU with its precision; empty where the record lacks it."""
    found = record.environment
    if not record.hardware or found.get("device") != "cuda":
        return record.hardware
    cudnn = found.get("cudnn")
    # Earlier records have TF32 for matrix products only; PyTorch's default for cuDNN was on.
    in_cudnn = cudnn.get("tf32") is True if isinstance(cudnn, dict) else True
    places = [
        name for name, on in (("products", found.get("tf32") is True), ("convolutions", in_cudnn)) if on
    ]
    tf32 = f" with TF32 in {' and '.join(places)}" if places else " without TF32"
    return f"{record.hardware}{tf32}{', deterministic' if found.get('deterministic') is True else ''}"


def note_modified_runs(pool: RunPool, definition: TableDefinition) -> Iterator[str]:
    """Yield a note on the runs of each suite that are not shown, as they differ from the plan."""
    for suite in definition.suites:
        count = sum(len(runs) for key, runs in pool.modified.items() if key[0] == suite)
        if count:
            yield (
                f"{format_run_count(count)} of suite {suite} with another spec than the planned one not"
                f" shown; 'msbench report {definition.id} --modified' lists them"
            )


def note_left_columns(columns: Sequence[Column], printed: Iterable[ReportedCell]) -> Iterator[str]:
    """Yield a note on the columns of the paper's table that this table lacks."""
    shown = {column.label for column in columns}
    left = dict.fromkeys(cell.column for cell in printed if cell.column not in shown)
    if left:
        yield f"columns of the paper's table that are no task of this suite: {', '.join(left)}"


def format_run_count(count: int) -> str:
    """Return text such as ``1 run`` or ``2 runs``."""
    return f"{count} run{'' if count == 1 else 's'}"
