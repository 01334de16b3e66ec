"""What settings are chosen by: the validation split, and never the test split."""

from pathlib import Path

import numpy as np
import pytest
from compared_runs import answered, kept, report_on
from conftest import TINY_SUITE
from report_runs import PlannedRun, SmallSuite, suite_runs
from typer.testing import CliRunner

from msbench.cli import app
from msbench.reporting.render.terminal import render_table
from msbench.reporting.tables.build import build_table
from msbench.reporting.tables.cells import Table
from msbench.reporting.tables.definitions import define_validation_table
from msbench.reporting.tables.versus import compare_tables

pytestmark = pytest.mark.usefixtures("handmade_records")

N = 500
RIGHT = answered(np.arange(N) < 200)


def made(results: Path, scores: dict[str, list[float]]) -> Table:
    """The table of runs that had these scores on the validation split, and 40 % on the test split."""
    plan, records = [], []
    for model, values in scores.items():
        for seed, score in enumerate(values):
            metrics = {"test_accuracy": RIGHT.accuracy, "validation_accuracy": score}
            records.append(kept(results, model, RIGHT, seed, metrics=metrics).record)
            plan.append(PlannedRun("listops", model, seed))
    runs = suite_runs(plan, records, SmallSuite())
    return build_table(define_validation_table(runs.suite), [runs], [])


def test_it_has_validation_scores_and_nothing_of_the_test_split(tmp_path: Path) -> None:
    table = made(tmp_path, {"mamba": [0.5, 0.52], "s4": [0.6]})
    assert [row.cells[0].measured for row in table.rows] == pytest.approx([51.0, 60.0])
    text = render_table(table)
    assert "On the validation split, to choose settings by: no results." in text
    assert "Unit: validation accuracy in percent" in text
    for word in ("40.00", "Trivial rules", "Test examples", "root operator"):
        assert word not in text


def test_models_are_compared_by_it_over_seeds_alone(tmp_path: Path) -> None:
    table = made(tmp_path, {"mamba": [0.5, 0.52, 0.51], "s4": [0.6, 0.61, 0.62], "lstm": [0.9]})
    text = render_table(compare_tables(report_on(tmp_path, table), "mamba").tables[0])
    assert "better than mamba, p < 0.001 (Holm, Welch over seeds, n = 3 and 3)" in text
    assert "lstm on listops is not compared with mamba: predictions are of the test split only" in text


def test_those_that_one_reason_keeps_from_being_compared_share_a_note(tmp_path: Path) -> None:
    single = {name: [0.9] for name in ("lstm", "s4", "s5", "lru", "dss-softmax")}
    table = made(tmp_path, {"mamba": [0.5, 0.52, 0.51], **single})
    (table,) = compare_tables(report_on(tmp_path, table), "mamba").tables
    (note,) = [note for note in table.notes if "not compared" in note]
    assert note.startswith(
        "lstm, s4, s5 and 2 more on listops are not compared with mamba: predictions are of the test"
    )


@pytest.fixture
def tiny(tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a suite whose one run has been trained."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MSBENCH_DATA", str(data_folder))
    (tmp_path / "tiny.yaml").write_text(TINY_SUITE, encoding="utf-8")
    done = CliRunner().invoke(app, ["run", "./tiny.yaml", "--model", "mamba", "--quiet"])
    assert done.exit_code == 0, done.stderr
    return tmp_path


def test_the_command_shows_it_and_refuses_what_does_not_go_with_it(tiny: Path) -> None:  # noqa: ARG001
    done = CliRunner().invoke(app, ["report", "./tiny.yaml", "--validation", "--csv"])
    assert done.exit_code == 0, done.stderr
    assert "validation accuracy in percent" in done.stdout
    assert Path("reports/tiny-validation.csv").is_file()
    for words, said in (
        (("./tiny.yaml", "--against", "baseline"), "--against: shows test results, so it is not allowed"),
        (("./tiny.yaml", "--html", "--figures"), "--html, --figures: shows test results, so it is not"),
        (("table-2",), "--validation is of suites: name listops"),
    ):
        refused = CliRunner().invoke(app, ["report", *words, "--validation"])
        assert refused.exit_code == 2
        assert said in refused.stderr
