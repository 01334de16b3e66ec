"""The receiver of reports on runs in parallel, which the terminal's bar extends."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from msbench.config import RunSpec
from msbench.console import say

if TYPE_CHECKING:  # durations need torch, and plans are shown without
    from msbench.runs.duration import Campaign


class PoolProgress:
    """Receiver of reports on runs in parallel, and a context around them; this one prints lines.

    One that is `live` draws at a terminal: what processes print there would spoil it.
    """

    live = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def note(self, text: str) -> None:
        """Receive a message of one line."""
        say(text)

    def move(self, campaign: "Campaign", training: Sequence[RunSpec]) -> None:
        """Receive, again and again, the state of all runs and which of them are in progress."""
