"""Processes that train together, started for tests from one that has imported everything already."""

import multiprocessing
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "msbench.cli",
        "msbench.runs.execution",
        "msbench.runs.launchers.distributed",
        "msbench.runs.launchers.local",
    ]
)


def start(
    count: int, work: Callable[..., None], *arguments: Any, environment: Mapping[str, str]
) -> list[ForkServerProcess]:
    """`count` processes that call `work(*arguments)`, each with its rank in the environment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    common |= {
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        **environment,
    }
    processes = []
    for rank in range(count):
        own = common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        process = SERVER.Process(target=_rank, args=(own, work, arguments))
        process.start()
        processes.append(process)
    return processes


def ended(processes: list[ForkServerProcess], within: float = 60.0) -> list[int | None]:
    """Exit codes, None of what had to be killed."""
    for process in processes:
        process.join(within)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
        process.join()
    return codes


def command(words: list[str], output: Path) -> None:
    """The command `msbench`; what it prints goes into files."""
    from msbench.cli import main

    rank = os.environ["RANK"]
    sys.stdout = open(output / f"out-{rank}", "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(output / f"err-{rank}", "w", encoding="utf-8")  # noqa: SIM115
    sys.argv = ["msbench", *words]
    main()


def _rank(environment: dict[str, str], work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ.update(environment)
    import torch

    torch.set_num_threads(1)
    try:
        work(*arguments)
    except Exception:
        traceback.print_exc()
        raise


def until(there: Callable[[], bool]) -> None:
    """Return when it is, within a minute."""
    end = time.monotonic() + 60
    while not there():
        assert time.monotonic() < end, "never came"
        time.sleep(0.02)
