import shlex
from pathlib import Path
from typing import Any

import pytest
from report_runs import PlannedRun, run

from msbench.report.html.command import command, overrides
from msbench.specs import RunSpec
from msbench.suite import load, plan


def arguments(text: str) -> list[str]:
    """What a shell makes of it."""
    return shlex.split(text)


def test_a_planned_run_needs_no_overrides() -> None:
    spec = plan(load("quick"))[0].model_dump(mode="json")
    assert overrides(spec, spec) == []
    made = command(run(PlannedRun("listops-short", "mamba", 3)), "quick", [])
    assert made == "msbench run quick --model mamba --task listops-short --seed 3"


@pytest.mark.parametrize(
    "sets",
    [
        ["train.max_steps=50"],
        ["train.lr=1e-3", "data.max_length=80", "model.dropout=0.25"],
        ["train.clip=null", "train.warmup_epochs=0"],
        ["model.norm=batch", "model.pooling=last", "train.bucketing=false"],
    ],
)
def test_the_command_gives_the_same_run_again(sets: list[str]) -> None:
    suite = load("quick")
    planned, spec = plan(suite, ["msssm-s6"])[0], plan(suite, ["msssm-s6"], seeds=[4], overrides=sets)[0]
    record = run(PlannedRun(spec.task, spec.model_name, spec.seed))
    found = overrides(spec.model_dump(mode="json"), planned.model_dump(mode="json"))
    words = arguments(command(record, "quick", found))
    assert words[:3] == ["msbench", "run", "quick"]
    assert _planned(words[2:]).digest == spec.digest


def _planned(words: list[str]) -> RunSpec:
    """The one run that these arguments of ``msbench run`` plan."""
    options: dict[str, list[Any]] = {"--model": [], "--task": [], "--seed": [], "--set": []}
    for name, value in zip(words[1::2], words[2::2], strict=True):
        options[name].append(value)
    seeds = [int(seed) for seed in options["--seed"]]
    (spec,) = plan(load(words[0]), options["--model"], options["--task"], seeds, options["--set"])
    return spec


@pytest.mark.parametrize("value", ["a b", "it's", "true", "null", "1e5", "", "x: y", "#1", "[1]", "~", "é"])
def test_values_are_read_back_as_they_were(value: str) -> None:
    from msbench.config import parse_override

    (text,) = overrides({"data": {"name": value}}, {"data": {"name": "other"}})
    words = arguments(command(run(PlannedRun("t", "m")), "s", [text]))
    assert parse_override(words[-1]).values == {"data": {"name": value}}


def test_what_a_shell_would_obey_is_quoted(tmp_path: Path) -> None:
    record = run(PlannedRun("$(rm -rf ~)", "`ls`; true"))
    suite = str(tmp_path / "my suite.yaml")
    assert arguments(command(record, suite, []))[2:7:2] == [suite, "`ls`; true", "$(rm -rf ~)"]
