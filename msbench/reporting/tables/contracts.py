"""Protocols for what a table needs of a suite and its planned runs; `Suite` and `RunSpec` satisfy them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msbench.runs.suite_claims import Claim


class Planned(Protocol):
    """The part of a RunSpec that a table needs."""

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
    """The paper's table that a suite corresponds to, and the heading of each task in it."""

    @property
    def table(self) -> str: ...
    @property
    def columns(self) -> Mapping[str, str]: ...


class SuiteFacts(Protocol):
    """The part of a Suite that a table needs."""

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
