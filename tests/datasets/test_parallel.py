import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from msbench import environment
from msbench.datasets.parallel import count_default_processes, run_in_order
from msbench.errors import DataError

ORPHANS = """\
import os, sys, time
from msbench.datasets.parallel import run_in_order

def work(number):
    if number:
        time.sleep(60)
    return os.getpid()

if __name__ == "__main__":
    results = run_in_order(work, 2)
    print(next(results), flush=True)
    next(results)
"""

UNGUARDED = """\
import sys
from pathlib import Path
from msbench import datasets as data
from msbench.config.data import ListOpsConfig

config = ListOpsConfig(train=2000, validation=10, test=10, min_length=5, max_length=60)
data.setup(config, Path(sys.argv[1]), processes=2)
"""


def slow_when_even(number: int) -> int:
    time.sleep(0.02 * (number % 2 == 0))
    return number * number


def die(number: int) -> int:
    if number == 2:
        os._exit(9)
    return number


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_order(processes: int) -> None:
    with closing(run_in_order(slow_when_even, processes)) as results:
        assert list(itertools.islice(results, 10)) == [number * number for number in range(10)]


def test_a_worker_that_dies_is_an_error() -> None:
    with pytest.raises(DataError, match="a worker process died"):
        list(itertools.islice(run_in_order(die, 2), 10))


def test_a_script_without_a_guard_ends_with_what_to_do(tmp_path: Path) -> None:
    """Its workers import it, and would wait for the lock that it holds itself."""
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "data")], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "a worker process died" in last
    assert last.endswith("below `if __name__ == '__main__':`, as its workers import it")


def test_default_processes_are_the_cores_allotted() -> None:
    assert 1 <= count_default_processes() <= 16


@pytest.mark.parametrize(("quota", "count"), [("150000 100000", 2), ("50000 100000", 1), ("max 100000", 16)])
def test_default_processes_keep_to_the_time_of_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, count: int
) -> None:
    monkeypatch.setattr(environment, "CGROUPS", tmp_path)
    monkeypatch.setattr(environment, "PROCESS_CGROUPS", tmp_path / "self")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    (tmp_path / "self").write_text("0::/\n", encoding="ascii")
    (tmp_path / "cpu.max").write_text(f"{quota}\n", encoding="ascii")
    assert count_default_processes() == count


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
def test_workers_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        assert running(worker)
        parent.send_signal(signal.SIGKILL)
        parent.stdout.close()
    deadline = time.monotonic() + 20
    while running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(worker)


def running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_the_work_of_listops_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'pandas', 'pydantic', 'yaml', 'rich'}"
    script = f"import sys, msbench.datasets.listops.generate; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
