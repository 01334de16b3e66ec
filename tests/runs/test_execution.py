"""One spec to one record: what is kept, what is trained again, how a failure is recorded."""

import errno
import os
import re
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd
import pytest
import torch

from msbench import datasets, models
from msbench.config import RunSpec
from msbench.errors import ConfigError, DamagedRecord, DataError, Interrupted
from msbench.results import files, store
from msbench.results.record import RunRecord, read_record
from msbench.runs import execution as execute
from msbench.runs.execution import RunContext
from msbench.runs.suite import Suite, resolve_specs
from msbench.training import checkpoint
from msbench.training.loop import Trainer
from msbench.training.metrics import ProgressCallback
from msbench.training.signals import SignalFlag


@pytest.fixture
def place(tmp_path: Path, data_folder: Path) -> RunContext:
    return RunContext(tmp_path / "results", data_folder, "cpu", SignalFlag())


@pytest.fixture
def spec(tiny: Suite) -> RunSpec:
    return resolve_specs(tiny, ["mamba"])[0]


def run(spec: RunSpec, place: RunContext, *, fresh: bool = False) -> RunRecord:
    record = execute.execute(spec, place, ProgressCallback(), fresh=fresh)
    assert record is not None
    return record


def folder(place: RunContext, record: RunRecord) -> Path:
    return place.results / record.suite / record.task / record.model / record.run_id


def test_a_record_says_all_that_a_number_needs(spec: RunSpec, place: RunContext) -> None:
    record = run(spec, place)
    assert record.status == "finished"
    assert record.n_test == 20
    assert record.steps == 3 * 8
    assert 0 <= record.metrics["test_accuracy"] <= 1
    assert {"majority", "root operator only"} <= set(record.baselines)
    assert torch.__version__.startswith(record.environment["packages"]["torch"])
    assert record.parameters == models.count_parameters(
        models.build(spec.model_name, spec.model, datasets.open_dataset(spec.data, place.data_root).info, 0)
    )
    assert read_record(folder(place, record)) == record
    assert [attempt["kernel"] for attempt in record.attempts] == [record.kernel]
    names = {path.name for path in folder(place, record).iterdir()}
    assert names == {"run.json", "metrics.csv", "predictions.parquet", "checkpoint", "run.lock", "run.log"}


def test_predictions_agree_with_the_record(spec: RunSpec, place: RunContext) -> None:
    record = run(spec, place)
    frame = pd.read_parquet(folder(place, record) / "predictions.parquet")
    assert list(frame["example"]) == list(range(20))
    assert frame["correct"].mean() == record.metrics["test_accuracy"]
    logits = frame[[f"logit_{index}" for index in range(10)]].to_numpy()
    assert (logits.argmax(axis=1) == frame["predicted"]).all()
    batch = datasets.open_dataset(spec.data, place.data_root).splits["test"].batch(np.arange(20))
    assert (frame["label"] == batch.labels).all()
    assert (frame["length"] == batch.lengths).all()
    assert frame["depth"].between(1, 10).all()
    assert frame["reach"].between(2, frame["length"]).all()


def test_the_test_split_is_read_with_the_best_epochs_weights(spec: RunSpec, place: RunContext) -> None:
    record = run(spec, place)
    rows = pd.read_csv(folder(place, record) / "metrics.csv").dropna(
        subset="validation_loss", ignore_index=True
    )
    assert record.metrics["validation_accuracy"] == rows["validation_accuracy"].max()
    assert record.metrics["best_epoch"] == 1 + rows["validation_accuracy"].argmax()


