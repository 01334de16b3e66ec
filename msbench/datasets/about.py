"""Description of a dataset: its content, its licence and its source."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import DataConfig

GENERATED = "that of msbench itself, which made these data"
"""The licence of generated data, which have no source."""


@dataclass(frozen=True)
class About:
    """Description of published data for users who have to get them: content, source, and command to run.

    `licence` is written into every manifest too; where none is stated it says so.
    """

    what: str
    licence: str
    where: str

    def __str__(self) -> str:
        """Return three lines, or more where a field has several."""
        named = {"what:": self.what, "licence:": self.licence, "where:": self.where}
        return "\n".join(f"  {name:<8} {text}".replace("\n", "\n" + " " * 11) for name, text in named.items())


def setup_command(config: DataConfig, bring: str = "", views: Iterable[str] = ()) -> str:
    """Return the shell command that sets up this config, or another that differs in `views` alone.

    `bring` names the argument of --from, such as PATH; it is empty where nothing has to be imported.
    """
    from msbench.config import (
        differences as changes,  # with PyYAML, which stays out of the worker processes too
    )

    # `source` is given by --from, or by its absence
    values = config.model_dump(mode="json", exclude={"dataset", "source", *views}, exclude_defaults=True)
    sets = (f" --set {shlex.quote(f'data.{key}={changes.spelled(value)}')}" for key, value in values.items())
    return "".join((f"msbench setup {config.dataset}", f" --from {bring}" if bring else "", *sets))
