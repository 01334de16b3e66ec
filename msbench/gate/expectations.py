"""Sources of expectations: the paper's tables, or a recorded baseline."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from msbench.gate.baseline_file import ANY, Baseline, BaselineEntry
from msbench.gate.expectation import Expectation
from msbench.reporting.tables.cells import Evidence, Judgement
from msbench.results.record import get_metric_key
from msbench.runs.suite_gate import DEFAULT_MARGIN, DEFAULT_REASON, GateLayer, GateSettings
from msbench.stats import Pooled


@dataclass(frozen=True)
class Question:
    """A cell that may be judged.

    `reported` is the paper's number, `scale` the factor from a fraction to its unit, and `metric` its name in
    records.
    """

    suite: str
    task: str
    model: str
    evidence: Evidence
    reported: str
    scale: float
    metric: str


Answer = Expectation | Judgement | None
"""A cell's expectation; a verdict if there is none; None if nothing is expected of the cell."""


class Expectations(Protocol):
    """Expectations for cells."""

    def of(self, cell: Question) -> Answer:
        """Return the expectation for one cell."""
        ...


@dataclass(frozen=True)
class PaperExpectations:
    """The paper's numbers: one value per cell, taken as exact, without digest, spread or number of seeds."""

    gate: GateSettings

    def of(self, cell: Question) -> Answer:
        """Return the paper's number; None for cells without one."""
        if not cell.reported:
            return None
        layer = self.gate.of(cell.task, cell.model)
        return Expectation(
            mean=float(cell.reported) / cell.scale,
            metric=cell.metric,
            source="the paper's",
            margin=DEFAULT_MARGIN if layer.margin is None else layer.margin,
            reason=layer.reason or DEFAULT_REASON,
            known=known_spread(layer),
            other_data=layer.other_data or "",
            xfail=self.gate.expected_failure(cell.task, cell.model),
        )


@dataclass(frozen=True)
class BaselineExpectations:
    """A baseline's numbers. A suite's own margin overrides the one written with them.

    `models` are those that the suite lists: nothing is expected of others. `name` is the file, for messages.
    """

    gate: GateSettings
    models: Collection[str]
    baseline: Baseline
    name: str

    def of(self, cell: Question) -> Answer:
        """Return the baseline's entry for the cell's class of hardware."""
        task, model, evidence = cell.task, cell.model, cell.evidence
        if model not in self.models:
            return None
        classes = self.baseline.cells.get(task, {}).get(model, {})
        again = f"'msbench baseline {self.baseline.suite}' writes one from results"
        if not classes:
            return Judgement("missing", f"{self.name} has no expectation for it; {again}")
        if not evidence.values:
            return self._expected(task, model, next(iter(classes)), classes)
        kind = evidence.hardware if evidence.hardware in classes else ANY
        if kind in classes:
            return self._expected(task, model, kind, classes)
        on = f"on {evidence.hardware}" if evidence.hardware else "on several kinds of hardware together"
        listed = ", ".join(classes)
        return Judgement("missing", f"measured {on}; {self.name} has {listed}, and no '{ANY}'; {again}")

    def _expected(
        self, task: str, model: str, kind: str, classes: Mapping[str, BaselineEntry]
    ) -> Expectation:
        seen, layer = classes[kind], self.gate.of(task, model)
        return Expectation(
            mean=seen.mean,
            metric=get_metric_key("test", seen.metric),
            source=f"the baseline's ({seen.n} seed{'' if seen.n == 1 else 's'}, {kind})",
            n=seen.n,
            n_test=seen.n_test,
            data_digest=seen.data,
            margin=seen.margin if layer.margin is None else layer.margin,
            reason=layer.reason or seen.reason,
            groups=self._groups(task, kind, seen),
            known=known_spread(layer),
            other_data=layer.other_data or "",
            xfail=self.gate.expected_failure(task, model),
        )

    def _groups(self, task: str, kind: str, like: BaselineEntry) -> tuple[tuple[float, ...], ...]:
        """Return the seeds of all models on the task: together they show a spread that one seed cannot."""
        seen = (classes[kind] for classes in self.baseline.cells[task].values() if kind in classes)
        return tuple(each.values for each in seen if each.metric == like.metric)


@dataclass(frozen=True)
class NoExpectations:
    """The absence of a baseline: every cell is missing, with a message on how to create one."""

    suite: str
    models: Collection[str]

    def of(self, cell: Question) -> Answer:
        """Return the same verdict for every cell of a model that the suite lists."""
        if cell.model not in self.models:
            return None
        how = f"'msbench baseline {self.suite}' writes one from results that are to hold"
        return Judgement("missing", f"there is no baseline of {self.suite}; {how}")


def known_spread(layer: GateLayer) -> Pooled | None:
    """Return the spread that a suite states."""
    if layer.sd is None or layer.degrees is None:
        return None
    return Pooled(layer.sd, layer.degrees)
