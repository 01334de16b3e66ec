"""The Python API: what it returns is what the commands write, and it raises instead of exiting."""

import ast
import inspect
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import TINY_SUITE
from least_record import LEAST
from test_structure import PACKAGE
from torch import nn
from typer.testing import CliRunner

import msbench
from msbench import api
from msbench.cli import app
from msbench.errors import CheckpointError, ConfigError, DamagedRecord, DataError, Undecided, UnknownName
from msbench.reporting.render.latex import render_fragment
from msbench.results import frame as frames
from msbench.results.record import RunRecord
from msbench.runs.plan import PlannedRun
from msbench.training.loop import Trainer

HEAVY = ("torch", "pandas", "numpy", "pydantic", "typer", "rich", "lightning_fabric", "matplotlib")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> tuple[Path, api.Records]:
    """A results folder with the runs of the tiny suite, which tests copy, and their records."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "tiny.yaml").write_text(TINY_SUITE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MSBENCH_DATA", str(shared_data))
        records = msbench.run(msbench.plan(folder / "tiny.yaml", results=folder / "results"))
    return folder / "results", records


@pytest.fixture
def trained(made: tuple[Path, api.Records], tmp_path: Path) -> api.Records:
    """The records of the tiny suite, trained in ``results`` of the temporary folder."""
    shutil.copytree(made[0], tmp_path / "results")
    return made[1]


def test_import_is_light_and_quick() -> None:
    code = f"import sys, msbench; dir(msbench); print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_are_those_that_are_exported() -> None:
    named = {*api.__all__, "results"}
    assert set(msbench.__all__) == named <= set(dir(msbench))
    assert all(getattr(msbench, name).__doc__ for name in named)
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        msbench.rum  # type: ignore[attr-defined]  # noqa: B018


def test_types_are_those_of_the_functions() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    typed = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("msbench.")
        for alias in node.names
    }
    assert typed == set(msbench.__all__)
    assert (PACKAGE / "py.typed").exists()
    called = inspect.signature(type(sys.modules["msbench.results"]).__call__)
    assert list(called.parameters.values())[1:] == list(
        inspect.signature(frames.read_frame).parameters.values()
    )


def test_a_plan_says_what_would_be_done(tiny_file: Path, tmp_path: Path) -> None:
    suite = msbench.load_suite(tiny_file)
    assert len(repr(suite)) < 800
    plan = msbench.plan(suite, models=["mamba"], seeds=[3, 4], results=tmp_path / "results")
    assert [(entry.spec.model_name, entry.spec.seed) for entry in plan] == [("mamba", 3), ("mamba", 4)]
    assert list(plan.to_frame()["seed"]) == [3, 4]
    (entry,) = msbench.plan(suite, models="mamba", tasks=plan[0].spec.task, seeds=3)
    assert entry.spec == plan[0].spec
    assert "mamba" in plan._repr_html_()
    assert "mamba" in repr(plan)
    assert not (tmp_path / "results").exists()


def test_settings_are_given_as_a_mapping_or_as_texts(tiny_file: Path) -> None:
    wanted = {"train.lr": 1e-3, "train.clip": None, "data.source": "generated", "train.bucketing": False}
    texts = ["train.lr=1e-3", "train.clip=null", "data.source=generated", "train.bucketing=false"]
    specs = [[entry.spec for entry in msbench.plan(tiny_file, overrides=each)] for each in (wanted, texts)]
    assert specs[0] == specs[1]
    assert specs[0][0].train.lr == 1e-3
    assert msbench.plan(tiny_file, overrides="train.lr=1e-3")[0].spec.train.lr == 1e-3


def test_errors_are_raised(tiny_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'quick'"):
        msbench.load_suite("quik")
    with pytest.raises(ConfigError, match=r"--set train\.lrr"):
        msbench.plan(tiny_file, overrides={"train.lrr": 1})
    with pytest.raises(UnknownName, match="did you mean 'mamba'"):
        msbench.plan(tiny_file, models=["mambo"])
    with pytest.raises(Undecided, match="nothing has been run"):
        msbench.report(tiny_file, results=tmp_path)
    with pytest.raises(ConfigError, match="no run"):
        msbench.load_model("abc", results=tmp_path)
    missing = msbench.plan(
        "listops", models=["mamba"], overrides=["data.source=release"], results=tmp_path / "r"
    )
    with pytest.raises(DataError, match="msbench setup listops --from"):
        msbench.run(missing)


def test_runs_return_the_records_of_the_command(
    trained: api.Records, tiny_file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = CliRunner().invoke(app, ["run", str(tiny_file), "--results", str(tmp_path / "results"), "--json"])
    assert [record.model_dump(mode="json") for record in trained] == json.loads(done.stdout)
    again = msbench.run(msbench.plan(tiny_file, results=tmp_path / "results"))
    assert list(again) == list(trained)
    fresh = msbench.plan(tiny_file, models=["mamba"], results=tmp_path / "results", fresh=True)
    assert msbench.run(fresh)[0].metrics == trained[1].metrics
    assert capfd.readouterr() == ("", "")  # progress is for terminals
    assert trained[0].run_id in repr(trained)
    assert trained[0].run_id in trained._repr_html_()


def test_a_failed_run_is_returned_with_its_status(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Trainer.run

    def run(self: Trainer) -> None:
        if self.spec.model_name == "mamba":
            raise RuntimeError("broke")
        original(self)

    monkeypatch.setattr(Trainer, "run", run)
    plan = msbench.plan(tiny_file, results=tmp_path / "results")
    records = msbench.run(plan)
    assert [record.status for record in records] == ["finished", "failed"]
    assert "RuntimeError: broke" in repr(records)
    with pytest.raises(ConfigError, match="is failed: it has no trained model"):
        msbench.load_model(records[1], results=tmp_path / "results")
    next((tmp_path / "results").rglob("msssm-s6/*/run.json")).write_text("{", encoding="utf-8")
    with pytest.raises(DamagedRecord, match="1 of these runs"):
        msbench.run(plan)


def test_results_are_a_row_for_each_run(trained: api.Records, tmp_path: Path) -> None:
    frame = msbench.results(tmp_path / "results")
    by_id = frame.set_index("run_id")
    for record in trained:
        row = by_id.loc[record.run_id]
        assert row["result"] == record.result
        assert row["best_epoch"] == record.metrics["best_epoch"]
        assert row["train.lr"] == record.spec["train"]["lr"]
    assert {frame[name].dtype.kind for name in ("result", "train_seconds", "train.lr", "chance")} == {"f"}
    assert {frame[name].dtype.kind for name in ("seed", "parameters", "train.epochs", "steps")} == {"i"}
    assert isinstance(frame["ended"].dtype, pd.DatetimeTZDtype)
    assert frame["status"].eq("finished").all()
    assert len(msbench.results(tmp_path / "results", suite="other")) == 0
    assert list(msbench.results(tmp_path / "none").columns) == list(frames.COLUMNS)


def test_an_unreadable_record_is_left_out_with_a_warning(trained: api.Records, tmp_path: Path) -> None:
    path = next((tmp_path / "results").rglob("run.json"))
    path.write_text("{", encoding="utf-8")
    with pytest.warns(UserWarning, match="not a run record") as caught:
        assert len(msbench.results(tmp_path / "results")) == len(trained) - 1
    assert caught[0].filename == __file__


@pytest.mark.usefixtures("handmade_records")
def test_runs_that_failed_have_missing_numbers() -> None:
    failure = {"type": "RuntimeError", "message": "broke"}
    record = RunRecord.model_validate(LEAST | {"status": "failed", "metrics": {}, "failure": failure})
    frame = frames.build_frame([record])
    assert np.isnan(frame["result"][0])
    assert frame["result"].dtype.kind == "f"
    assert frame["failure"][0] == "RuntimeError: broke"
    assert pd.isna(frame["started"][0])


def test_tables_show_themselves(trained: api.Records, tiny_file: Path, tmp_path: Path) -> None:
    tables = msbench.report(tiny_file, results=tmp_path / "results")
    assert [table.table.id for table in tables] == ["tiny"]
    (of_loaded,) = msbench.report(msbench.load_suite(tiny_file), results=tmp_path / "results")
    assert repr(of_loaded) == repr(tables[0])
    frame = tables[0].to_frame()
    expected = {record.model: 100 * (record.result or 0) for record in trained}
    measured = frame[frame["model"] != ""].set_index("model")["measured"]
    assert measured.to_dict() == pytest.approx(expected)
    assert frame["best"].dtype == bool
    assert tables[0].to_latex() == render_fragment(tables[0].table)
    html = tables[0]._repr_html_()
    assert "<th" in html
    assert "mamba" in html
    assert "Tiny ListOps" in repr(tables[0])
    judged = msbench.report(tiny_file, results=tmp_path / "results", versus="mamba")
    assert "mamba" in repr(judged[0])


@pytest.mark.usefixtures("trained")
def test_a_table_is_the_same_text_in_a_notebook(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (table, *_) = msbench.report(tiny_file, results=tmp_path / "results")
    expected = repr(table)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert repr(table) == expected


@pytest.mark.usefixtures("trained")
def test_text_of_files_is_escaped_in_a_notebook(tiny_file: Path, tmp_path: Path) -> None:
    text = tiny_file.read_text(encoding="utf-8")
    tiny_file.write_text(text.replace("Tiny ListOps", "<script>alert(1)</script>"), encoding="utf-8")
    html = msbench.report(tiny_file, results=tmp_path / "results")[0]._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def predict_test_split(model: nn.Module, entry: PlannedRun) -> float:
    assert entry.dataset is not None
    split = entry.dataset.splits["test"]
    batch = split.batch(np.arange(len(split)))
    with torch.no_grad():
        logits = model(torch.from_numpy(batch.inputs), torch.from_numpy(batch.lengths))
    return float((logits.argmax(1).numpy() == batch.labels).mean())


def test_a_loaded_model_predicts_as_it_was_tested(
    trained: api.Records, tiny_file: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    plan = msbench.plan(tiny_file, results=results)
    for entry, record in zip(plan, trained, strict=True):
        folder = results / record.suite / record.task / record.model / record.run_id
        named: list[str | Path | RunRecord] = [
            record,
            record.run_id[:8],
            folder,
            f"tiny:listops-tiny:{record.model}",
        ]
        for name in named:
            model = msbench.load_model(name, results=results)
            assert not model.training
            assert predict_test_split(model, entry) == record.result


@pytest.mark.usefixtures("trained")
def test_a_model_without_its_weights_is_an_error(tmp_path: Path) -> None:
    results = tmp_path / "results"
    (path,) = results.rglob("mamba/*/checkpoint/best-*.safetensors")
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(CheckpointError, match="best-"):
        msbench.load_model("tiny:listops-tiny:mamba", results=results)
    assert path.exists()  # nothing was archived
    path.unlink()
    with pytest.raises(CheckpointError, match=r"best-\d+\.safetensors: no such file"):
        msbench.load_model("tiny:listops-tiny:mamba", results=results)


def test_code_that_changed_since_is_a_warning(trained: api.Records, tmp_path: Path) -> None:
    changed = trained[0].model_copy(update={"source_digest": "0" * 64})
    with pytest.warns(UserWarning, match="trained by another version of the code"):
        msbench.load_model(changed, results=tmp_path / "results")


SCRIPT = """
import sys, msbench
sys.ps1 = ">>> "  # as in a notebook
plan = msbench.plan(sys.argv[1], models=["mamba"], overrides={"train.epochs": 400}, results=sys.argv[2])
try:
    msbench.run(plan)
except KeyboardInterrupt as error:
    again = msbench.plan(sys.argv[1], models=["mamba"], overrides={"train.epochs": 400}, results=sys.argv[2])
    print(again[0].action, str(error))
"""


@pytest.mark.usefixtures("trained")  # so that the data are set up
def test_an_interrupt_is_a_keyboard_interrupt_and_the_run_resumes(tiny_file: Path, tmp_path: Path) -> None:
    results = tmp_path / "more"
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tiny_file), str(results)], stdout=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 240
    while not list(results.rglob("metrics.csv")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out.startswith("resume SIGINT: saved")
