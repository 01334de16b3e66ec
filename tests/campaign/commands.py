"""msbench commands in processes of their own, forked from one that has imported everything.

Importing torch takes seconds; a fork of a process that has takes a hundredth of one, is killed as any other,
and ends in the same exit code.
"""

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

IMPORTED = (
    *(
        "msbench.cli",
        "msbench.runs.plan",
        "msbench.runs.setup",
        "msbench.runs.launchers.local",
        "msbench.runs.launchers",
    ),
    *(
        "msbench.runs.execution",
        "msbench.gate.baselines",
        "msbench.reporting.command",
        "msbench.reporting.figures",
    ),
    *(
        "msbench.reporting.render.html",
        "msbench.analysis.mixing.command",
        "msbench.analysis.mixing.table",
    ),
    *(
        "msbench.reporting.compare.show",
        "msbench.reporting.compare.trace",
        "pyarrow.parquet",
        "scipy.stats",
        # Else imported late, when another user may no longer read the library of root.
        "importlib.readers",
        "encodings.utf_8_sig",
    ),
)
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(list(IMPORTED))
Before = Callable[[], object]


@dataclass(frozen=True)
class Ended:
    """How a command ended, the negative number of a signal where one did it, and all that it printed."""

    code: int
    text: str


class Command:
    """A command that has begun."""

    def __init__(self, process: ForkServerProcess, printed: Path) -> None:
        self.process, self._printed = process, printed

    def wait(self, seconds: float = 300) -> Ended:
        """Wait for its end."""
        self.process.join(seconds)
        assert self.process.exitcode is not None, f"no end within {seconds} s: {self._printed.read_text()}"
        text = self._printed.read_text(encoding="utf-8", errors="backslashreplace")
        self._printed.unlink()
        return Ended(self.process.exitcode, text)

    def kill(self) -> Ended:
        """SIGKILL, now."""
        self.process.kill()
        return self.wait()


def start(*words: str | Path, data: Path, before: Before | None = None) -> Command:
    """Begin ``msbench WORDS`` with data in that folder; `before` is called first, in its process."""
    handle, printed = tempfile.mkstemp(prefix="msbench-campaign-")
    os.close(handle)
    environment = {**os.environ, "MSBENCH_DATA": str(data)}
    process = CONTEXT.Process(target=_main, args=([*map(str, words)], printed, environment, before))
    process.start()
    return Command(process, Path(printed))


def run(*words: str | Path, data: Path, before: Before | None = None) -> Ended:
    """The same, to its end."""
    return start(*words, data=data, before=before).wait()


def seconds(*words: str | Path, data: Path) -> float:
    """How long a command takes."""
    began = time.monotonic()
    run(*words, data=data)
    return time.monotonic() - began


def _main(words: list[str], printed: str, environment: Mapping[str, str], before: Before | None) -> None:
    import torch

    from msbench.cli import main

    handle = os.open(printed, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(handle, stream)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    if before is not None:
        before()
    sys.argv = ["msbench", *words]
    main()
