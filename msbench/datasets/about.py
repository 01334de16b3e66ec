"""What a dataset is, under which licence it stands, and where it is to be had."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import DataConfig

GENERATED = "that of msbench itself, which made these data"
"""The licence of data that were read from nowhere."""


@dataclass(frozen=True)
class About:
    """Of published data, in words for who has to bring them: what, and where it is and what to run then.

    `licence` stands in every manifest too; where none is stated it says so.
    """

    what: str
    licence: str
    where: str

    def __str__(self) -> str:
        """Three lines, or more where one of them is a few."""
        named = {"what:": self.what, "licence:": self.licence, "where:": self.where}
        return "\n".join(f"  {name:<8} {text}".replace("\n", "\n" + " " * 11) for name, text in named.items())


def setup_command(config: DataConfig, bring: str = "", views: Iterable[str] = ()) -> str:
    """What sets up this config, or another that differs in `views` alone, as a shell takes it.

    `bring` names what has to be brought, such as PATH; where nothing has to be it is empty.
    """
    from msbench.config import (
        differences as changes,  # with PyYAML, which stays out of the worker processes too
    )

    # Of `source` it is told by --from, or by its absence
    values = config.model_dump(mode="json", exclude={"dataset", "source", *views}, exclude_defaults=True)
    sets = (f" --set {shlex.quote(f'data.{key}={changes.spelled(value)}')}" for key, value in values.items())
    return "".join((f"msbench setup {config.dataset}", f" --from {bring}" if bring else "", *sets))
