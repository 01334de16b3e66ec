"""`docs/slurm.md`: its table has the keys of a profile with their defaults, its example is one."""

import re
from pathlib import Path

import pytest
from documents import options, rows

from msbench.config.layers import parse_yaml, validate
from msbench.runs.launchers.slurm_jobs import QUERY_SECONDS
from msbench.runs.launchers.slurm_profile import SlurmProfile

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "slurm.md").read_text(encoding="utf-8")
SLURMS = {"--exclusive", "--name"}
"""Options of Slurm's own commands."""
DEFAULTS = {"the cluster's": None, "all": None, "120": 120, "50": 50}


def test_every_key_is_described_with_its_default() -> None:
    table = {key.strip("`"): default for key, default, _ in rows(TEXT, "key")}
    fields = SlurmProfile.model_fields
    assert list(table) == sorted(fields, key=list(table).index)
    for key, default in table.items():
        if default == "required":
            assert fields[key].is_required()
        elif default == "none":
            assert not fields[key].default
        else:
            assert fields[key].default == DEFAULTS[default]


@pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL))
def test_the_example_is_a_profile(example: str) -> None:
    assert validate(SlurmProfile, parse_yaml(example, "slurm.yaml")).gpus == 1


def test_options_and_waiting_are_as_described() -> None:
    named = set(re.findall(r"--[a-z][a-z-]*", TEXT))
    assert named - SLURMS <= options("run")
    assert {"--launcher", "--profile", "--wait"} <= named
    assert f"no answer within {QUERY_SECONDS:.0f} s" in re.sub(r"\s+", " ", TEXT)
