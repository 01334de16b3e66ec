"""The caption of a table: contents, protocol, units, seeds and sizes."""

from collections.abc import Iterable, Sequence

from msbench.reporting.tables.cells import UNITS, Column
from msbench.reporting.tables.definitions import TableDefinition
from msbench.reporting.tables.pool import Pool


def caption(definition: TableDefinition, pool: Pool, columns: Sequence[Column], *, reported: bool) -> str:
    """Return the definition's caption, then protocol, units, seeds and the sizes of the test splits."""
    scaled = "" if definition.protocol == "paper" else " down from the paper's, so no test of its numbers"
    units = ", ".join(dict.fromkeys(UNITS[column.unit].words for column in columns))
    measured = _measured(columns, _seeds(pool), more=bool(pool.more))
    parts = [
        " ".join(definition.caption.split()).rstrip("."),
        f"Protocol: {definition.protocol}{scaled}",
        f"Unit: {units}; {'reported is what the paper prints, ' if reported else ''}{measured}",
        _sizes(pool, columns) if definition.part == "test" else "",
    ]
    return "".join(f"{part}. " for part in parts if part).rstrip()


def _seeds(pool: Pool) -> dict[str, int]:
    """Return the number of planned seeds of each suite."""
    return {each.suite.name: len({spec.seed for spec in each.specs}) for each in pool.material}


def _measured(columns: Sequence[Column], seeds: dict[str, int], *, more: bool) -> str:
    if all(column.source == "mixing" for column in columns):
        return "measured is from trained models"
    counts = sorted(set(seeds.values())) or [1]
    if counts == [1]:
        several = ", or the mean ± sample standard deviation of those noted" if more else ""
        return f"measured is one seed{several}"
    over = f"{counts[0]} seeds" if len(counts) == 1 else f"the seeds planned ({_listed(seeds.items())})"
    fewer = f"(k/{counts[0]})" if len(counts) == 1 else "(k/n)"
    also = ", more where noted" if more else ""
    return f"measured is the mean ± sample standard deviation over {over}, fewer where {fewer}{also}"


def _sizes(pool: Pool, columns: Sequence[Column]) -> str:
    results = (column for column in columns if column.source != "mixing")
    places = dict.fromkeys(place for column in results for place in column.places)
    sizes = {place: [record.n_test for record in pool.counted(place) if record.n_test] for place in places}
    several = len({task for _, task in places}) < len(places)
    named = [(f"{s}/{t}" if several else t, found[-1]) for (s, t), found in sizes.items() if found]
    return f"Test examples: {_listed(named)}" if named else ""


def _listed(pairs: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {number}" for name, number in pairs)
