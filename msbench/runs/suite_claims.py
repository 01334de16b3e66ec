"""Claims of a suite of another scale about the paper: the order of a table's rows, not its numbers."""

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field

from msbench.config.base import Config
from msbench.config.run import Label
from msbench.errors import suggest_name


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


def check_claims(claims: Collection[Claim], tasks: Collection[str], models: Collection[str]) -> None:
    """Raise ValueError if a claim names a task or model that the suite does not have, or a table twice."""
    for claim in claims:
        if claim.task not in tasks:
            raise ValueError(f"claims: no task {claim.task!r}{suggest_name(claim.task, tasks)}")
        for model in (claim.base, *claim.rows.values()):
            if model not in models:
                raise ValueError(f"claims: no model {model!r} in this suite{suggest_name(model, models)}")
    places = [(claim.table, claim.task) for claim in claims]
    if len(set(places)) < len(places):
        raise ValueError("claims: a table stands twice for one task")
