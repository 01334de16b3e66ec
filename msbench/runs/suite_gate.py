"""The key ``gate`` of a suite: the margin by which a result may be below the expected one, and its reason.

::

    gate:
      margin: 0.03                # a fraction: three points
      reason: "four standard deviations of seeds 0 to 9"
      tasks: {image: {margin: 0.01, reason: "..."}}
      xfail:
        - {task: image, model: s4, reason: "...", link: "https://..."}

Settings of a model win over those of a task, and these over the common ones.
"""

from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from msbench.config.base import Config, PositiveInt
from msbench.config.run import Label
from msbench.errors import suggest_name

DEFAULT_MARGIN = 0.01
"""One point, if a suite sets none: what the field calls a difference, whether or not seeds can show it."""
DEFAULT_REASON = "the default, as the suite gives no margin"
WIDEST_MARGIN = 0.2


def checked_margin(value: float) -> float:
    """Return `value` if it is a valid margin: above 0, and at most 20 points; else raise ValueError."""
    if not 0 < value <= WIDEST_MARGIN:
        raise ValueError(
            f"must be a fraction above 0 and up to {WIDEST_MARGIN}, where 0.01 is one point, not {value:g}"
        )
    return value


Margin = Annotated[float, AfterValidator(checked_margin)]
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

    def names(self) -> list[tuple[str, str, str]]:
        """Return key, kind and name of every task and model that is mentioned."""
        named = [("tasks", "task", task) for task in self.tasks]
        named += [("models", "model", model) for model in self.models]
        for index, cell in enumerate(self.xfail):
            named += [
                (f"xfail.{index}.task", "task", cell.task),
                (f"xfail.{index}.model", "model", cell.model),
            ]
        return named

    def of(self, task: str, model: str) -> GateLayer:
        """Return the settings of one cell."""
        layers = (self, self.tasks.get(task), self.models.get(model))
        said = {name: value for layer in layers if layer for name, value in _said(layer).items()}
        return GateLayer.model_validate(said)

    def expected_failure(self, task: str, model: str) -> ExpectedFailure | None:
        """Return the mark of a cell that is known to fail, else None."""
        return next((cell for cell in self.xfail if (cell.task, cell.model) == (task, model)), None)


def check_names(gate: GateSettings, tasks: Iterable[str], models: Iterable[str]) -> None:
    """Raise ValueError if the gate names a task or model that the suite does not have."""
    known = {"task": set(tasks), "model": set(models)}
    for key, kind, name in gate.names():
        if name not in known[kind]:
            near = suggest_name(name, known[kind])
            raise ValueError(f"gate.{key}: the suite has no {kind} {name!r}{near}")


def _said(layer: GateLayer) -> dict[str, object]:
    return {name: value for name in GateLayer.model_fields if (value := getattr(layer, name)) is not None}
