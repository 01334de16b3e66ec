"""Where expectations come from: the paper's tables, or a baseline that was measured once."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from msbench.gate.baseline_file import ANY, Baseline, BaselineEntry
from msbench.gate.expectation import Expectation
from msbench.reporting.tables.judgement import Evidence, Judgement
from msbench.results.store import metric_key
from msbench.runs.suite_gate import DEFAULT_MARGIN, DEFAULT_REASON, GateLayer, GateSettings
from msbench.stats import Pooled


@dataclass(frozen=True)
class Question:
    """A cell that may be judged.

    `reported` is what the paper prints, `scale` the factor from a fraction to its unit, and `metric` what
    records call it.
    """

    suite: str
    task: str
    model: str
    evidence: Evidence
    reported: str
    scale: float
    metric: str


Answer = Expectation | Judgement | None
"""A cell's expectation; the verdict where there is none; None where nothing is asked of the cell."""


class Expectations(Protocol):
    """What cells are held against."""

    def of(self, cell: Question) -> Answer:
        """What one cell is held against."""
        ...


@dataclass(frozen=True)
class PaperExpectations:
    """The paper's numbers: one value a cell, taken as exact, without digest, spread or number of seeds."""

    gate: GateSettings

    def of(self, cell: Question) -> Answer:
        """What the paper prints; cells for which it prints nothing are not asked for."""
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
    """A baseline's numbers. A suite's own margin wins over the one that was written beside them.

    `models` are those that the suite lists: of others that ran nothing is asked. `name` is the file, for
    messages.
    """

    gate: GateSettings
    models: Collection[str]
    baseline: Baseline
    name: str

    def of(self, cell: Question) -> Answer:
        """What the baseline has for the cell's class of hardware."""
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
            metric=metric_key("test", seen.metric),
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
        """The seeds of all models on the task: together they tell a spread that one seed cannot."""
        seen = (classes[kind] for classes in self.baseline.cells[task].values() if kind in classes)
        return tuple(each.values for each in seen if each.metric == like.metric)


@dataclass(frozen=True)
class NoExpectations:
    """Where there is no baseline: every cell is missing, and how to get one is said."""

    suite: str
    models: Collection[str]

    def of(self, cell: Question) -> Answer:
        """The same for every cell of a model that the suite lists."""
        if cell.model not in self.models:
            return None
        how = f"'msbench baseline {self.suite}' writes one from results that are to hold"
        return Judgement("missing", f"there is no baseline of {self.suite}; {how}")


def known_spread(layer: GateLayer) -> Pooled | None:
    """The spread that a suite states."""
    if layer.sd is None or layer.degrees is None:
        return None
    return Pooled(layer.sd, layer.degrees)
