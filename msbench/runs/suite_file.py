"""The keys of a suite file, and the checks that need no model or dataset.

::

    gate:
      margin: 0.03                # a fraction: three points
      reason: "four standard deviations of seeds 0 to 9"
      tasks: {image: {margin: 0.01, reason: "..."}}
      xfail:
        - {task: image, model: s4, reason: "...", link: "https://..."}

Settings of the gate for a model win over those for a task, and these over the common ones. The margin is how
far a result may be below the expected one.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from msbench.config.base import Config, PositiveInt, Seed
from msbench.config.run import Label
from msbench.errors import suggest_name

PAPER = "paper"
"""The word for all of the paper's tables, in place of a suite's name."""
DEFAULT_MARGIN = 0.01
"""One point, if a suite sets none: what the field calls a difference, whether or not seeds can show it."""
DEFAULT_REASON = "the default, as the suite gives no margin"
WIDEST_MARGIN = 0.2
MOST_RUNS = 10_000
"""Most runs of a suite: planning them takes seconds, and a megabyte of text could ask for billions."""


def check_margin(value: float) -> float:
    """Return `value` if it is a valid margin: above 0, and at most 20 points; else raise ValueError."""
    if not 0 < value <= WIDEST_MARGIN:
        raise ValueError(
            f"must be a fraction above 0 and up to {WIDEST_MARGIN}, where 0.01 is one point, not {value:g}"
        )
    return value


Margin = Annotated[float, AfterValidator(check_margin)]
Reason = Annotated[str, Field(min_length=1)]


class GateLayer(Config):
    """Settings of the gate for all cells, for a task or for a model.

    `sd` and `degrees` (of freedom) are a spread of seeds that is known from earlier runs, as a fraction.
    `other_data` is the reason why a result on other data than the expected one's may count: both draws of the
    test split are then noise.
    """

    margin: Margin | None = None
    reason: Reason | None = None
    sd: Annotated[float, Field(gt=0, le=0.5)] | None = None
    degrees: PositiveInt | None = None
    other_data: Reason | None = None

    @model_validator(mode="after")
    def _whole(self) -> "GateLayer":
        if (self.margin is None) != (self.reason is None):
            raise ValueError("margin and reason go together: a margin says where it comes from")
        if (self.sd is None) != (self.degrees is None):
            raise ValueError("sd and degrees go together: an sd says how well it is known")
        return self


class ExpectedFailure(Config):
    """A cell that is known to fail: the reason, and a link to the follow-up."""

    task: Label
    model: Label
    reason: Reason
    link: Annotated[str, Field(pattern=r"^https?://\S+$")]


class GateSettings(GateLayer):
    """The key ``gate``."""

    tasks: dict[Label, GateLayer] = Field(default_factory=dict)
    models: dict[Label, GateLayer] = Field(default_factory=dict)
    xfail: tuple[ExpectedFailure, ...] = ()

    def for_cell(self, task: str, model: str) -> GateLayer:
        """Return the settings of one cell."""
        given: dict[str, Any] = {}
        for layer in (self, self.tasks.get(task), self.models.get(model)):
            if layer is not None:
                given |= layer.model_dump(include=set(GateLayer.model_fields), exclude_none=True)
        return GateLayer.model_validate(given)

    def expected_failure(self, task: str, model: str) -> ExpectedFailure | None:
        """Return the mark of a cell that is known to fail, else None."""
        return next((cell for cell in self.xfail if (cell.task, cell.model) == (task, model)), None)


class Claim(Config):
    """A claim that rows of the paper's `table` compare to the row of model `base` as in its `column`.

    They are measured on `task` of the suite: its results, or its mean mixing distances. `rows` names the
    model for rows that several could stand for, or that ``results/reported`` leaves open.
    """

    table: Label
    column: Annotated[str, Field(min_length=1)]
    task: Label
    base: Label
    measure: Literal["run", "mixing"] = "run"
    rows: dict[str, Label] = Field(default_factory=dict)


def _distinct(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"a seed is repeated: {', '.join(map(str, seeds))}")
    return seeds


class PaperColumns(Config):
    """The paper's table that has this suite's numbers, and the column of each task."""

    table: Label
    columns: Annotated[dict[str, str], Field(min_length=1)]


class SettingsLayer(Config):
    """Settings of some runs of a suite, in its three sections."""

    data: dict[str, Any] | None = None
    model: dict[str, Any] | None = None
    train: dict[str, Any] | None = None


class SourcedLayer(SettingsLayer):
    """Settings of a model or family on one task.

    `settings` says where they are from: the ``source`` of the row in the paper's table, or ``ours`` where it
    publishes none.
    """

    settings: Literal["source", "ours"] | None = None

    @model_validator(mode="after")
    def _same_dataset(self) -> Self:
        if named := [key for key in ("dataset", "use") if key in (self.data or {})]:
            raise ValueError(f"{named[0]} is the same for all models of a task; put it under data or tasks")
        return self


class FamilyLayer(SourcedLayer):
    """Settings of all models of a family, on every task and on single ones."""

    tasks: dict[Label, SourcedLayer | None] = Field(default_factory=dict)


class ModelLayer(FamilyLayer):
    """Settings of one model; with `only` it is listed for these tasks alone.

    `use` is where the source of a model of the user's own is, see `msbench.config.own`.
    """

    use: Annotated[str, Field(min_length=1)] | None = None
    only: Annotated[tuple[Label, ...], Field(min_length=1)] | None = None


def _refuse_paper(name: str) -> str:
    if name == PAPER:
        raise ValueError(f"{PAPER!r} stands for the suites of all of the paper's tables; choose another name")
    return name


SuiteProtocol = Literal["paper", "scaled", "own"]
"""The paper's; scaled down from it; or one that has nothing to do with the paper."""


