"""`--deterministic`: set before CUDA starts, recorded, refused where it cannot hold, and undone."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from msbench import environment, models
from msbench.cli import app
from msbench.environment import describe_numerics, use_matmul
from msbench.errors import ConfigError
from msbench.results.record import RunRecord
from msbench.runs.reproduce import build_reproduction
from msbench.runs.suite import Suite, resolve_specs
from msbench.training import step

SHORT = ("--model", "mamba", "--set", "train.max_steps=2", "--device", "cpu", "--quiet")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.DETERMINISTIC, raising=False)
    monkeypatch.delenv(environment.WORKSPACE, raising=False)


def state() -> dict[str, Any]:
    variables = {name: os.environ.get(name) for name in (environment.DETERMINISTIC, environment.WORKSPACE)}
    return {**environment.describe_numerics(), **variables}


def ran(suite: Path, results: Path, *words: str, **options: Any) -> RunRecord:
    done = CliRunner().invoke(
        app, ["run", str(suite), *SHORT, "--json", "--results", str(results), *words], **options
    )
    assert done.exit_code == 0, done.stderr
    (record,) = json.loads(done.stdout)
    return RunRecord.model_validate(record)


def test_all_is_set_and_all_is_undone() -> None:
    before = state()
    with environment.use_deterministic("cpu"):
        assert state() == {
            "threads": before["threads"],
            "threads_given": before["threads_given"],
            "deterministic": True,
            "matmul_precision": "highest",
            "tf32": False,
            "cudnn": {"deterministic": True, "benchmark": False, "tf32": False},
            environment.DETERMINISTIC: "1",
            environment.WORKSPACE: ":4096:8",
        }
    assert state() == before
    assert environment.DETERMINISTIC not in os.environ
    with pytest.raises(ZeroDivisionError), environment.use_deterministic("cpu"):
        _ = 1 / 0
    assert state() == before


def test_what_a_user_chose_is_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.WORKSPACE, ":16:8")
    torch.set_float32_matmul_precision("high")
    try:
        with environment.use_deterministic("cpu"):
            assert os.environ[environment.WORKSPACE] == ":16:8"
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert os.environ[environment.WORKSPACE] == ":16:8"


@pytest.mark.parametrize(
    ("given", "started", "words"),
    [(":0:0", False, "':0:0'"), (None, True, "CUDA has started in this process without")],
)
def test_what_is_too_late_on_cuda_is_said(
    given: str | None, started: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given is not None:
        monkeypatch.setenv(environment.WORKSPACE, given)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: started)
    before = state()
    with pytest.raises(ConfigError, match=words), environment.use_deterministic("cuda"):
        pass
    assert state() == before


@pytest.mark.parametrize(("given", "started"), [(None, False), (":4096:8", True)])
def test_what_is_in_time_on_cuda_is_set(
    given: str | None, started: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given is not None:
        monkeypatch.setenv(environment.WORKSPACE, given)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: started)
    with environment.use_deterministic("cuda"):
        assert os.environ[environment.WORKSPACE] == ":4096:8"


def test_a_kernel_that_adds_in_any_order_is_refused(tiny: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", "mamba-ssm")
    with pytest.raises(ConfigError, match=r"scan mamba-ssm, which mamba would use.*#493.*--scan triton"):
        models.check_fixed_order(resolve_specs(tiny, ["mamba", "lstm"]))
    models.check_fixed_order(resolve_specs(tiny, ["lstm"]))  # has no selective scan
    monkeypatch.setenv("MSBENCH_SCAN", "triton")
    models.check_fixed_order(resolve_specs(tiny, ["mamba"]))


def test_the_record_has_it_and_the_command_asks_for_it(tiny_file: Path, tmp_path: Path) -> None:
    before = state()
    plain = ran(tiny_file, tmp_path / "plain")
    one = ran(tiny_file, tmp_path / "one", "--deterministic")
    assert state() == before
    assert (plain.environment["deterministic"], one.environment["deterministic"]) == (False, True)
    assert one.environment["cudnn"] == {"deterministic": True, "benchmark": False, "tf32": False}
    assert [attempt.get("deterministic") for attempt in one.attempts] == ["yes"]
    assert "deterministic" not in plain.attempts[0]
    # How, not what: the id is the same, and on a CPU so are the numbers.
    assert (one.run_id, one.metrics) == (plain.run_id, plain.metrics)
    words = build_reproduction(one, tiny_file).command
    assert words[-1] == "--deterministic"
    assert "--deterministic" not in build_reproduction(plain, tiny_file).line
    repeated = CliRunner().invoke(app, [*words[1:], "--results", str(tmp_path / "two"), "--json", "--quiet"])
    (record,) = json.loads(repeated.stdout)
    assert (record["run_id"], record["environment"]["deterministic"]) == (one.run_id, True)
    assert shlex.split(build_reproduction(one, tiny_file).line) == list(words)


def test_a_process_that_is_started_inherits_it(tiny_file: Path, tmp_path: Path) -> None:
    with environment.use_deterministic("cpu"):
        inherited = dict(os.environ)
    variables = {environment.DETERMINISTIC: inherited[environment.DETERMINISTIC]}
    assert ran(tiny_file, tmp_path / "a", env=variables).environment["deterministic"] is True
    record = ran(tiny_file, tmp_path / "b", "--no-deterministic", env=variables)
    assert record.environment["deterministic"] is False


def test_the_environment_is_reported_as_it_is(tiny_file: Path, tmp_path: Path) -> None:
    with environment.use_deterministic("cpu"):
        ran(tiny_file, tmp_path / "a", "--deterministic")
        assert environment.describe_numerics()["deterministic"] is True  # what was set around it stays


def test_a_run_that_cannot_be_stops_with_the_name_of_the_operation(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain: Callable[..., torch.Tensor] = step.compute_loss

    def compute_loss(*arguments: Any) -> torch.Tensor:
        loss = plain(*arguments)
        return loss + 0 * torch.zeros(1).put_(torch.tensor([0]), torch.zeros(1)).sum()

    monkeypatch.setattr(step, "compute_loss", compute_loss)
    words = ["run", str(tiny_file), *SHORT, "--results", str(tmp_path)]
    assert CliRunner().invoke(app, words).exit_code == 0
    done = CliRunner().invoke(app, [*words, "--deterministic", "--fresh", "--json"])
    assert done.exit_code == 3
    (record,) = json.loads(done.stdout)
    assert record["status"] == "failed"
    assert record["failure"]["message"].startswith("put_ does not have a deterministic implementation")


def test_the_order_of_hashes_changes_nothing() -> None:
    """Python draws it anew for every process, and nothing here may depend on it."""
    program = (
        "import hashlib, torch; torch.set_num_threads(1)\n"
        "from msbench.analysis.determinism import DeterminismProblem, models, record_training\n"
        "p = DeterminismProblem(steps=3, stop=2, epoch=2, batch=4, longest=12, width=8, layers=1)\n"
        "found = hashlib.sha256()\n"
        "for m in ('msssm-s6', 'mamba', 's5', 'griffin'):\n"
        "    moments = record_training(p.spec(m), p.dataset(), 'cpu', models.build, None)\n"
        "    for x in moments[-2].state.values():\n"
        "        found.update(x.reshape(-1).view(torch.uint8).numpy().tobytes())\n"
        "print(found.hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_the_number_of_threads_is_set_recorded_and_asked_for(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in environment.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    one = ran(tiny_file, tmp_path / "one", "--threads", "1")
    three = ran(tiny_file, tmp_path / "three", "--threads", "3")
    assert torch.get_num_threads() == before
    assert environment.THREADS not in os.environ
    assert [run.environment["threads"] for run in (one, three)] == [1, 3]
    assert [attempt["threads"] for attempt in three.attempts] == ["3"]
    assert one.run_id == three.run_id
    assert build_reproduction(three, tiny_file).command[-2:] == ("--threads", "3")
    assert "--threads" not in build_reproduction(ran(tiny_file, tmp_path / "all"), tiny_file).line


@pytest.mark.parametrize("name", environment.THREAD_VARIABLES)
def test_threads_by_a_variable_are_as_good_as_by_the_option(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in environment.THREAD_VARIABLES:
        monkeypatch.delenv(each, raising=False)
    assert environment.describe_numerics()["threads_given"] is False
    monkeypatch.setenv(name, "1")
    assert environment.describe_numerics()["threads_given"] is True


def test_products_are_rounded_on_a_gpu_alone_and_as_long_as_asked_for() -> None:
    with use_matmul("tf32", "cpu"):
        assert torch.get_float32_matmul_precision() == "highest"
    with use_matmul("tf32", "cuda"):
        assert describe_numerics()["tf32"] is True
        with use_matmul("highest", "cuda"):
            assert describe_numerics()["tf32"] is False
        assert torch.get_float32_matmul_precision() == "high"
    assert describe_numerics()["matmul_precision"] == "highest"
