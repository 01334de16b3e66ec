"""The exception hierarchy, with the exit code of each branch.

::

    MsbenchError
    ├── ConfigError        2   an invalid suite, override or command
    │   └── UnknownName    2   an unknown name (suggests the nearest one)
    ├── RunError           3   a run that failed
    │   ├── Diverged       3   a loss or a parameter stopped being finite
    │   ├── OutOfMemory    3   the device had too little memory
    │   ├── Lost           3   another process of a distributed training is gone
    │   ├── CheckpointError 3  a checkpoint that cannot be written or read
    │   ├── DamagedRecord  3   an invalid run.json
    │   └── NotDeterministic 3  the same training gave different results
    ├── GateFailed         4   a cell is below its margin, with evidence
    ├── Undecided          5   nothing was measured for what was requested
    ├── DataError          6   data missing, incomplete or with a wrong digest
    └── Interrupted  130/143   SIGINT or SIGTERM; the same command resumes

Exit code 1 is Python's own for a crash and is not used for anything else.
"""

import difflib
import errno
import signal
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import Literal

# Batch systems send SIGUSR1 ahead of a time limit; a closed terminal sends SIGHUP.
CAUGHT = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP") if hasattr(signal, name)
)
"""Signals on which a run stops."""


class ExitCode(IntEnum):
    """Exit codes of the process; the README documents the same table."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    RUN_FAILED = 3
    GATE_FAILED = 4
    UNDECIDED = 5
    DATA = 6
    INTERRUPTED = 130
    TERMINATED = 143


class MsbenchError(Exception):
    """An error that msbench explains in one message instead of a traceback."""

    exit_code: ExitCode = ExitCode.INTERNAL


class ConfigError(MsbenchError):
    """An invalid suite, override or command."""

    exit_code = ExitCode.USAGE


class UnknownName(ConfigError):
    """An unknown name; the message suggests the nearest one and lists the rest."""

    def __init__(self, kind: str, name: str, known: Iterable[str], where: str = "") -> None:
        names = sorted(known)
        prefix = f"{where}: " if where else ""
        near = suggest_name(name, names)
        listed = f"{' ' if near else '; '}known: {', '.join(names)}"
        super().__init__(f"{prefix}unknown {kind} {name!r}{near}{listed}")


class RunError(MsbenchError):
    """A run that failed; `status` is the status in its record."""

    exit_code = ExitCode.RUN_FAILED
    status: Literal["failed", "diverged", "out-of-memory"] = "failed"


class Diverged(RunError):
    """A loss, gradient or parameter is not finite.

    `step` counts optimiser steps from 1; `name` is the parameter, or ``loss``.
    """

    status = "diverged"

    def __init__(self, step: int, name: str, value: float) -> None:
        super().__init__(f"not finite at step {step}: {name} is {value}")
        self.step = step
        self.name = name
        self.value = value


class OutOfMemory(RunError):
    """The device had too little memory for this run."""

    status = "out-of-memory"


class Lost(RunError):
    """Another process of a distributed training is gone, and with it the shared state."""


class CheckpointError(RunError):
    """A checkpoint that cannot be written or read."""


class DamagedRecord(RunError):
    """A ``run.json`` that is not a valid record."""


class NotDeterministic(RunError):
    """The same training gave different results."""


class GateFailed(MsbenchError):
    """A cell is below its margin, with evidence."""

    exit_code = ExitCode.GATE_FAILED


class Undecided(MsbenchError):
    """Nothing was measured for what was requested."""

    exit_code = ExitCode.UNDECIDED


class DataError(MsbenchError):
    """Data is missing, incomplete or does not match its digest."""

    exit_code = ExitCode.DATA


class Interrupted(MsbenchError):
    """SIGINT, SIGTERM or another stop signal arrived, and the state was saved."""

    status = "interrupted"

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"{signal.Signals(signal_number).name}: saved; the same command resumes")
        self.number = signal_number
        self.exit_code = ExitCode.INTERRUPTED if signal_number == signal.SIGINT else ExitCode.TERMINATED


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error codes for a full disk, quota or limit."""


REFUSED = (
    *(*NO_ROOM, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP),
    *(errno.EIO, errno.ESTALE, errno.ENODEV, errno.EMFILE, errno.ENFILE),
)
"""Error codes for a path that the system does not let a process use."""


DISTRIBUTION = "msssm-bench"
"""Name on the package index, where ``msbench`` is another project's."""


def explain_extra(extra: str) -> str:
    """Return the command that installs an optional extra.

    Examples
    --------
    >>> explain_extra("slurm")
    "pip install 'msssm-bench[slurm]'"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def explain_unwritable(path: Path | str, error: OSError, choice: str) -> str:
    """Return the message for a file that cannot be written; `choice` is the option or variable that moves it.

    Examples
    --------
    >>> explain_unwritable("a.csv", OSError(errno.ENOSPC, "No space left on device"), "--out")
    'a.csv: cannot be written: No space left on device; make room, or choose another --out'
    """
    room = "make room, or " if error.errno in NO_ROOM else ""
    return f"{path}: cannot be written: {error.strerror or error}; {room}choose another {choice}"


def explain_unusable(error: OSError) -> str:
    """Return the message for an unusable path; empty if the error may be a bug in msbench.

    Examples
    --------
    >>> explain_unusable(PermissionError(errno.EACCES, "Permission denied", "/root/results"))
    '/root/results: Permission denied; make it accessible, or choose another path'
    """
    if error.filename is None or error.errno not in REFUSED:
        return ""
    return f"{error.filename}: {error.strerror}; make it accessible, or choose another path"


def explain_lack_of_memory(error: MemoryError | ImportError) -> str:
    """Return the message for a command that has too little memory, if only to load a library; else empty.

    Examples
    --------
    >>> explain_lack_of_memory(ImportError("libtorch.so: failed to map segment from shared object"))[:61]
    'too little memory: libtorch.so: failed to map segment from sh'
    """
    if isinstance(error, ImportError) and "failed to map segment" not in str(error):  # glibc's words
        return ""
    return f"too little memory: {get_first_line(error)}; raise its limit (`ulimit -v`), or free some"


def get_first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or its class name if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return the nearest of `known` as ``; did you mean 'x'?``, or an empty string if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""
