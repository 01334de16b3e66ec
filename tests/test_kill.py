"""kill -9 in the middle of training: the same command goes on and ends in the very same numbers."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from same_results import assert_same
from typer.testing import CliRunner

from msbench import store
from msbench.cli import app

KILLS = int(os.environ.get("MSBENCH_TEST_KILLS", "2"))


def arguments(suite: Path, results: Path) -> list[str]:
    options = ["--model", "msssm-s6", "--set", "train.epochs=30", "--results", str(results), "--quiet"]
    return ["run", str(suite), *options]


def run_to_the_end(suite: Path, results: Path) -> None:
    done = CliRunner().invoke(app, arguments(suite, results))
    assert done.exit_code == 0, done.stderr


def rows(results: Path) -> int:
    """Epochs whose row is written."""
    return sum(len(path.read_text().splitlines()) - 1 for path in results.rglob("metrics.csv"))


def kill_in_training(suite: Path, results: Path, later: float) -> None:
    """Start the run, and kill it `later` seconds after it has closed an epoch of its own."""
    before = rows(results)
    command = [sys.executable, "-m", "msbench.cli", *arguments(suite, results)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while rows(results) <= before:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        time.sleep(later)
        process.kill()
    assert process.returncode == -9, "the run is too short for this machine: it ended before it was killed"


@pytest.mark.slow
def test_all_numbers_are_bit_equal_after_any_number_of_kills(tiny_file: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "unbroken", tmp_path / "broken"
    run_to_the_end(tiny_file, whole)
    chance = random.Random(0)
    for _ in range(KILLS):
        kill_in_training(tiny_file, broken, chance.uniform(0, 0.3))
    run_to_the_end(tiny_file, broken)

    ((expected,), _), ((found,), warnings) = store.records(whole), store.records(broken)
    assert (expected.resumed, found.resumed, warnings) == (0, KILLS, [])
    assert_same(broken, whole)
