"""How long runs take: from earlier runs, from timed steps, or not at all; and what is left of several."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from msbench import datasets
from msbench.cli import app
from msbench.config import RunSpec
from msbench.environment import describe_environment
from msbench.models import find_family
from msbench.results.record import RunRecord
from msbench.runs import duration
from msbench.runs.duration import (
    Campaign,
    RunTimes,
    StepTimes,
    compute_makespan,
    count_threads,
    time_steps,
)
from msbench.runs.plan import PlannedRun
from msbench.runs.suite import Suite, resolve_specs

STEPS = 24
"""Steps of a run of the small suite."""


def spec_of(suite: Suite, model: str = "mamba", *overrides: str, seed: int = 0) -> RunSpec:
    return resolve_specs(suite, [model], seeds=[seed], overrides=overrides)[0]


def record_of(spec: RunSpec, /, seconds: int = 40, steps: int = STEPS, **changes: Any) -> RunRecord:
    """The record of a finished run of this machine that took so many seconds."""
    values = {
        "run_id": "0" * 12,
        "status": "finished",
        "suite": spec.suite,
        "task": spec.task,
        "model": spec.model_name,
        "seed": spec.seed,
        "spec": spec.model_dump(mode="json"),
        "spec_digest": spec.digest,
        "data_digest": "b",
        "source_digest": "c",
        "kernel": find_family(spec.model_name).name_kernel(spec.model, "cpu"),
        "environment": {**describe_environment(), "device": "cpu", "devices": 1},
        "steps": steps,
        "started": "2026-01-31T23:59:30+00:00",
        "ended": f"2026-02-01T00:{(seconds - 30) // 60:02}:{(seconds - 30) % 60:02}+00:00",
    }
    return RunRecord.model_validate(values | changes)


def times_of(*records: RunRecord, devices: int = 1, threads: int | None = None) -> RunTimes:
    return RunTimes(records, "cpu", devices=devices, threads=threads or count_threads(1))


def test_a_run_takes_as_long_as_the_median_of_earlier_ones(tiny: Suite) -> None:
    spec = spec_of(tiny)
    known = times_of(
        *(record_of(spec_of(tiny, seed=seed), seconds) for seed, seconds in enumerate((40, 44, 90)))
    )
    assert known.estimate(spec, STEPS) == duration.Estimate(44, "3 runs")
    assert known.estimate(spec, None) == duration.Estimate(44, "3 runs")  # needs no data
    assert known.estimate(spec, STEPS, 18) == duration.Estimate(11, "3 runs")


@pytest.mark.parametrize(
    "change", ["train.lr=0.5", "train.weight_decay=0.3", "train.schedule=constant", "train.beta2=0.98"]
)
def test_what_costs_no_time_may_differ(tiny: Suite, change: str) -> None:
    found = times_of(record_of(spec_of(tiny))).estimate(spec_of(tiny, "mamba", change), STEPS)
    assert found == duration.Estimate(40, "1 run")


@pytest.mark.parametrize(
    "change",
    ["model.d_model=16", "model.state=6", "train.batch_size=4", "train.pad_to=32", "data.max_length=21"],
)
def test_other_settings_say_nothing(tiny: Suite, change: str) -> None:
    assert times_of(record_of(spec_of(tiny), steps=240)).estimate(spec_of(tiny, "mamba", change), 24) is None


def test_another_number_of_epochs_is_inferred_by_steps(tiny: Suite) -> None:
    longer = spec_of(tiny, "mamba", "train.epochs=30")
    known = times_of(record_of(longer, 80, 240), record_of(longer, 60, 240))
    assert known.estimate(spec_of(tiny), 24) == duration.Estimate(pytest.approx(7), "2 runs, by steps")  # type: ignore[arg-type]
    assert known.estimate(spec_of(tiny), None) is None
    # The first steps are slower, so that a handful of them says nothing of many.
    assert times_of(record_of(spec_of(tiny), steps=STEPS)).estimate(longer, 240) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "diverged"},
        {"resumed": 1},
        {"kernel": "another"},
        {"started": ""},
        {"environment": {}},
        {"environment": {**describe_environment(), "device": "cpu", "devices": 2}},
        {"environment": {**describe_environment(), "device": "cpu", "devices": 1, "cpu": "another"}},
        {"environment": {**describe_environment(), "device": "cpu", "devices": 1, "threads": 77}},
        {"environment": {**describe_environment(), "device": "cuda", "devices": 1, "gpus": ["a GPU"]}},
        {"spec": {"model_name": "mamba"}},
        {"spec": {"model_name": "mamba", "data": {"dataset": ["listops"]}, "model": None}},
    ],
    ids=lambda changes: " ".join(changes),
)
def test_runs_that_do_not_count(tiny: Suite, changes: dict[str, Any]) -> None:
    assert times_of(record_of(spec_of(tiny), **changes)).estimate(spec_of(tiny), STEPS) is None


def test_what_an_earlier_version_had_no_setting_for_has_its_default(tiny: Suite) -> None:
    values = spec_of(tiny).model_dump(mode="json")
    assert values["train"].pop("pad_to") is None
    known = times_of(record_of(spec_of(tiny), spec=values))
    assert known.estimate(spec_of(tiny), STEPS) is not None
    assert known.estimate(spec_of(tiny, "mamba", "train.pad_to=32"), STEPS) is None


def test_runs_at_once_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MSBENCH_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("msbench.environment.count_cores", lambda: 8)
    monkeypatch.setattr("torch.get_num_threads", lambda: 5)
    assert [count_threads(jobs) for jobs in (1, 3, 20)] == [5, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert count_threads(3) == 5


def test_runs_are_begun_in_order_as_soon_as_they_can() -> None:
    assert compute_makespan([3, 1, 1, 5], 1) == 10
    assert compute_makespan([3, 1, 1, 5], 2) == 7
    assert compute_makespan([3, 1, 1, 5], 9) == 5
    assert compute_makespan([], 2) == 0


def test_steps_are_timed_after_the_first_ones(tiny: Suite) -> None:
    """With a clock whose readings are further apart each time: 0, 0.1, 0.3, 0.6, ..."""
    spec = spec_of(tiny, "mamba", "train.epochs=2", "data.validation=40")
    dataset = datasets.setup(spec.data, datasets.data_root())
    clock = itertools.accumulate(itertools.count())
    found = time_steps(spec, dataset, "cpu", lambda: next(clock) / 10)
    # Steps 3 to 7, and then the five batches of the validation split, of which 3 to 5 are timed.
    assert found is not None
    assert found.step == pytest.approx(0.5)
    lengths = sorted(dataset.splits["validation"].lengths, reverse=True)
    positions = sum(8 * lengths[start] for start in range(0, 40, 8))
    assert found.position == pytest.approx(5 * 1.2 / positions)


def test_slow_steps_are_fewer(tiny: Suite) -> None:
    spec = spec_of(tiny)
    dataset = datasets.setup(spec.data, datasets.data_root())
    readings: list[float] = []

    def read() -> float:
        readings.append(15.0 * len(readings))
        return readings[-1]

    found = time_steps(spec, dataset, "cpu", read)
    assert found is not None
    assert found.step == 15
    assert len(readings) == 2 * (1 + 3)


def test_a_run_that_fails_in_its_first_steps_has_no_time(tiny: Suite) -> None:
    spec = spec_of(tiny, "mamba", "train.lr=1e30", "train.warmup_epochs=0")
    dataset = datasets.setup(spec.data, datasets.data_root())
    assert time_steps(spec, dataset, "cpu") is None


def test_the_time_of_a_run_is_that_of_steps_validations_and_the_test(tiny: Suite) -> None:
    spec = spec_of(tiny, "mamba", "train.pad_to=20", "train.max_steps=20")
    dataset = datasets.setup(spec.data, datasets.data_root())
    # 20 steps of 8 an epoch are 3 validations of 20 examples, and a test of 20.
    assert StepTimes(2.0, 0.5).extrapolate(spec, dataset, 20) == 40 + 0.5 * 20 * 20 * 4


def entry_of(spec: RunSpec, action: str = "train") -> PlannedRun:
    return PlannedRun(spec, action, "no run yet", "0" * 12, None)  # type: ignore[arg-type]


@pytest.fixture
def ticks() -> Iterator[float]:
    """A clock that goes on by ten seconds each time it is read."""
    return itertools.count(100.0, 10.0)


def test_the_runs_of_a_command_tell_the_time_of_the_others(tiny: Suite, ticks: Iterator[float]) -> None:
    specs = [spec_of(tiny, seed=seed) for seed in range(4)]
    other = spec_of(tiny, "msssm-s6")
    entries = [entry_of(specs[0], "keep"), *map(entry_of, specs[1:]), entry_of(other)]
    campaign = Campaign(entries, times_of(), clock=lambda: next(ticks))
    assert (campaign.ended, campaign.count) == (0, 4)
    assert [campaign.describe_run(spec) for spec in specs[:2]] == ["", "run 1 of 4"]
    assert campaign.describe_left() == ""  # rather nothing than a guess
    campaign.begin(specs[1])
    campaign.end(specs[1], record_of(specs[1], 3000))
    campaign.end(specs[0], record_of(specs[0], 1))  # it was kept
    assert campaign.ended == 1
    assert campaign.describe_left() == "at least 1 h 40 min left"
    campaign.end(other)
    assert campaign.describe_left() == "1 h 40 min left"
    campaign.begin(specs[2])
    assert campaign.describe_left() == "1 h 40 min left"  # ten seconds fewer
    assert campaign.describe_left(specs[2], 60.0) == "51 min left"
    for spec in specs[2:]:
        campaign.end(spec, None)
    assert (campaign.ended, campaign.describe_left()) == (4, "")


def test_a_run_of_its_own_is_not_counted(tiny: Suite) -> None:
    assert Campaign([entry_of(spec_of(tiny))], times_of()).describe_run(spec_of(tiny)) == ""


def plan(tiny_file: Path, results: Path, *more: str) -> list[dict[str, object]]:
    words = ["run", str(tiny_file), "--results", str(results), "--dry-run", "--json", *more]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    rows: list[dict[str, object]] = json.loads(done.stdout)
    return rows


def test_a_plan_has_hours_from_runs_or_from_a_few_steps_or_none(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results"
    monkeypatch.setattr(duration, "_measure_wall_time", lambda _: 5400.0)
    monkeypatch.setattr(duration, "time_steps", lambda *_: StepTimes(150.0, 0.0))
    words = ["run", str(tiny_file), "--results", str(results), "--model", "mamba", "--quiet"]
    assert CliRunner().invoke(app, words).exit_code == 0
    both = ("--seed", "0", "--seed", "1")
    found = [(row["hours"], row["hours from"]) for row in plan(tiny_file, results, *both)]
    assert found == [(None, None), (None, None), (0.0, ""), (1.5, "1 run")]
    found = [(row["hours"], row["hours from"]) for row in plan(tiny_file, results, *both, "--estimate")]
    assert found == [(1.0, "a few steps"), (1.0, "a few steps"), (0.0, ""), (1.5, "1 run")]
    words = ["run", str(tiny_file), "--results", str(results), "--dry-run", *both]
    text = CliRunner().invoke(app, words).stdout
    assert re.search("^total: 1 h 30 min, for 1 of 3 runs to train; at most .* each$", text, re.M)
    text = CliRunner().invoke(app, [*words, "--estimate", "--jobs", "2"]).stdout
    assert "total: 2 h 30 min with 2 jobs, for 3 of 3 runs to train" in text
    text = CliRunner().invoke(app, [*words, "--model", "msssm-s6"]).stdout
    assert "total: --, for 0 of 2 runs to train" in text


def test_an_estimate_is_of_a_plan(tiny_file: Path) -> None:
    done = CliRunner().invoke(app, ["run", str(tiny_file), "--estimate"])
    assert done.exit_code == 2
    assert "--estimate goes with --dry-run" in done.stderr


@pytest.mark.parametrize("action", ["resume", "retry"])
def test_a_stopped_run_has_less_left(tmp_path: Path, tiny: Suite, action: str) -> None:
    (tmp_path / "metrics.csv").write_text("epoch,step\n0,8\n1,16\n", encoding="utf-8")
    spec = spec_of(tiny)
    entry = PlannedRun(spec, action, "interrupted", "0" * 12, tmp_path)  # type: ignore[arg-type]
    assert duration.count_done_steps(entry) == 16
    stopped = PlannedRun(spec, action, "", "0" * 12, tmp_path, record_of(spec, steps=20))  # type: ignore[arg-type]
    assert duration.count_done_steps(stopped) == 20
    assert duration.count_done_steps(entry_of(spec)) == 0