class SuiteFile(SettingsLayer):
    """The keys of a suite file."""

    name: Annotated[Label, AfterValidator(_refuse_paper)]
    title: Annotated[str, Field(min_length=1)]
    protocol: SuiteProtocol
    caption: str = ""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1), AfterValidator(_distinct)] = (0,)
    reported: PaperColumns | None = None
    claims: tuple[Claim, ...] = ()
    gate: GateSettings | None = None
    tasks: Annotated[dict[Label, SettingsLayer | None], Field(min_length=1)]
    families: dict[Label, FamilyLayer | None] = Field(default_factory=dict)
    models: Annotated[dict[Label, ModelLayer | None], Field(min_length=1)]

    @model_validator(mode="after")
    def _agrees(self) -> "SuiteFile":
        for key, task in self._name_tasks():
            if task not in self.tasks:
                raise ValueError(f"{key}: no task {task!r}{suggest_name(task, self.tasks)}")
        for claim in self.claims:
            for model in (claim.base, *claim.rows.values()):
                if model not in self.models:
                    near = suggest_name(model, self.models)
                    raise ValueError(f"claims: no model {model!r} in this suite{near}")
                if claim.task not in self._list_tasks(model):
                    raise ValueError(f"claims: {model} is not listed for {claim.task}")
        for key, kind, name in _names_in_gate(self.gate) if self.gate else ():
            known = self.tasks if kind == "task" else self.models
            if name not in known:
                raise ValueError(f"gate.{key}: the suite has no {kind} {name!r}{suggest_name(name, known)}")
        for index, cell in enumerate(self.gate.xfail if self.gate else ()):
            if cell.task not in self._list_tasks(cell.model):
                raise ValueError(f"gate.xfail.{index}: {cell.model} is not listed for {cell.task}")
        named = [(claim.table, claim.task) for claim in self.claims]
        if len(set(named)) < len(named):
            raise ValueError("claims: a table is claimed twice for one task")
        cells = sum(len(self._list_tasks(model)) for model in self.models)
        if cells * len(self.seeds) > MOST_RUNS:
            raise ValueError(
                f"tasks × models × seeds are {cells * len(self.seeds):,} runs, of at most {MOST_RUNS:,};"
                " split the suite"
            )
        if self.reported and self.protocol != "paper":
            raise ValueError(
                f"reported: numbers of protocol {self.protocol!r} are never shown next to the paper's; put"
                " its rows under claims, which only compare their order"
            )
        return self

    def _list_tasks(self, model: str) -> set[str]:
        """Return the tasks for which a model is listed."""
        layer = self.models[model]
        return set(layer.only if layer and layer.only else self.tasks)

    def _name_tasks(self) -> Iterator[tuple[str, str]]:
        """Yield key and name of every task that the suite mentions outside its list of tasks and its gate."""
        yield from (("reported.columns", task) for task in (self.reported.columns if self.reported else ()))
        yield from (("claims", claim.task) for claim in self.claims)
        for kind, layers in (("families", self.families), ("models", self.models)):
            for name, layer in layers.items():
                yield from ((f"{kind}.{name}.tasks", task) for task in (layer.tasks if layer else ()))
        for name, model in self.models.items():
            yield from ((f"models.{name}.only", task) for task in (model and model.only) or ())


def _names_in_gate(gate: GateSettings) -> Iterator[tuple[str, str, str]]:
    """Yield key, kind and name of every task and model that the gate mentions."""
    yield from (("tasks", "task", task) for task in gate.tasks)
    yield from (("models", "model", model) for model in gate.models)
    for index, cell in enumerate(gate.xfail):
        yield f"xfail.{index}.task", "task", cell.task
        yield f"xfail.{index}.model", "model", cell.model
