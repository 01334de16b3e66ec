"""Progress reports of long work: one call per step, in the process that was asked for the work."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Callback with the current step, the amount done and the total."""


def silent(_stage: str, _done: int, _total: int) -> None:
    """Ignore the report."""
