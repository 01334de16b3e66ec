"""How long work says where it is: one call per step, from the process that was asked for the work."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is to do."""


def silent(_stage: str, _done: int, _total: int) -> None:
    """Say nothing."""
