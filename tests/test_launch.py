"""Two processes, one results folder."""

import subprocess
import sys
from pathlib import Path

from msbench import store


def test_two_processes_that_start_at_once_share_the_work(tiny_file: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "msbench.cli",
        "run",
        str(tiny_file),
        "--results",
        str(tmp_path / "results"),
    ]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    outputs = [process.communicate(timeout=180) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    found, warnings = store.records(tmp_path / "results")
    assert warnings == []
    assert [record.status for record in found] == ["finished", "finished"]
    # Both report both runs, whoever trained them, and each was trained from its start exactly once.
    assert all(out.count("finished") == 2 for out, _ in outputs)
    assert [record.resumed for record in found] == [0, 0]
