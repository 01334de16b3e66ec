"""The page of one run, and whether it would have the same id now."""

from pathlib import Path

import pytest
from made_runs import answered, keep, write_curve

from msbench.config.definition import Definition
from msbench.config.differences import Change
from msbench.reporting.compare.page import Facts, Grid, Part
from msbench.reporting.compare.show import RunStanding, build_page, compare_with_present
from msbench.reporting.outcomes import FoundRun
from msbench.results.record import Failure, RunRecord
from msbench.runs import identity
from msbench.runs.execution import RunContext, execute
from msbench.runs.reproduce import Reproduction
from msbench.runs.suite import Suite, resolve_specs
from msbench.training.metrics import ProgressCallback
from msbench.training.signals import SignalFlag

RUN = "a" * 12


def parts(found: FoundRun, tmp_path: Path) -> dict[str, Part]:
    """Those that hold anything, by the first word of their title."""
    shown = build_page(found, tmp_path, tmp_path / "data")
    filled = [part for part in shown if (part.pairs if isinstance(part, Facts) else part.rows)]
    return {part.title.split(" ")[0]: part for part in filled}


def facts(part: Part) -> dict[str, str]:
    assert isinstance(part, Facts)
    return dict(part.pairs)


def test_the_result_comes_first_with_its_interval(tmp_path: Path) -> None:
    found = answered(tmp_path, RUN, range(60), chance=0.1, baselines={"majority": 0.17}, parameters=67466)
    shown = parts(found, tmp_path)
    title, first = next(iter(shown.items()))
    assert first.title == f"s · t · m · seed 0 · run {RUN}"
    assert title == "s"
    rows = facts(first)
    assert list(rows)[:2] == ["status", "accuracy"]
    assert rows["accuracy"].startswith("70.00%, 95 % interval 63.")
    assert rows["trivial rules"] == "majority 17.00%"
    assert rows["size"] == "67,466 parameters"
    assert "learned" not in rows


def test_classes_that_were_not_scored_stand_with_the_number(tmp_path: Path) -> None:
    metrics = {"test_macro_auroc": 0.93, "classes_scored": 31, "classes_left_out": 40}
    found = keep(tmp_path, RUN, metric="macro-auroc", metrics=metrics)
    assert facts(parts(found, tmp_path)["s"])["macro-auroc"].startswith("93.00%, over 31 of 71 classes")


def test_a_model_that_learned_no_more_than_a_rule_is_named(tmp_path: Path) -> None:
    found = answered(tmp_path, RUN, range(60), baselines={"majority": 0.17, "top 1 level": 0.71})
    rows = facts(parts(found, tmp_path)["s"])
    assert rows["learned"] == "no more than the trivial rule 'top 1 level' explains"
    below = answered(tmp_path, RUN, range(60), baselines={"majority": 0.17, "top 2 levels": 0.9})
    assert (
        facts(parts(below, tmp_path)["s"])["learned"]
        == "no more than the trivial rule 'top 2 levels' explains"
    )


def test_a_failed_run_says_what_failed(tmp_path: Path) -> None:
    failure = Failure(type="Diverged", message="not finite at step 3: [w] is nan", step=3)
    found = keep(tmp_path, RUN, status="diverged", failure=failure)
    rows = facts(parts(found, tmp_path)["s"])
    assert rows["status"] == "diverged"
    assert rows["failure"] == "Diverged: not finite at step 3: [w] is nan"
    assert "accuracy" not in rows


def test_a_suite_that_is_not_known_here_is_named(tmp_path: Path) -> None:
    rows = facts(parts(keep(tmp_path, RUN), tmp_path)["to"])
    assert "no command: unknown suite 's'" in rows[""]


def test_a_record_of_an_older_version_is_shown(tmp_path: Path) -> None:
    shown = parts(keep(tmp_path, RUN, spec={}), tmp_path)
    assert set(shown) == {"s", "to", "with", "settings", "files"}
    assert "unknown: its settings are invalid now" in facts(shown["with"])["id"]


def test_the_curve_marks_the_best_epoch_and_fits_a_screen(tmp_path: Path) -> None:
    metrics = {"validation_macro_auroc": 0.169, "best_epoch": 70}
    found = keep(tmp_path, RUN, metric="macro-auroc", metrics=metrics)
    write_curve(found, [0.1 + 0.001 * (epoch if epoch < 70 else 0) for epoch in range(100)])
    part = parts(found, tmp_path)["learning"]
    assert isinstance(part, Grid)
    assert "11 of 100 epochs" in part.title
    assert [row[0] for row in part.rows if "*" in str(row[0])] == ["70*"]
    assert (part.rows[0][0], part.rows[-1][0]) == ("1", "100")
    assert facts(parts(found, tmp_path)["s"])["validation"] == "16.90% in epoch 70, which was kept"
    widths = [max(len(str(row[column])) for row in (part.header, *part.rows)) for column in range(5)]
    assert 2 + sum(widths) + 2 * 4 <= 80

    (found.folder / "metrics.csv").write_text("epoch\n0\n", encoding="utf-8")
    assert "not the metrics of a run" in facts(parts(found, tmp_path)["learning"])[""]


