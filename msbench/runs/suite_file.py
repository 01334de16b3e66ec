"""The keys of a suite file, and the checks that need no model or dataset."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from msbench.config.base import Config, Seed
from msbench.config.run import Label
from msbench.errors import suggest_name
from msbench.runs.suite_claims import Claim, check_claims
from msbench.runs.suite_gate import GateSettings, check_names


def _distinct(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"a seed is repeated: {', '.join(map(str, seeds))}")
    return seeds


class Reported(Config):
    """The paper's table that has this suite's numbers, and the column of each task."""

    table: Label
    columns: Annotated[dict[str, str], Field(min_length=1)]


class ModelLayer(Config):
    """Settings that a suite changes for one model."""

    model: dict[str, Any] | None = None
    train: dict[str, Any] | None = None


class TaskLayer(ModelLayer):
    """Settings that a suite changes for one task."""

    data: dict[str, Any] | None = None


class SuiteFile(TaskLayer):
    """The keys of a suite file."""

    name: Label
    title: Annotated[str, Field(min_length=1)]
    protocol: Literal["paper", "scaled"]
    caption: str = ""
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1), AfterValidator(_distinct)] = (0,)
    reported: Reported | None = None
    claims: tuple[Claim, ...] = ()
    gate: GateSettings | None = None
    tasks: Annotated[dict[Label, TaskLayer | None], Field(min_length=1)]
    models: Annotated[dict[Label, ModelLayer | None], Field(min_length=1)]

    @model_validator(mode="after")
    def _columns_are_tasks(self) -> "SuiteFile":
        for task in self.reported.columns if self.reported else ():
            if task not in self.tasks:
                raise ValueError(f"reported.columns: no task {task!r}{suggest_name(task, self.tasks)}")
        return self

    @model_validator(mode="after")
    def _claims_speak_of_what_there_is(self) -> "SuiteFile":
        check_claims(self.claims, self.tasks, self.models)
        return self

    @model_validator(mode="after")
    def _gate_speaks_of_what_there_is(self) -> "SuiteFile":
        if self.gate is not None:
            check_names(self.gate, self.tasks, self.models)
        return self

    @model_validator(mode="after")
    def _reported_has_the_papers_protocol(self) -> "SuiteFile":
        if self.reported and self.protocol != "paper":
            raise ValueError(
                f"reported: protocol {self.protocol!r} never stands beside the paper's numbers; put its rows"
                " under claims, where only their order is told"
            )
        return self
