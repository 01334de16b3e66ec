"""The watch over the processes of a group: a silent one ends the others, one that left does not."""

import os
import signal
import socket
import time
from datetime import timedelta
from pathlib import Path

import pytest
import ranks
import torch
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from msbench.errors import Lost
from msbench.runs.launchers.distributed import join_processes
from msbench.training import peers, process_group
from msbench.training.peers import PeerWatch
from msbench.training.process_group import ProcessGroup, Rank
from msbench.training.signals import SignalFlag


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "BEAT", 0.05)
    monkeypatch.setattr(peers, "SILENCE", 1.0)


@pytest.fixture
def store() -> TCPStore:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return TCPStore("127.0.0.1", port, is_master=True, timeout=timedelta(seconds=5))


class Watched:
    """A watch of one process in two, and the reasons that it gave."""

    def __init__(self, store: TCPStore, rank: int) -> None:
        self.reasons: list[str] = []
        self.store = store
        self.watch = PeerWatch(rank, 2, self.connect, self.reasons.append)

    def connect(self) -> Store:
        return TCPStore("127.0.0.1", self.store.port, timeout=timedelta(seconds=5))

    def until_aborted(self) -> str:
        end = time.monotonic() + 30
        while not self.reasons and time.monotonic() < end:
            time.sleep(0.02)
        (reason,) = self.reasons
        return reason


def test_two_that_count_and_then_leave_are_left_alone(store: TCPStore) -> None:
    first, second = Watched(store, 0), Watched(store, 1)
    with first.watch:
        with second.watch:
            time.sleep(1.5)
        time.sleep(1.5)
    assert first.reasons == second.reasons == []


def test_one_that_never_came_or_stopped_counting_is_given_up_once(store: TCPStore) -> None:
    first = Watched(store, 0)
    store.set("msbench/process/1", "7")
    with first.watch:
        assert first.until_aborted() == "process 1 has not been heard of for 1 seconds"
        time.sleep(1.5)
    assert len(first.reasons) == 1


def test_a_first_process_that_is_gone_is_its_store(store: TCPStore) -> None:
    second = Watched(store, 1)
    second.connect = lambda: (_ for _ in ()).throw(RuntimeError("no route\nto it"))  # type: ignore[method-assign]
    second.watch = PeerWatch(1, 2, second.connect, second.reasons.append)
    with second.watch:
        assert second.until_aborted() == "the first process does not answer (no route)"


def sum_with_one_that_hangs(note: Path) -> None:
    """Wait for a sum that never comes; what ends it writes the note."""
    peers.BEAT, peers.SILENCE, process_group.NOTICE = 0.1, 2.0, 1.0
    with (
        join_processes("cpu", SignalFlag()) as processes,
        processes.calling(lambda error: print(error, file=note.open("w"))),
    ):
        processes.pause()
        if processes.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        processes.pause()


def test_a_process_that_hangs_ends_the_others_with_a_record(tmp_path: Path) -> None:
    note = tmp_path / "note"
    first, second = ranks.start(2, sum_with_one_that_hangs, note, environment={})
    first.join(60)
    code = first.exitcode
    second.kill()
    second.join()
    assert code == 3
    assert "process 1 has not been heard of for 2 seconds; the same command goes on" in note.read_text()


def test_a_sum_of_an_aborted_group_is_not_believed() -> None:
    group = ProcessGroup(Rank(0, 2, 2), torch.device("cpu"), SignalFlag())
    group.check_peers()
    group._noticed.set()
    group._abort("process 1 is gone")
    with pytest.raises(Lost, match="process 1 is gone; the same command goes on"):
        group.check_peers()


def test_a_watch_that_was_stopped_itself_starts_to_wait_anew(
    store: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, first = [0.0], Watched(store, 0)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    store.set("msbench/process/1", "7")
    with first.watch:
        time.sleep(0.3)
        now[0] = 60.0  # both processes were suspended for a minute
        time.sleep(0.3)
        assert first.reasons == []
        now[0] += 0.1
        store.set("msbench/process/1", "8")
        time.sleep(0.3)
        assert first.reasons == []
