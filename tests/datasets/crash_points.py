"""Fetch, unpack and build, killed before every step; after each kill, look at what is left and go on.

Run as ``python crash_points.py URL DIGEST FOLDER``, a process without threads, so that it can fork. Its
child dies with SIGKILL before its n-th step, for n = 1, 2, ... until it gets to the end; a step is a call of
`progress`, or anything that is done to a file in the folder. Prints before what each child was killed.
"""

import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from msbench.datasets import archive, disk, manifest
from msbench.datasets.dataset import Progress, RaggedTokens, ignore_progress
from msbench.datasets.download import RemoteFile, RetryPolicy, fetch_file

STEPS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")
QUICK = RetryPolicy(timeout=10, pause=0.01, attempts=2)


def fetching(remote: RemoteFile, folder: Path, progress: Progress) -> None:
    fetch_file(remote, folder, progress, QUICK)


def unpacking(remote: RemoteFile, folder: Path, progress: Progress) -> None:
    archive.unpack(folder / remote.name, folder / "unpacked", progress)


def building(remote: RemoteFile, folder: Path, progress: Progress) -> None:
    manifest.build_folder(folder / "dataset", lambda new: fill(folder / remote.name, new, progress), progress)


def fill(path: Path, new: Path, progress: Progress) -> None:
    files = [data for _, data in archive.read_members(path, lambda _name: True, progress)]
    tokens = np.frombuffer(b"".join(files), np.uint8)
    offsets = np.cumsum([0, *map(len, files)]).astype(np.int64)
    split = RaggedTokens(tokens, offsets, np.zeros(len(files), np.uint8))
    manifest.write_token_splits(
        new, dict.fromkeys(("train", "validation", "test"), split), {"dataset": "tiny"}
    )


STAGES = (fetching, unpacking, building)
FINAL = ("data.tar.gz", "unpacked", "dataset")
"""What each stage makes."""


def die_before(step: int, folder: Path) -> Progress:
    """Kill this process before that step; returns the `progress` that counts as one."""
    steps = itertools.count(1)

    def count(what: str) -> None:
        if next(steps) == step:
            print(what, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event in STEPS and str(arguments[0]).startswith(str(folder)):
            count(f"{event} {Path(str(arguments[0])).name}")

    sys.addaudithook(audit)
    replace_syncs(count)
    return lambda what, _done, _total: count(what)


def replace_syncs(count: Callable[[str], None]) -> None:
    """Spare the disk, as no power is cut here, but count the calls."""
    os.fsync = lambda fd: count("os.fsync")  # noqa: ARG005
    os.sync = lambda: count("os.sync")


def in_child(task: Callable[[], None]) -> int:
    """Exit status of a child that does the task, negative for a signal."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        task()
    except BaseException as error:
        print(f"unexpected: {error!r}", flush=True)
        os._exit(1)
    os._exit(0)


def check(remote: RemoteFile, folder: Path, stage: int | None = None) -> None:
    """What has its final name is whole; after a `stage`, so much is there, and nothing else."""
    path, unpacked, dataset = (folder / name for name in FINAL)
    assert not path.exists() or f"md5:{disk.hash_file(path, 'md5')}" == remote.digest
    if unpacked.exists():
        assert len(list(unpacked.rglob("*.bin"))) == 6
        assert (unpacked / archive.UNPACKED).exists()
    if dataset.exists():
        manifest.load_arrays(dataset, "")
    if stage is not None:
        names = {found.name for found in folder.iterdir()}
        assert {name for name in names if name[0] != "."} == set(FINAL[: stage + 1])
        assert not any(".building" in name for name in names)


def crash_everywhere(remote: RemoteFile, stage: int, before: Path, root: Path) -> Path:
    """Kill the stage before each of its steps and do it again; returns a folder in which it was done."""
    step, status = 0, -signal.SIGKILL
    while status == -signal.SIGKILL:
        step += 1
        folder = root / f"{stage}-{step}"
        shutil.copytree(before, folder)
        status = in_child(partial(dying, remote, folder, stage, step))
        check(remote, folder)
        assert in_child(partial(STAGES[stage], remote, folder, ignore_progress)) == 0
        check(remote, folder, stage)
    assert status == 0
    return folder


def dying(remote: RemoteFile, folder: Path, stage: int, step: int) -> None:
    STAGES[stage](remote, folder, die_before(step, folder))


def main(url: str, digest: str, root: str) -> None:
    remote = RemoteFile(url, FINAL[0], digest, "gzip", "tiny")
    replace_syncs(lambda _what: None)
    disk.TICK_NS = 0  # nor does anybody change a file that was just hashed
    folder = Path(root) / "start"
    folder.mkdir(parents=True)
    for stage in range(len(STAGES)):
        folder = crash_everywhere(remote, stage, folder, Path(root))


if __name__ == "__main__":
    main(*sys.argv[1:])
