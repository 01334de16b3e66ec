"""Several runs: two processes in one results folder, and a signal in the first of three."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from msbench.cli import app
from msbench.results import store
from msbench.training.metrics import ProgressCallback


def test_two_processes_that_start_at_once_train_each_run_once(tiny_file: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    command = [sys.executable, "-m", "msbench", "run", str(tiny_file), "--results", str(results)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    outputs = [process.communicate(timeout=180) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    found, warnings = store.read_records(results)
    assert warnings == []
    assert [(record.status, record.resumed) for record in found] == [("finished", 0)] * 2
    # Both report both runs, whoever trained them; each epoch of each was trained by one of the two.
    assert all(out.count("finished") == 2 for out, _ in outputs)
    trained = re.findall(r" · (\S+) · seed 0: epoch (\d)/3", "".join(messages for _, messages in outputs))
    assert Counter(trained) == {(model, epoch): 1 for model in ("msssm-s6", "mamba") for epoch in "123"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_first_run_starts_no_other(
    number: signal.Signals, code: int, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["run", str(tiny_file), "--model", "mamba", "--results", str(tmp_path / "results"), "--quiet"]
    arguments += [word for seed in ("0", "1", "2") for word in ("--seed", seed)]
    with monkeypatch.context() as patch:
        patch.setattr(ProgressCallback, "epoch", lambda *_: os.kill(os.getpid(), number))
        assert CliRunner().invoke(app, arguments).exit_code == code
    (record,), _ = store.read_records(tmp_path / "results")
    assert (record.seed, record.status, record.metrics) == (0, "interrupted", {})
    assert len(store.list_run_folders(tmp_path / "results").folders) == 1

    assert CliRunner().invoke(app, arguments).exit_code == 0
    found = sorted(store.read_records(tmp_path / "results")[0], key=lambda record: record.seed)
    assert [(record.seed, record.status, record.resumed) for record in found] == [
        (0, "finished", 1),
        (1, "finished", 0),
        (2, "finished", 0),
    ]