def test_where_and_when_it_ran(tmp_path: Path) -> None:
    attempts = [{"started": "1", "host": "one"}, {"started": "2", "kernel": "cpp"}]
    found = keep(
        tmp_path,
        RUN,
        started="2026-01-01T00:00:00+00:00",
        timing={"train_seconds": 1234.5, "test_seconds": 1.0, "tokens_per_second": 1e4},
        steps=939,
        resumed=1,
        attempts=attempts,
        environment={
            "device": "cuda",
            "gpus": ["H100"],
            "git": {"commit": "c0ffee", "dirty": True},
            "tf32": False,
            "cudnn": {"tf32": True},
            "container": None,
        },
    )
    shown = parts(found, tmp_path)
    assert facts(shown["time"])["training"] == "1,234.5 s, 939 steps, 10,000 tokens/s"
    assert facts(shown["ran"]) == {
        "hardware": "H100",
        "device": "cuda",
        "gpus": "[H100]",
        "git": "commit c0ffee, dirty true",
        "tf32": "false",
        "cudnn": "tf32 true",
    }
    attempt = shown["attempts"]
    assert isinstance(attempt, Grid)
    assert (attempt.header, list(attempt.rows)) == (
        ("started", "host", "kernel"),
        [("1", "one", None), ("2", None, "cpp")],
    )


def test_files_have_their_sizes(tmp_path: Path) -> None:
    found = answered(tmp_path, RUN, [1])
    (found.folder / "checkpoint").mkdir()
    (found.folder / "checkpoint" / "best-2.safetensors").write_bytes(bytes(1234))
    (found.folder / "run.lock").touch()
    part = parts(found, tmp_path)["files"]
    assert isinstance(part, Grid)
    assert [row[0] for row in part.rows] == [
        "checkpoint/best-2.safetensors",
        "predictions.parquet",
        "run.json",
    ]
    assert part.rows[0][1] == "1,234"


def test_what_keeps_it_from_being_the_same_run_is_counted_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tuple(Change("source", f"{number:02}.py", "a" * 16, "b" * 16) for number in range(20))
    now = RunStanding("0" * 12, "", (*files, Change("data", "data", "c" * 64, "d" * 64)))
    monkeypatch.setattr("msbench.reporting.compare.show.compare_with_present", lambda *_: now)
    planned = Reproduction(("msbench", "run"), "", (Change("setting", "train.lr", 0.1, 1e-5),))
    monkeypatch.setattr("msbench.reporting.compare.show.build_reproduction", lambda *_: planned)
    shown = parts(keep(tmp_path, RUN), tmp_path)
    rows = facts(shown["with"])
    assert rows["id"] == f"another, {'0' * 12}: data, source changed"
    assert rows["data"] == f"{'c' * 8} → {'d' * 8}"
    assert rows["00.py"] == f"{'a' * 8} → {'b' * 8}"
    assert rows[""] == "and 8 more files"
    assert facts(shown["different"]) == {"train.lr": "1e-05 (planned: 0.1)"}


@pytest.fixture
def record(tiny: Suite, tmp_path: Path, data_folder: Path) -> RunRecord:
    spec = resolve_specs(tiny, ["mamba"], overrides=["train.max_steps=1"])[0]
    found = execute(
        spec, RunContext(tmp_path / "results", data_folder, "cpu", SignalFlag()), ProgressCallback()
    )
    assert found is not None
    return found


def test_a_run_of_today_stands(record: RunRecord, data_folder: Path) -> None:
    found = compare_with_present(record, data_folder)
    assert (found.run_id, found.reason, found.changes) == (record.run_id, "", ())


def test_files_that_changed_are_named(
    record: RunRecord, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_source(monkeypatch)
    found = compare_with_present(record, data_folder)
    assert found.run_id not in (None, record.run_id)
    assert [(change.kind, change.name, change.now) for change in found.changes] == [
        ("source", "models/mamba.py", "new")
    ]
    unnamed = compare_with_present(record.model_copy(update={"sources": {}}), data_folder)
    assert [change.name for change in unnamed.changes] == ["all source files"]


def test_other_data_are_named(record: RunRecord, data_folder: Path) -> None:
    found = compare_with_present(record.model_copy(update={"data_digest": "0" * 64}), data_folder)
    # The id is made from the data that are here, which are those it was run on.
    assert found.run_id == record.run_id
    assert [(change.kind, change.now) for change in found.changes] == [("data", record.data_digest)]


def test_without_data_only_the_source_can_be_compared(record: RunRecord, tmp_path: Path) -> None:
    found = compare_with_present(record, tmp_path / "nowhere")
    assert found.run_id is None
    assert "msbench setup listops" in found.reason
    assert found.changes == ()
    assert not (tmp_path / "nowhere").exists()


def test_settings_that_are_not_understood_any_more_say_so(record: RunRecord, data_folder: Path) -> None:
    spec = {**record.spec, "model_name": "mambo"}
    found = compare_with_present(record.model_copy(update={"spec": spec}), data_folder)
    assert found.run_id is None
    assert "did you mean 'mamba'" in found.reason


def test_a_setting_that_came_later_changes_the_id(record: RunRecord, data_folder: Path) -> None:
    train = {key: value for key, value in record.spec["train"].items() if key != "clip"}
    older = record.model_copy(update={"spec": {**record.spec, "train": train}, "spec_digest": "0" * 64})
    found = compare_with_present(older, data_folder)
    assert [str(change) for change in found.changes] == ["train.clip absent → null"]


def change_source(monkeypatch: pytest.MonkeyPatch) -> None:
    original = identity.define

    def changed(roots: tuple[str, ...], own: identity.Sources = ()) -> Definition:
        return Definition(digest="0" * 64, files={**original(roots, own).files, "models/mamba.py": "new"})

    monkeypatch.setattr(identity, "define", changed)
