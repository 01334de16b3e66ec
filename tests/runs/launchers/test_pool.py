"""Commands a few at a time: never too many, signals reach all, and the most severe exit code wins."""

import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from ranks import until

from msbench.console import LIFELINE
from msbench.runs.launchers import RunOptions
from msbench.runs.launchers.distributed import ONCE, create_flag, forward_signals
from msbench.runs.launchers.local import WorkerPool, apply_settings, build_slots, choose_worst

HEAD = (
    "import os, signal, sys, time; from pathlib import Path; folder, mine = Path(sys.argv[1]), sys.argv[2]\n"
)


def python(text: str, folder: Path, count: int) -> list[list[str]]:
    return [[sys.executable, "-c", HEAD + text, str(folder), str(index)] for index in range(count)]


def work(
    commands: Sequence[Sequence[str]], places: int, received: Sequence[int] = ()
) -> list[tuple[int, int]]:
    """Index and exit code of each command, as they ended."""
    reported: list[tuple[int, int]] = []
    named = [{"PLACE": str(place)} for place in range(places)]

    def command(index: int, later: bool) -> list[str]:
        return [*commands[index], str(later)]

    pool = WorkerPool(len(commands), command, named, lambda index, code, _: reported.append((index, code)))
    pool.work(received)
    return reported


def test_never_more_at_a_time_than_places_each_with_its_own_environment(tmp_path: Path) -> None:
    text = (
        "place = folder / ('at-' + os.environ['PLACE']); place.touch(exist_ok=False); time.sleep(0.2)\n"
        "place.unlink(); (folder / mine).touch(); sys.exit(int(mine))"
    )
    assert sorted(work(python(text, tmp_path, 5), 2)) == [(index, index) for index in range(5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == list("01234")


def test_what_each_prints_is_kept_until_it_has_ended(tmp_path: Path) -> None:
    commands = python("print('said', mine, file=sys.stderr)", tmp_path, 3)
    began, ended, waits = list[int](), list[tuple[int, int, str]](), list[int]()
    pool = WorkerPool(
        3,
        lambda index, _: commands[index],
        [{}, {}],
        lambda *each: ended.append(each),
        on_start=began.append,
        on_wait=lambda: waits.append(len(pool.working)),
        captured=True,
    )
    pool.work([])
    assert began == [0, 1, 2]
    assert sorted(ended) == [(index, 0, f"said {index}\n") for index in range(3)]
    assert waits
    assert max(waits) <= 2


def test_what_another_process_trains_is_left_to_the_end_and_then_waited_for(tmp_path: Path) -> None:
    text = "sys.exit(75 if mine != '2' and os.environ.get('MSBENCH_NO_WAIT') else sys.argv[3] == 'True')"
    assert work(python(text, tmp_path, 3), 1) == [(2, 0), (0, 1), (1, 1)]


def test_a_signal_reaches_all_that_work_and_none_is_started_after(tmp_path: Path) -> None:
    text = "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(143)); (folder / mine).touch(); time.sleep(60)"
    received: list[int] = []

    def send() -> None:
        until(lambda: len(list(tmp_path.iterdir())) == 2)
        received.append(signal.SIGUSR1)

    thread = threading.Thread(target=send)
    thread.start()
    assert sorted(work(python(text, tmp_path, 4), 2, received)) == [(0, 143), (1, 143)]
    thread.join()


def test_where_something_breaks_the_processes_save_and_end(tmp_path: Path) -> None:
    text = (
        "signal.signal(signal.SIGTERM, lambda *_: [(folder / 'saved').touch(), os._exit(0)])\n"
        "(folder / mine).write_text(str(os.getpid())); time.sleep(0 if mine == '0' else 60)"
    )

    def reported(*_: object) -> None:
        until(lambda: (tmp_path / "1").exists() and (tmp_path / "1").read_text() != "")
        raise RuntimeError("broken")

    commands = python(text, tmp_path, 2)
    with pytest.raises(RuntimeError, match="broken"):
        WorkerPool(2, lambda index, _: commands[index], [{}, {}], reported).work([])
    assert (tmp_path / "saved").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "1").read_text()), 0)


@pytest.mark.parametrize(
    ("codes", "code"),
    [([0, 0], 0), ([0, 3], 3), ([0, -9], 3), ([143, 0], 3), ([3, 6, 2], 2), ([2, 6, 120], 1), ([6, -9], 6)],
)
def test_the_exit_code_is_of_the_most_severe_whoever_ends_first(codes: list[int], code: int) -> None:
    assert choose_worst(codes) == choose_worst(codes[::-1]) == code


def test_one_that_is_looked_after_takes_two_signals_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert create_flag().once == 0.0
    monkeypatch.setenv(LIFELINE, "1")
    assert create_flag().once == ONCE


def test_signals_are_noted_and_handled_as_before_after() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with forward_signals([]) as received:
        os.kill(os.getpid(), signal.SIGUSR1)
        until(lambda: received == [signal.SIGUSR1])
    assert signal.getsignal(signal.SIGUSR1) is before


def test_places_share_the_cores_and_take_the_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MSBENCH_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("msbench.environment.count_cores", lambda: 8)
    assert build_slots(3, "cpu") == [{"TERM": "dumb", "MSBENCH_THREADS": "2"}] * 3
    assert build_slots(20, "cpu")[0]["MSBENCH_THREADS"] == "1"
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert [place["CUDA_VISIBLE_DEVICES"] for place in build_slots(3, "cuda")] == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, GPU-7a, 9")
    assert [place["CUDA_VISIBLE_DEVICES"] for place in build_slots(3, "cuda")] == ["5", "GPU-7a", "5"]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "MSBENCH_THREADS" not in build_slots(2, "cpu")[0]


def test_the_limit_of_a_container_is_shared_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MSBENCH_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("msbench.environment.count_cores", lambda: 4)
    monkeypatch.setattr("msbench.environment.limit_threads", lambda: 4)
    for jobs, threads in ((2, "2"), (4, "1")):
        with apply_settings([], RunOptions(suites=("quick",), device="cpu", jobs=jobs)):
            assert build_slots(jobs, "cpu")[0]["MSBENCH_THREADS"] == threads
    with apply_settings([], RunOptions(suites=("quick",), device="cpu")):
        assert os.environ["MSBENCH_THREADS"] == "4"
