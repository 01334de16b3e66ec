"""The one device of a run: what a cluster leaves on PATH and in the environment is not asked."""

from pathlib import Path

import pytest

from msbench.training.loop import make_fabric


def test_slurm_around_a_run_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A warning would be an error here; with tasks of an enclosing job it would be one of four ranks.
    (tmp_path / "srun").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert make_fabric("cpu", "float32").world_size == 1
    for name, value in {"SLURM_NTASKS": "4", "SLURM_PROCID": "2", "SLURM_JOB_NAME": "msbench"}.items():
        monkeypatch.setenv(name, value)
    fabric = make_fabric("cpu", "float32")
    assert (fabric.world_size, fabric.global_rank) == (1, 0)
