"""kill -9 at any moment: the same command goes on and ends in the very same weights."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

KILLS = int(os.environ.get("MSBENCH_TEST_KILLS", "4"))


def command(suite: Path, results: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "msbench.cli", "run", str(suite), "--model", "msssm-s6"),
        *("--results", str(results), "--set", "train.epochs=60", "--quiet"),
    ]


def weights(results: Path) -> dict[str, torch.Tensor]:
    (path,) = results.rglob("last.safetensors")
    return load_file(path)


@pytest.mark.slow
def test_weights_are_bit_equal_after_any_number_of_kills(tiny_file: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    subprocess.run(command(tiny_file, tmp_path / "unbroken"), check=True, capture_output=True)
    whole = time.monotonic() - began
    chance = random.Random(0)
    for _ in range(KILLS):
        process = subprocess.Popen(command(tiny_file, tmp_path / "broken"), stderr=subprocess.PIPE)
        try:
            process.wait(timeout=chance.uniform(0.1, 0.9) * whole)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        assert process.returncode in (-9, 0)
    subprocess.run(command(tiny_file, tmp_path / "broken"), check=True, capture_output=True)
    expected, found = weights(tmp_path / "unbroken"), weights(tmp_path / "broken")
    assert expected.keys() == found.keys()
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())