def test_a_finished_run_is_kept_and_fresh_sets_it_aside(
    spec: RunSpec, place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(spec, place)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", lambda _self: pytest.fail("trained again"))
        assert run(spec, place) == first
    again = run(spec, place, fresh=True)
    assert again.run_id == first.run_id
    assert again.metrics == first.metrics
    assert (folder(place, first).with_name(f"{first.run_id}.old-1") / "run.json").exists()


def test_a_run_that_diverges_is_recorded_and_not_repeated(
    spec: RunSpec, place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    exploding = spec.model_copy(update={"train": spec.train.model_copy(update={"lr": 1e30})})
    record = run(exploding, place)
    assert record.status == "diverged"
    assert record.metrics == {}
    assert record.failure is not None
    assert record.failure.step is not None
    assert record.failure.name
    monkeypatch.setattr(Trainer, "run", lambda _self: pytest.fail("trained again"))
    assert run(exploding, place) == record


def test_a_crash_is_recorded_with_its_traceback_and_retried(
    spec: RunSpec, place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(_self: Trainer) -> None:
        raise ZeroDivisionError("shape [1,2] of [/s4]")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", crash)
        record = run(spec, place)
    assert record.status == "failed"
    assert record.failure is not None
    assert record.failure.message == "shape [1,2] of [/s4]"
    log = folder(place, record) / "run.log"
    assert "Traceback (most recent call last)" in (text := log.read_text())
    assert "failed: ZeroDivisionError: shape [1,2] of [/s4]" in text
    assert run(spec, place).status == "finished"
    assert log.read_text().startswith(text)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried 3 GiB\nmore"), "CUDA out of memory. Tried 3 GiB"),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory:"
                " you tried to allocate 9000000000000 bytes. Error code 12 (Cannot allocate memory)\nmore"
            ),
            "can't allocate memory: you tried to allocate 9000000000000 bytes. Error code 12",
        ),
        (MemoryError(), "MemoryError"),
    ],
)
def test_too_little_memory_has_a_status_of_its_own(
    spec: RunSpec, place: RunContext, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def exhaust(_self: Trainer) -> None:
        raise error

    monkeypatch.setattr(Trainer, "run", exhaust)
    record = run(spec, place)
    assert record.status == "out-of-memory"
    assert record.failure is not None
    assert record.failure.message.startswith(message)
    assert (
        " are free on cpu now; try --set train.micro_batch=auto (the same results), or a smaller train."
        in (record.failure.message)
    )
    assert "\n" not in record.failure.message


def test_pieces_of_a_batch_are_no_advice_where_batch_norm_needs_it_whole(
    tiny: Suite, place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhaust(_self: Trainer) -> None:
        raise MemoryError

    monkeypatch.setattr(Trainer, "run", exhaust)
    failure = run(resolve_specs(tiny, ["msssm-s6"])[0], place).failure
    assert failure is not None
    assert "micro_batch" not in failure.message
    assert "a smaller train.batch_size than 8" in failure.message


def test_how_a_run_is_executed_is_recorded_and_no_part_of_it(tiny: Suite, place: RunContext) -> None:
    whole, pieces = (
        resolve_specs(tiny, ["mamba"], overrides=each)[0] for each in ([], ["train.micro_batch=3"])
    )
    assert whole.digest == pieces.digest
    record = run(pieces, place)
    assert "micro_batch" not in record.spec["train"]
    assert (record.environment["micro_batch"], record.environment["devices"]) == (3, 1)
    assert (record.attempts[0]["micro_batch"], record.attempts[0]["devices"]) == ("3", "1")
    assert run(whole, place) == record


def test_an_interrupted_run_is_recorded_and_resumes(spec: RunSpec, place: RunContext) -> None:
    place.signals.received = 15
    with pytest.raises(Interrupted):
        run(spec, place)
    (record,), _ = store.read_records(place.results)
    assert record.status == "interrupted"
    assert record.metrics == {}
    assert record.steps == 1
    place.signals.received = None
    finished = run(spec, place)
    assert (finished.resumed, len(finished.attempts)) == (1, 2)


def test_a_run_that_another_process_trains_is_left_to_it(spec: RunSpec, place: RunContext) -> None:
    record = run(spec, place)
    with store.lock_run(folder(place, record), wait=False) as mine:
        assert mine
        assert (
            execute.execute(spec, place, ProgressCallback(), wait=False) == record
        )  # nothing is left to wait for
        (folder(place, record) / "run.json").unlink()
        assert execute.execute(spec, place, ProgressCallback(), wait=False) is None


def test_fresh_resumes_what_was_stopped(spec: RunSpec, place: RunContext) -> None:
    place.signals.received = 15
    with pytest.raises(Interrupted):
        run(spec, place)
    place.signals.received = None
    assert run(spec, place, fresh=True).resumed == 1


def test_a_damaged_record_is_reported_and_fresh_archives_it(spec: RunSpec, place: RunContext) -> None:
    record = run(spec, place)
    (folder(place, record) / "run.json").write_text("{", encoding="utf-8")
    with pytest.raises(DamagedRecord, match="train again with --fresh"):
        run(spec, place)
    assert run(spec, place, fresh=True).metrics == record.metrics


def test_damaged_weights_of_the_best_epoch_are_not_for_ever(spec: RunSpec, place: RunContext) -> None:
    record = run(spec, place)
    (folder(place, record) / "run.json").unlink()
    (best,) = (folder(place, record) / "checkpoint").glob("best-*.safetensors")
    best.write_bytes(best.read_bytes()[:-8])
    assert run(spec, place).status == "failed"
    assert run(spec, place).metrics == record.metrics


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ESTALE, errno.ENOMEM, errno.ENODEV])
def test_best_weights_that_cannot_be_opened_cost_no_training(
    spec: RunSpec, place: RunContext, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    plain = files.read_bytes

    def failing(path: Path, largest: int | None) -> bytes:
        if path.name.startswith("best-"):
            raise OSError(number, os.strerror(number), str(path))
        return plain(path, largest)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "read_bytes", failing)
        record = run(spec, place)
    assert record.status == "failed"
    assert record.failure is not None
    assert f"cannot be read: {os.strerror(number)}; see to it, or remove it" in record.failure.message
    monkeypatch.setattr(Trainer, "_step", lambda *_: pytest.fail("trained again"))
    finished = run(spec, place)
    assert (finished.status, finished.steps, finished.resumed) == ("finished", record.steps, 1)


