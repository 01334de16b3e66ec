"""Expected results of cells, from the paper or a baseline. Rates are fractions throughout."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from msbench.gate.baseline_file import ANY, Baseline, BaselineEntry, explain_rate
from msbench.reporting.tables.cells import UNITS, Cell, Column, Evidence, Judgement
from msbench.results.record import get_metric_key
from msbench.runs.suite import Suite
from msbench.runs.suite_file import (
    DEFAULT_MARGIN,
    DEFAULT_REASON,
    ExpectedFailure,
    GateSettings,
    check_margin,
)
from msbench.stats.summary import Pooled


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """One cell's expected mean, and how far below it a result may be.

    `source` names it in messages. It is a mean over `n` seeds; with 0 it is taken as exact, like a printed
    number. `groups` are the raw results of seeds, one group per model, for the spread between seeds; `known`
    is a spread from elsewhere, used if they show none. An empty `data_digest` or absent `n_test` is unknown
    and not compared. `other_data` explains why a result on other data may count.
    """

    mean: float
    metric: str
    source: str
    n: int = 0
    n_test: int | None = None
    data_digest: str = ""
    margin: float = DEFAULT_MARGIN
    reason: str = DEFAULT_REASON
    groups: tuple[tuple[float, ...], ...] = ()
    known: Pooled | None = None
    other_data: str = ""
    xfail: ExpectedFailure | None = None

    @property
    def bound(self) -> float:
        """Return the lower bound for the mean."""
        return self.mean - self.margin


Answer = Expectation | Judgement | None
"""A cell's expectation; a verdict if there is none; None if nothing is expected of the cell."""
FindExpectation = Callable[[Column, str, Cell], Answer]
"""A function of the column, the model and the cell."""


def expect_paper(suite: Suite, column: Column, model: str, cell: Cell) -> Answer:
    """Return the paper's number, exact and without digest, spread or seeds.

    None for cells without one, and for those that the suite does not list: their settings are nobody's.
    """
    if not cell.reported or (column.task, model) not in suite.cells:
        return None
    unit = UNITS[column.unit]
    expected = Expectation(mean=float(cell.reported) / unit.scale, metric=unit.metric, source="the paper's")
    return _apply_settings(expected, suite.gate, column.task, model)


def expect_baseline(
    baseline: Baseline | None, file: str, suite: Suite, column: Column, model: str, cell: Cell
) -> Answer:
    """Return the baseline's entry for the cell's hardware; None for cells that the suite does not list.

    `file` names the baseline in messages. Without a `baseline`, every cell is missing. A suite's own margin
    overrides the one written with an entry.
    """
    if (column.task, model) not in suite.cells or cell.evidence is None:
        return None
    remedy = f"'msbench baseline {suite.name}' writes one from the present results"
    if baseline is None:
        return Judgement("missing", f"there is no baseline of {suite.name}; {remedy}")
    models = baseline.cells.get(column.task, {})
    entries = models.get(model, {})
    if not entries:
        return Judgement("missing", f"{file} has no expectation for it; {remedy}")
    hardware = cell.evidence.hardware
    kind = hardware if hardware in entries else ANY
    if not cell.evidence.values:
        kind = next(iter(entries))
    if kind in entries:
        return _apply_settings(_expect_entry(models, model, kind), suite.gate, column.task, model)
    measured = f"on {hardware}" if hardware else "on several kinds of hardware together"
    known = ", ".join(entries)
    return Judgement("missing", f"measured {measured}; {file} has {known}, and no '{ANY}'; {remedy}")


def _expect_entry(
    models: Mapping[str, Mapping[str, BaselineEntry]], model: str, hardware: str
) -> Expectation:
    """Return the expectation of one entry among those of its task, by model and class of hardware."""
    entry = models[model][hardware]
    # The seeds of all models on the task together show a spread that one seed cannot.
    others = (entries[hardware] for entries in models.values() if hardware in entries)
    return Expectation(
        mean=entry.mean,
        metric=get_metric_key("test", entry.metric),
        source=f"the baseline's ({entry.n} seed{'' if entry.n == 1 else 's'}, {hardware})",
        n=entry.n,
        n_test=entry.n_test,
        data_digest=entry.data,
        margin=entry.margin,
        reason=entry.reason,
        groups=tuple(other.values for other in others if other.metric == entry.metric),
    )


def _apply_settings(expected: Expectation, gate: GateSettings, task: str, model: str) -> Expectation:
    """Return the expectation with what the suite states for the cell."""
    layer = gate.for_cell(task, model)
    return replace(
        expected,
        margin=expected.margin if layer.margin is None else layer.margin,
        reason=layer.reason or expected.reason,
        known=None if layer.sd is None or layer.degrees is None else Pooled(layer.sd, layer.degrees),
        other_data=layer.other_data or "",
        xfail=gate.expected_failure(task, model),
    )


def find_faults(evidence: Evidence, expectation: Expectation) -> Iterator[str]:
    """Yield reasons for which these two cannot be compared; none if they can."""
    if problem := explain_rate(expectation.mean):
        yield f"expected {expectation.mean:g}: {problem}"
    try:
        check_margin(expectation.margin)
    except ValueError as error:
        yield f"margin {error}"
    if expectation.n_test is not None and expectation.n_test < 1:
        yield f"expected on {expectation.n_test} test examples"
    for value in evidence.values:
        if problem := explain_rate(value):
            yield f"measured {value:g}: {problem}"
    if len(evidence.values) != len(evidence.seeds):
        yield f"{len(evidence.values)} results of {len(evidence.seeds)} seeds"
    if len(set(evidence.seeds)) < len(evidence.seeds):
        yield f"a seed counts twice: {', '.join(map(str, evidence.seeds))}"
    if evidence.metric != expectation.metric:
        yield f"measured is {evidence.metric}, expected is {expectation.metric}"
    if evidence.n_test is None:
        yield "measured on an unknown number of test examples, or on several numbers of them"
    elif evidence.n_test < 1:
        yield f"measured on {evidence.n_test} test examples"
    sizes = {evidence.n_test, expectation.n_test} - {None}
    if evidence.data_digest == expectation.data_digest and len(sizes) > 1:
        counts = f"{evidence.n_test} test examples, expected on {expectation.n_test}"
        yield f"measured on {counts} of the same data"
    if problem := explain_bound(expectation.mean, expectation.margin, evidence.chance):
        yield problem


def explain_bound(mean: float, margin: float, chance: float | None) -> str:
    """Return why ``mean - margin`` demands nothing; empty if a model must have learned to reach it.

    Examples
    --------
    >>> explain_bound(0.55, 0.1, chance=0.5)
    'expected 55.00% - 10.00% is not above chance (50.00%): anything would pass; a smaller margin can fail'
    """
    if not (math.isfinite(mean) and math.isfinite(margin)):
        return ""  # a fault of its own
    lowest = chance or 0.0
    if mean - margin > lowest:
        return ""
    name = "chance" if lowest else "nothing"
    bound = f"expected {mean:.2%} - {margin:.2%} is not above {name} ({lowest:.2%})"
    hint = "is it a percentage of a percentage?" if mean <= lowest else "a smaller margin can fail"
    return f"{bound}: anything would pass; {hint}"
