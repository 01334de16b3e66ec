"""``msbench mixing`` as a user meets it: which runs it takes, what it keeps, and how it ends."""

import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from msbench import datasets as data
from msbench import models
from msbench.analysis.mixing import command
from msbench.analysis.mixing.measure import measure_model
from msbench.analysis.mixing.options import MeasureOptions, MixingOptions, choose_sample
from msbench.cli import app
from msbench.config import RunSpec
from msbench.errors import ConfigError, DataError, ExitCode, OutOfMemory
from msbench.results import store
from msbench.runs import plan as run_plan
from msbench.runs.identity import identify
from msbench.runs.suite import Suite, load_suite, resolve_specs
from msbench.training.checkpoint import CheckpointFolder, load_weights
from msbench.training.metrics import EpochRow


def msbench(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def documents(*arguments: str | Path) -> list[dict[str, Any]]:
    done = msbench("mixing", *arguments, "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture
def results(tmp_path: Path, tiny_file: Path) -> Path:
    """With a finished run of each model of the tiny suite."""
    results = tmp_path / "results"
    done = msbench("run", tiny_file, "--results", results, "--quiet", "--set", "train.epochs=1")
    assert done.exit_code == 0, done.stderr
    return results


def runs(tiny: Suite) -> list[RunSpec]:
    return resolve_specs(tiny, overrides=["train.epochs=1"])


SHORT = ("--set", "train.epochs=1", "--examples", "4")


def test_a_finished_run_is_measured_with_its_best_weights(
    tiny: Suite, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of its first epoch: its second and third, and the weights at its end, are others."""
    monkeypatch.setattr(EpochRow, "score", property(lambda row: 1 / (1 + row.epoch)))
    results = tmp_path / "results"
    done = msbench("run", tiny_file, "--results", results, "--quiet")
    assert done.exit_code == 0, done.stderr
    found = documents(tiny_file, "--results", results, "--examples", "4")
    assert [(each["model"], each["epoch"]) for each in found] == [("msssm-s6", 1), ("mamba", 1)]
    for spec, each in zip(resolve_specs(tiny), found, strict=True):
        dataset = data.open_dataset(spec.data, data.data_root())
        model = models.build(spec.model_name, spec.model, dataset.info, spec.seed)
        (folder,) = results.glob(f"*/*/{spec.model_name}/*")
        checkpoints = CheckpointFolder(folder / "checkpoint", folder.name)
        split = dataset.splits["test"]
        chosen = choose_sample(len(split), 4)
        assert each["example_ids"] == chosen.tolist()
        batch = split.batch(chosen)
        inputs, lengths = torch.from_numpy(batch.inputs), torch.from_numpy(batch.lengths)
        load_weights(model, checkpoints.load(checkpoints.last).tensors)
        ended = measure_model(model, [(inputs, lengths)], MeasureOptions())
        load_weights(model, checkpoints.load(checkpoints.best_path(1)).tensors)
        expected = measure_model(model, [(inputs, lengths)], MeasureOptions())
        for layer, wanted, other in zip(each["layers"], expected.layers, ended.layers, strict=True):
            rows = {row["example"]: row["mean"] for row in layer["sequences"]}
            means = np.array([rows[i] for i in chosen])
            np.testing.assert_allclose(means, wanted.distance.mean(1), rtol=1e-4)
            assert np.abs(means / other.distance.mean(1) - 1).max() > 1e-2
        assert (each["run_id"], each["trained"]) == (folder.name, True)
        assert each["default_options"] is False
        kept = list((folder / "mixing").iterdir())
        assert [path.name for path in kept] == [f"trained-{each['options_digest'][:12]}.json"]
        assert json.loads(kept[0].read_text(encoding="utf-8")) == each


def test_a_measure_is_reused_until_it_is_requested_afresh(tiny_file: Path, results: Path) -> None:
    words = (tiny_file, "--results", results, "--model", "mamba", *SHORT)
    (first,) = documents(*words)
    (path,) = results.rglob("mixing/*.json")
    path.write_text(json.dumps({**first, "mean": 77.0}), encoding="utf-8")
    assert documents(*words)[0]["mean"] == 77
    assert documents(*words, "--residual")[0]["mean"] < first["mean"]
    assert documents(*words, "--fresh")[0]["mean"] == first["mean"]
    (precise,) = documents(*words, "--dtype", "float64")
    assert precise["mean"] == pytest.approx(first["mean"], rel=1e-4)
    assert precise["mean"] != first["mean"]
    for key in ("source_digest", "run_ended"):
        path.write_text(json.dumps({**first, "mean": 77.0, key: "other"}), encoding="utf-8")
        assert documents(*words)[0]["mean"] == first["mean"]


LONGER = """\
  longer:
    data: {dataset: listops, train: 6, validation: 6, test: 6, min_length: 39, max_length: 61}
"""


def test_a_trained_model_is_measured_on_another_tasks_examples(tiny_file: Path, results: Path) -> None:
    text = tiny_file.read_text(encoding="utf-8")
    tiny_file.write_text(text.replace("model: {d_model", f"{LONGER}model: {{d_model", 1), encoding="utf-8")
    done = msbench(
        "setup",
        "listops",
        *(
            f"--set=data.{part}"
            for part in ("train=6", "validation=6", "test=6", "min_length=39", "max_length=61")
        ),
    )
    assert done.exit_code == 0, done.stderr
    words = (tiny_file, "--results", results, "--task", "listops-tiny", "--model", "mamba", *SHORT)
    (own,), (other,) = documents(*words), documents(*words, "--on", "longer")
    assert other["options"] == {**own["options"], "on": "longer"}
    assert other["run_id"] == own["run_id"]
    lengths = [[row["length"] for row in each["layers"][0]["sequences"]] for each in (own, other)]
    assert max(lengths[0]) <= 20 < 40 <= min(lengths[1])
    assert other["data_digest"] != own["data_digest"]
    assert documents(*words)[0] == own, "both are kept"
    assert documents(*words, "--on", "longer")[0] == other
    done = msbench("mixing", *words, "--on", "longer")
    assert "trained, epoch 1 · on longer" in " ".join(done.stdout.split())


def test_examples_that_a_model_cannot_read_are_refused(tiny_file: Path, results: Path) -> None:
    own, other = (
        data.outline(resolve_specs(load_suite(name), tasks=[task])[0].data)
        for name, task in ((str(tiny_file), "listops-tiny"), ("smnist", "smnist"))
    )
    spec = resolve_specs(load_suite(str(tiny_file)))[0]
    options = MixingOptions(results=results, measure=MeasureOptions(on="smnist"))
    command._require_same_inputs(spec, own, own, options)
    with pytest.raises(ConfigError, match="--on smnist: its kind is 'signal', and the model was built for"):
        command._require_same_inputs(spec, own, other, options)


def test_untrained_models_need_no_run_and_make_none(tiny: Suite, tiny_file: Path, tmp_path: Path) -> None:
    results = tmp_path / "none"
    data.setup(runs(tiny)[0].data, data.data_root())
    found = documents(tiny_file, "--results", results, "--untrained", *SHORT)
    assert [each["trained"] for each in found] == [False, False]
    assert all(path.name.startswith("untrained-") for path in results.rglob("*.json"))
    assert store.read_records(results) == ([], [])
    assert msbench("list", "runs", "--results", results, "--json").stdout.strip() == "[]"
    for entry, each in zip(run_plan.plan_runs(runs(tiny), results, data.data_root()), found, strict=True):
        assert (entry.action, entry.reason, entry.run_id) == ("train", "no run yet", each["run_id"])
    done = msbench("run", tiny_file, "--results", results, "--quiet", "--set", "train.epochs=1")
    assert done.exit_code == 0, done.stderr
    trained = documents(tiny_file, "--results", results, *SHORT)
    assert [each["run_id"] for each in trained] == [each["run_id"] for each in found]
    assert all(one["mean"] != other["mean"] for one, other in zip(trained, found, strict=True))
    assert len(list(results.rglob("mixing/*.json"))) == 4


def test_what_is_not_trained_is_named_with_its_command(tiny_file: Path, results: Path) -> None:
    done = msbench("mixing", tiny_file, "--results", results, *SHORT, "--seed", "0", "--seed", "5", "--quiet")
    assert done.exit_code == ExitCode.UNDECIDED
    assert "listops-tiny · mamba · seed 5 has no finished run (no run yet)" in done.stderr
    again = f"msbench run {tiny_file} --model mamba --task listops-tiny --seed 5 --set train.epochs=1"
    assert again in done.stderr
    assert done.stdout.count("trained, epoch 1") == 2
    nothing = msbench(
        "mixing", tiny_file, "--results", results, "--model", "lstm", "--csv", "--out", results / "out"
    )
    assert nothing.exit_code == ExitCode.UNDECIDED
    assert not (results / "out").exists()


def test_a_diverged_run_is_named_with_the_command_that_trains_it_again(
    tiny_file: Path, results: Path
) -> None:
    (path,) = results.glob("*/*/mamba/*/run.json")
    record = json.loads(path.read_text(encoding="utf-8"))
    failure = {"type": "Diverged", "message": "not finite at step 3"}
    values = {**record, "status": "diverged", "metrics": {}, "failure": failure}
    path.write_text(json.dumps(values), encoding="utf-8")
    done = msbench("mixing", tiny_file, "--results", results, "--model", "mamba", *SHORT)
    assert done.exit_code == ExitCode.UNDECIDED
    assert "has no finished run (diverged: not finite at step 3)" in done.stderr
    assert done.stderr.rstrip().endswith(f"--results {results} --fresh")


def test_lost_weights_are_reported_and_nothing_is_measured(tiny_file: Path, results: Path) -> None:
    (best,) = results.glob("*/*/mamba/*/checkpoint/best-*")
    best.write_bytes(best.read_bytes()[:-9])
    others = set(results.rglob("checkpoint/*"))
    done = msbench("mixing", tiny_file, "--results", results, "--model", "mamba", *SHORT)
    assert done.exit_code == ExitCode.RUN_FAILED
    assert "not a whole checkpoint" in done.stderr
    assert "--model mamba --task listops-tiny --seed 0" in done.stderr
    assert "--fresh" in done.stderr
    assert set(results.rglob("checkpoint/*")) == others
    assert not list(results.rglob("mixing"))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--entries", "l3"), ExitCode.USAGE, "--entries: must be 'l1'"),
        (("--position", "900"), ExitCode.USAGE, "--position 900: no example is that long"),
        (("--examples", "0"), ExitCode.USAGE, "--examples"),
        (("--csv", "--out", "table.csv"), ExitCode.USAGE, "--out table.csv: names a file"),
        (("--model", "mambo"), ExitCode.USAGE, "did you mean 'mamba'"),
        (("--device", "cudo"), ExitCode.USAGE, "did you mean 'cuda'"),
        (("--set", "data.test=21", "--untrained"), ExitCode.DATA, "not set up yet: msbench setup"),
    ],
)
def test_invalid_options_are_refused(
    arguments: tuple[str, ...], code: ExitCode, words: str, tiny_file: Path, results: Path
) -> None:
    done = msbench("mixing", tiny_file, "--results", results, *SHORT, "--quiet", *arguments)
    assert done.exit_code == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(results.rglob("mixing"))


def no_measure(*_: Any) -> None:
    raise AssertionError("measured, though it could not be kept")


def test_unwritable_results_are_reported_before_anything_is_measured(
    tiny: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.setup(runs(tiny)[0].data, data.data_root())
    monkeypatch.setattr(command, "measure_model", no_measure)
    options = MixingOptions(results=tmp_path, measure=MeasureOptions(), trained=False)
    (entry,) = run_plan.plan_runs(runs(tiny)[:1], tmp_path, data.data_root())
    assert entry.directory is not None
    entry.directory.mkdir(parents=True)
    file = entry.directory / "mixing"
    file.touch()
    with pytest.raises(ConfigError, match=rf"{file}: is not writable; choose"):
        command.measure_runs(runs(tiny)[:1], options)
    file.unlink()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match=f"{entry.directory}: is not writable; choose"):
        command.measure_runs(runs(tiny)[:1], options)
    assert not list(entry.directory.iterdir())


def test_missing_data_are_reported_once_before_anything_is_measured(
    tiny: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.setup(runs(tiny)[0].data, data.data_root())
    monkeypatch.setattr(command, "measure_model", no_measure)
    specs = [runs(tiny)[0], resolve_specs(tiny, overrides=["data.test=22"])[1]]
    with pytest.raises(DataError) as caught:
        command.measure_runs(specs, MixingOptions(results=tmp_path, measure=MeasureOptions(), trained=False))
    assert str(caught.value).count("msbench setup") == 1


def test_a_command_that_trains_can_be_pasted(tiny_file: Path, tmp_path: Path) -> None:
    moved = tmp_path / "my suites" / "tiny.yaml"
    moved.parent.mkdir()
    tiny_file.rename(moved)
    assert msbench("setup", moved, "--quiet").exit_code == 0
    results = tmp_path / "my results"
    done = msbench("mixing", moved, "--model", "mamba", "--results", results, "--set", "train.lr=[1e-3]")
    assert done.exit_code == ExitCode.USAGE
    done = msbench("mixing", moved, "--model", "mamba", "--results", results, "--set", "train.epochs = 1")
    assert done.exit_code == ExitCode.UNDECIDED, done.stderr
    words = shlex.split(done.stderr.splitlines()[-1].partition("train it: ")[2])
    assert words[:3] == ["msbench", "run", str(moved)]
    assert words[-4:] == ["--set", "train.epochs = 1", "--results", str(results)]


def test_batches_are_measured_by_the_width_that_they_are_padded_to(
    tiny: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that reads padding gets all of it: 20 short examples are not one batch then."""
    data.setup(runs(tiny)[0].data, data.data_root())
    seen: list[tuple[int, ...]] = []

    def recorded(model: Any, batches: Any, *others: Any) -> Any:
        seen.extend(tuple(inputs.shape) for inputs, _ in batches)
        return measure_model(model, batches, *others)

    monkeypatch.setattr(command, "measure_model", recorded)
    spec = resolve_specs(tiny, overrides=["model.padding=paper", "train.pad_to=1024"])[1]
    command.measure_runs(
        [spec], MixingOptions(results=tmp_path, measure=MeasureOptions(channels=1), trained=False)
    )
    assert sum(examples for examples, _ in seen) == 20
    assert all(width == 1024 and examples <= 4 for examples, width in seen)


def test_too_little_memory_is_reported_first(
    tiny: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data.setup(runs(tiny)[0].data, data.data_root())
    monkeypatch.setattr(command, "measure_free_memory", lambda _: 10_000)
    with pytest.raises(
        OutOfMemory,
        match=r"an example of \d+ positions takes about [\d.]+ kB to measure, and [\d.]+ kB are free",
    ):
        command.measure_runs(
            runs(tiny), MixingOptions(results=tmp_path, measure=MeasureOptions(), trained=False)
        )


def test_a_lack_of_memory_is_reported(tiny: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(*_: Any) -> None:
        raise RuntimeError(words)

    data.setup(runs(tiny)[0].data, data.data_root())
    monkeypatch.setattr(command, "measure_model", run_out)
    options = MixingOptions(results=tmp_path, measure=MeasureOptions(), trained=False)
    for words in ("can't allocate memory: you tried to allocate 9 bytes", "CUDA error: out of memory"):
        with pytest.raises(OutOfMemory, match=f"^msssm-s6: {words}$"):
            command.measure_runs(runs(tiny), options)
    words = "a bug"
    with pytest.raises(RuntimeError, match="a bug"):
        command.measure_runs(runs(tiny), options)
    assert not list(tmp_path.rglob("*.json"))


def test_measuring_is_no_part_of_a_runs_id(tiny: Suite) -> None:
    files = identify(runs(tiny)[0], "").files
    assert "models/ms_ssm.py" in files
    assert not any(name.startswith("analysis/") for name in files)


def test_files_are_written_next_to_the_table(tiny_file: Path, results: Path) -> None:
    out = results / "out"
    done = msbench("mixing", tiny_file, "--results", results, *SHORT, "--csv", "--figure", "--out", out)
    assert done.exit_code == 0, done.stderr
    names = sorted(path.name for path in out.iterdir())
    figures = [
        f"tiny-mixing-{name}.{form}" for name in ("distances", "layers") for form in ("pdf", "png", "svg")
    ]
    assert names == sorted([*figures, "tiny-mixing.csv"])
    assert "sequences up to" in done.stderr
    assert "\x1b" not in done.stdout
    assert "mean ± sd over layers, sequences and output channels; 4 test sequences" in done.stdout


def test_a_record_without_a_best_epoch_is_shown_and_not_measured(tiny_file: Path, tmp_path: Path) -> None:
    place = ("--results", tmp_path / "results")
    assert msbench("run", tiny_file, *place, "--quiet").exit_code == 0
    (path,) = (tmp_path / "results").glob("*/*/mamba/*/run.json")
    record = json.loads(path.read_bytes())
    del record["metrics"]["best_epoch"]
    path.write_text(json.dumps(record), encoding="utf-8")
    shown = msbench("show", record["run_id"], "--suite", tiny_file, *place)
    assert (shown.exit_code, shown.exception) == (0, None)
    forms = ("--html", "--csv", "--latex", "--figures")
    made = msbench("report", tiny_file, *place, *forms, "--out", tmp_path / "out")
    assert made.exit_code == 0, made.stderr
    done = msbench("mixing", tiny_file, *place, "--model", "mamba", "--examples", "4", "--quiet")
    assert done.exit_code == ExitCode.RUN_FAILED
    assert "its record has no best_epoch; train it again: msbench run" in done.stderr
