"""Reasons why a process gives up, sent to others as plain values: nothing has to be unpickled."""

import traceback
from collections.abc import Sequence
from typing import Any

from msbench import errors
from msbench.errors import Diverged, Interrupted, MsbenchError, OutOfMemory
from msbench.training.memory import is_out_of_memory


class ElsewhereFailed(Exception):
    """An exception of another process that msbench has no class for; its traceback is a note."""


def described(error: Exception, rank: int) -> dict[str, Any]:
    """Return an exception as plain values."""
    found: dict[str, Any] = {"process": rank, "type": type(error).__name__, "text": str(error)}
    if isinstance(error, Interrupted):
        found["signal"] = error.number
    elif isinstance(error, Diverged):
        found |= {"step": error.step, "name": error.name, "value": repr(error.value)}
    elif is_out_of_memory(error):
        found["type"] = OutOfMemory.__name__
    elif not isinstance(error, MsbenchError):
        found["trace"] = "".join(traceback.format_exception(error))
    return found


def first_of(causes: Sequence[dict[str, Any] | None]) -> Exception:
    """Return the exception of the first process that gave up."""
    cause = next(cause for cause in causes if cause is not None)
    where = f"process {cause['process']}"
    if "signal" in cause:
        return Interrupted(cause["signal"])
    if "step" in cause:
        return Diverged(cause["step"], cause["name"], float(cause["value"]))
    kind = getattr(errors, cause["type"], None)
    if isinstance(kind, type) and issubclass(kind, MsbenchError):
        # Its own __init__ may require more than the text, which is complete already.
        known = kind.__new__(kind)
        Exception.__init__(known, f"{where}: {cause['text']}")
        return known
    failed = ElsewhereFailed(f"{where}: {cause['type']}: {cause['text']}")
    failed.add_note(cause.get("trace", ""))
    return failed
