"""``msbench check`` and ``report`` against the paper's numbers."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from check_runs import GATE, REPORTED, SETTLED, msbench, recorded, run_all, suite_file

from msbench.errors import ExitCode
from msbench.runs.suite import load_suite, resolve_specs

REPORTED_NUMBERS = Path(__file__).parents[2] / "results" / "reported"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


class TestPaper:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return suite_file(tmp_path, REPORTED, GATE, protocol="paper")

    def verdicts(self, path: Path, results: Path) -> tuple[int, dict[str, Any]]:
        done = msbench("check", path, "--against", "paper", "--results", results, "--json")
        (suite,) = json.loads(done.stdout)["suites"]
        return done.exit_code, {cell["model"]: cell for cell in suite["cells"]}

    def test_printed_numbers_are_held_against(self, path: Path, results: Path) -> None:
        run_all(results, path, (0.38, 0.382, 0.381), (0.35, 0.351, 0.352))
        code, found = self.verdicts(path, results)
        assert found["mamba"]["expected"] == pytest.approx(0.3802)
        assert {name: cell["verdict"] for name, cell in found.items()} == {
            "mamba": "pass",
            "griffin": "improved",
        }
        assert code == 0

    def test_cells_without_a_printed_number_are_not_asked_for(self, tmp_path: Path, results: Path) -> None:
        text = suite_file(tmp_path, REPORTED, GATE, protocol="paper").read_text()
        (tmp_path / "small.yaml").write_text(text.replace("  griffin:\n", "  hawk:\n"))
        (spec, *_) = resolve_specs(load_suite(str(tmp_path / "small.yaml")), models=["mamba"])
        recorded(results, spec, 0.38)
        assert list(self.verdicts(tmp_path / "small.yaml", results)[1]) == ["mamba"]

    def test_data_that_are_not_the_published_ones_do_not_count(self, path: Path, results: Path) -> None:
        run_all(results, path, (0.38, 0.382, 0.381), (0.33, 0.331), data_notes=("100 examples",))
        code, found = self.verdicts(path, results)
        assert code == ExitCode.DATA
        assert "100 examples" in found["mamba"]["reason"]

    def test_what_the_protocol_leaves_out_is_no_other_data(self, path: Path, results: Path) -> None:
        run_all(results, path, (0.38, 0.382, 0.381), (0.33, 0.331), data_remarks=("2 records dropped",))
        assert self.verdicts(path, results)[0] != ExitCode.DATA

    def test_a_percentage_of_a_percentage_is_no_expectation(self, tmp_path: Path, results: Path) -> None:
        """Nor where records of an earlier version have no chance level: the task has one."""
        reported = results / "reported"
        shutil.copytree(REPORTED_NUMBERS, reported)
        text = (reported / "listops.csv").read_text(encoding="utf-8")
        (reported / "listops.csv").write_text(text.replace("38.02", "0.60", 1), encoding="utf-8")
        path = suite_file(tmp_path, REPORTED, "gate: {margin: 0.001, reason: narrow}\n", protocol="paper")
        run_all(results, path, (0.38, 0.382, 0.381), (), chance=None, baselines={})
        code, found = self.verdicts(path, results)
        assert code == ExitCode.GATE_FAILED
        assert found["mamba"]["verdict"] == "invalid"
        assert "is it a percentage of a percentage?" in found["mamba"]["reason"]

    def test_results_on_no_example_are_none(self, path: Path, results: Path) -> None:
        run_all(results, path, (0.38, 0.382, 0.381), (), n_test=None)
        assert self.verdicts(path, results)[1]["mamba"]["verdict"] == "invalid"

    def test_one_seed_without_a_known_spread_is_undecided(self, path: Path, results: Path) -> None:
        run_all(results, path, (0.38,), (0.33,))
        code, found = self.verdicts(path, results)
        assert code == ExitCode.UNDECIDED
        assert found["mamba"]["seeds_needed"] == 1

    def test_a_suite_without_a_table_is_refused(self, tmp_path: Path, results: Path) -> None:
        path = suite_file(tmp_path, protocol="paper")
        done = msbench("check", path, "--against", "paper", "--results", results)
        assert done.exit_code == ExitCode.USAGE
        assert "names no table of the paper" in done.stderr

    def test_the_report_can_have_the_verdicts(self, path: Path, results: Path) -> None:
        run_all(results, path, (0.38, 0.382, 0.381), (0.35, 0.351, 0.352))
        done = msbench("report", path, "--against", "paper", "--results", results, "--json")
        assert done.exit_code == 0, done.stderr
        (table,) = json.loads(done.stdout)
        found = {
            row["model"]: row["cells"][0]["judgement"]["verdict"]
            for row in table["rows"]
            if row["cells"][0]["judgement"]
        }
        assert found == {"mamba": "pass", "griffin": "improved"}


def test_a_report_of_a_scaled_suite_is_shown_without_verdicts(tmp_path: Path, results: Path) -> None:
    path = suite_file(tmp_path, GATE)
    run_all(results, path, *SETTLED)
    done = msbench("report", path, "--against", "paper", "--results", results, "--json")
    assert done.exit_code == 0
    assert "without verdicts" in done.stderr
    (table,) = json.loads(done.stdout)
    assert {row["cells"][0]["judgement"] for row in table["rows"]} == {None}


def test_a_table_of_several_suites_has_the_verdicts_of_each(tmp_path: Path) -> None:
    (spec, *_) = resolve_specs(load_suite("scifar"), models=["mamba"])
    recorded(tmp_path, spec, 0.1)
    done = msbench("report", "classification", "--against", "paper", "--results", tmp_path, "--json")
    assert done.exit_code == 0, done.stderr
    (table,) = json.loads(done.stdout)
    assert [column["suite"] for column in table["columns"]] == ["scifar", "imagenet"]
    (found,) = [
        [cell["judgement"] and cell["judgement"]["verdict"] for cell in row["cells"]]
        for row in table["rows"]
        if row["model"] == "mamba" and any(cell["judgement"] for cell in row["cells"])
    ]
    assert found == ["chance-level", "missing"]
