"""`docs/devices.md`: its options can be given, its times are those of the code."""

import re
from datetime import timedelta
from pathlib import Path

from documents import options

from msbench.runs.launchers.container import SHARED_MEMORY
from msbench.runs.launchers.distributed import GRACE, ONCE
from msbench.training.peers import SILENCE
from msbench.training.process_group import NOTICE, TIMEOUT

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "devices.md").read_text(encoding="utf-8")
FLAT = re.sub(r"\s+", " ", TEXT)
OTHERS = {
    "--standalone",
    "--nnodes",
    "--nproc-per-node",
    "--rdzv-backend",
    "--rdzv-endpoint",
    "--max-restarts",
}
OTHERS |= {"--ipc", "--shm-size"}
"""Options of torchrun and of a container's engine."""


def test_options_can_be_given() -> None:
    named = set(re.findall(r"--[a-z][a-z-]*", TEXT))
    assert named - OTHERS <= options("run")
    assert "--devices" in named


def test_times_are_those_of_the_code() -> None:
    assert f"the others end within a minute; after {GRACE:.0f} seconds they are killed" in FLAT
    assert f"has not been heard of for {SILENCE:.0f} seconds" in FLAT
    assert SILENCE + NOTICE < 60
    assert f"the same signal twice within {ONCE:.0f} seconds" in FLAT
    assert {timedelta(minutes=30): "wait for half an hour at most"}[TIMEOUT] in FLAT
    assert f"`--shm-size={SHARED_MEMORY}`" in FLAT
