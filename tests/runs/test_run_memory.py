"""The memory that a run is said to take, held against what a step of it keeps."""

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from msbench import models
from msbench.cli import app
from msbench.config import MODELS, RunSpec
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ExitCode
from msbench.runs import memory as memory_module
from msbench.runs.memory import plan_recomputation, trace_memory
from msbench.runs.suite import Suite, resolve_specs
from msbench.training.step_memory import StepMemory

INFO = TaskInfo("tokens", 9, 2, 100, "accuracy", 0.5, {})
PAIRS = TaskInfo("pairs", 9, 2, 100, "accuracy", 0.5, {})


def spec_of(suite: Suite, model: str, *overrides: str) -> RunSpec:
    return resolve_specs(suite, [model], overrides=overrides)[0]


def test_pieces_and_devices_make_it_smaller(tiny: Suite) -> None:
    def positions(info: TaskInfo, *overrides: str, devices: int = 1) -> int:
        return trace_memory(spec_of(tiny, "mamba", *overrides), info, "cpu", devices).positions

    assert positions(INFO) == 8 * 100
    assert positions(PAIRS) == 8 * 200
    assert positions(INFO, "train.pad_to=150") == 8 * 150
    assert positions(INFO, devices=3) == 3 * 100
    assert positions(INFO, "train.micro_batch=2") == positions(INFO, "train.micro_batch=2", devices=2) == 200
    assert positions(INFO, "train.micro_batch=auto") == 800


def test_an_average_of_the_weights_is_one_more_copy(tiny: Suite) -> None:
    plain, averaged = (
        trace_memory(spec_of(tiny, "mamba", *overrides), INFO, "cpu").fixed
        for overrides in ((), ("train.average_weights=0.5",))
    )
    assert averaged * 4 == plain * 5


def test_no_more_blocks_are_recomputed_than_the_memory_requires(tiny: Suite) -> None:
    spec = spec_of(tiny, "mamba", "model.layers=6", "model.d_model=64", "train.batch_size=64")
    memory = trace_memory(spec, INFO, "cpu")
    half = (memory.estimate(2) + memory.estimate(3)) // 2
    count, most = plan_recomputation(spec, INFO, "cpu", half)
    assert most is not None
    assert 0 < most < memory.positions
    assert (count(memory.positions), count(most), count(most + 100)) == (3, 0, 1)
    assert plan_recomputation(spec, INFO, "cpu", 0)[0](memory.positions) == 6
    count, most = plan_recomputation(spec, INFO, "cpu", memory.estimate())
    assert (count(memory.positions), most) == (0, None)


def test_a_step_that_cannot_be_traced_is_computed_whole(tiny: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> StepMemory:
        raise NotImplementedError("no fake tensors for aten::new_operator\nDetails follow.")

    monkeypatch.setattr(memory_module, "trace_memory", fail)
    with pytest.warns(RuntimeWarning, match=r"step is not known: no fake tensors for aten::new_operator$"):
        count, most = plan_recomputation(spec_of(tiny, "mamba"), INFO, "cpu", 0)
    assert (count(800), most) == (0, None)


def test_small_steps_are_not_traced(tiny: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "trace_memory", lambda *_: pytest.fail("traced"))
    spec = spec_of(tiny, "mamba")
    count, most = plan_recomputation(spec, INFO, "cpu", 8 << 30)
    assert (count(800), most) == (0, None)


@pytest.mark.parametrize("name", [name for name in MODELS if not MODELS[name].numbers_only])
def test_a_plan_counts_parameters_without_making_them(name: str) -> None:
    config = MODELS[name].config.model_validate({"d_model": 16, "layers": 3, **MODELS[name].preset})
    outline, built = models.build_outline(name, config, INFO), models.build(name, config, INFO, 0)
    assert {key: each.shape for key, each in outline.named_parameters()} == {
        key: each.shape for key, each in built.named_parameters()
    }
    assert all(each.is_meta for each in outline.parameters())
    again = models.build(name, config, INFO, 0)
    assert all(torch.equal(a, b) for a, b in zip(built.parameters(), again.parameters(), strict=True))


def test_a_model_beyond_all_memory_is_planned_at_once(tiny_file: Path, tmp_path: Path) -> None:
    words = ("--model", "mamba", "--results", str(tmp_path / "results"), "--set", "model.d_model=1000000")
    done = CliRunner().invoke(app, ["run", str(tiny_file), *words, "--dry-run", "--json"])
    assert done.exit_code == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["parameters"] > 6e12  # the maps into and out of a block of twice the width


@pytest.mark.parametrize(
    ("override", "code", "words"),
    [
        (f"model.d_model={2**31 - 1}", ExitCode.RUN_FAILED, "mamba · seed 0: its parameters do not fit"),
        (f"model.state={10**10}", ExitCode.USAGE, "--set model.state: must be less than"),
        (f"data.max_length={10**30}", ExitCode.USAGE, "--set data.max_length: must be less than"),
        (f"data.train={10**30}", ExitCode.USAGE, "--set data.train: must be less than"),
        (f"model.layers={10**6}", ExitCode.USAGE, "--set model.layers: gives 1,000,000 layers"),
    ],
)
def test_a_plan_of_endless_size_is_one_message(
    tiny_file: Path, tmp_path: Path, override: str, code: int, words: str
) -> None:
    command = ["run", str(tiny_file), "--model", "mamba", "--results", str(tmp_path / "results")]
    done = CliRunner().invoke(app, [*command, "--dry-run", "--set", override])
    assert done.exit_code == code, done.exception
    planning, line = done.stderr.splitlines()
    assert planning == f"msbench: planning {tiny_file}"
    assert words in line
    assert not (tmp_path / "results").exists()
