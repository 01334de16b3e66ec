"""What a table needs of a suite and of its planned runs; `Suite` and `RunSpec` have it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msbench.runs.suite_claims import Claim


class Planned(Protocol):
    """What a table needs of a RunSpec."""

    @property
    def task(self) -> str: ...
    @property
    def model_name(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def digest(self) -> str: ...
    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


class ReportedColumns(Protocol):
    """Which table of the paper a suite answers, and under which heading each task stands there."""

    @property
    def table(self) -> str: ...
    @property
    def columns(self) -> Mapping[str, str]: ...


class SuiteFacts(Protocol):
    """What a table needs of a Suite."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def protocol(self) -> str: ...
    @property
    def caption(self) -> str: ...
    @property
    def reported(self) -> ReportedColumns | None: ...
    @property
    def tasks(self) -> Sequence[str]: ...
    @property
    def models(self) -> Sequence[str]: ...
    @property
    def claims(self) -> Sequence[Claim]: ...
