"""A clock that jumps, back by an hour, to 1970 and forward, in the middle of a run: nothing depends on it."""

import glob
import os
import subprocess
import sys
import time
from pathlib import Path

import commands
import pytest
from campaign_home import Home
from same_results import assert_same

from msbench.results import store

pytestmark = pytest.mark.campaign
LIBRARY = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
JUMPS = ("-1h", "@1970-01-01 00:00:10", "+2h") * 4
EPOCHS = ("--set", f"train.epochs={len(JUMPS)}", "--model", "mamba")


@pytest.mark.skipif(not LIBRARY, reason="needs libfaketime, Debian's package faketime")
def test_a_run_whose_clock_jumps_back_is_the_same_run(home: Home, tmp_path: Path) -> None:
    offset, results = tmp_path / "offset", tmp_path / "results"
    offset.write_text("+0")
    words = ["run", str(home.suite), *EPOCHS, "--results"]
    environment = {
        **os.environ,
        "LD_PRELOAD": LIBRARY[0],
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "MSBENCH_DATA": str(home.data),
    }
    command = [sys.executable, "-m", "msbench", *words, str(results)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        epochs = (line for line in process.stderr if ": epoch " in line)
        for jump, _ in zip(JUMPS, epochs, strict=True):
            offset.write_text(jump)
    assert process.returncode == 0
    reference = tmp_path / "reference"
    assert commands.run(*words, reference, "--quiet", data=home.data).code == 0
    assert_same(results, reference)
    ((record,), _) = store.read_records(results)
    assert 0 < record.timing["train_seconds"] < 300
    for verb in (("report", home.suite, "--modified"), ("show", record.run_id), ("list", "runs")):
        ended = commands.run(*verb, "--results", results, data=home.data)
        assert ended.code in (0, 5), ended.text
        assert "Traceback" not in ended.text


@pytest.mark.parametrize("moment", [-3600.0, -time.time() + 10], ids=["an-hour", "1970"])
def test_data_that_was_verified_in_the_future_is_verified_again(home: Home, moment: float) -> None:
    """Stamps are of the file system's clock, which need not be this one's: a hash more, and no belief."""
    (tokens,) = home.data.glob("listops/*/test/tokens.npy")
    content = tokens.read_bytes()
    before = time.time() + moment
    os.utime(tokens, (before, before))
    assert home.run("explain").code == 0
    tokens.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(tokens, (before, before))
    ended = commands.run("run", home.suite, "--results", home.root / "other", "--quiet", data=home.data)
    assert ended.code == 6, ended.text
    assert "tokens.npy: is damaged" in ended.text