@pytest.mark.parametrize("section", ["data", "model", "train"])
def test_what_no_record_could_hold_is_found_before_training(
    spec: RunSpec, place: RunContext, monkeypatch: pytest.MonkeyPatch, section: str
) -> None:
    """Whatever the specs let pass: a finished training is never thrown away by its own record."""
    monkeypatch.setattr(Trainer, "run", lambda _self: pytest.fail("trained"))
    ready = datasets.setup(spec.data, place.data_root)
    monkeypatch.setattr(datasets, "setup", lambda *_, **__: ready)
    key = {"data": "seed", "model": "dt_rank", "train": "batch_size"}[section]
    part = getattr(spec, section).model_copy(update={key: 2**63})
    with pytest.raises(ConfigError, match=r"seed 0: no record could hold spec: .*too large"):
        run(spec.model_copy(update={section: part}), place)


def test_a_model_that_no_record_could_count_is_found_before_training(
    spec: RunSpec, place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "run", lambda _self: pytest.fail("trained"))
    monkeypatch.setattr(models, "count_parameters", lambda _model: 2**63)
    with pytest.raises(ConfigError, match="no record could hold parameters: "):
        run(spec, place)


def test_an_attempt_that_never_began_leaves_the_record_before_it(
    spec: RunSpec, place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> NoReturn:
        raise ZeroDivisionError

    def refuse(*_: object) -> NoReturn:
        raise ConfigError("no such model")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "run", crash)
        record = run(spec, place)
    before = {path: path.read_bytes() for path in folder(place, record).glob("*.*")}
    assert {path.name for path in before} >= {"run.json", "run.log"}
    with monkeypatch.context() as patch:
        patch.setattr(models, "build", refuse)
        with pytest.raises(ConfigError, match="no such model"):
            run(spec, place)
    assert {path: path.read_bytes() for path in folder(place, record).glob("*.*")} == before
    assert run(spec, place).status == "finished"


def test_finished_runs_are_read_where_nothing_can_be_written(
    spec: RunSpec, place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = run(spec, place)
    monkeypatch.setattr(store, "lock_run", lambda *_, **__: pytest.fail("asked for the lock"))
    assert run(spec, place) == record


def test_results_that_are_no_folder_are_refused(spec: RunSpec, place: RunContext, tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file")
    with pytest.raises(ConfigError, match="choose another --results"):
        run(spec, place)


def test_a_full_disk_fails_the_run_and_no_other(
    spec: RunSpec, place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _data: bytes) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("msbench.results.predictions.write_atomically", full)
    record = run(spec, place)
    assert record.status == "failed"
    assert record.failure is not None
    assert record.failure.message.endswith(
        "predictions.parquet: cannot be written: No space left on device;"
        " make room, or choose another --results"
    )
    monkeypatch.setattr("msbench.results.record.write_atomically", full)
    assert run(spec, place).status == "failed"  # and the record itself cannot be written


def test_padding_shorter_than_the_data_is_refused(spec: RunSpec, place: RunContext) -> None:
    short = spec.model_copy(update={"train": spec.train.model_copy(update={"pad_to": 10})})
    with pytest.raises(ConfigError, match="longest of listops-tiny has"):
        run(short, place)


def test_missing_data_is_no_run(spec: RunSpec, place: RunContext) -> None:
    absent = spec.model_copy(update={"data": type(spec.data)(source="release")})  # type: ignore[call-arg]
    with pytest.raises(DataError, match="msbench setup listops --from"):
        run(absent, place)
    assert not place.results.exists()


def test_a_folder_in_the_place_of_the_log_is_one_message(
    spec: RunSpec, place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(trainer: Trainer) -> None:
        (trainer.directory / "run.log").unlink()
        (trainer.directory / "run.log").mkdir()
        raise ZeroDivisionError("a crash")

    record = run(spec, place)
    (folder(place, record) / "run.json").unlink()
    (folder(place, record) / "run.log").unlink()
    (folder(place, record) / "run.log").mkdir()
    found = run(spec, place)
    assert found.failure is not None
    assert re.search(r"run\.log: (Is a directory|Operation not permitted)$", found.failure.message)
    (folder(place, record) / "run.log").rmdir()
    monkeypatch.setattr(Trainer, "run", crash)
    found = run(spec, place)
    assert found.failure is not None
    assert found.failure.message == "a crash"
