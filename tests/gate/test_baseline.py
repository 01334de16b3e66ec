import json
import subprocess
import sys
from pathlib import Path

import pytest
from check_runs import DATA, GATE, SETTLED, msbench, recorded, run_all, suite_file

from msbench.config.layers import load_yaml
from msbench.errors import ExitCode
from msbench.gate import baseline_file
from msbench.gate.baseline_file import Baseline, find_baselines
from msbench.gate.baselines import CollectedEntries, collect_entries, merge_entries
from msbench.results import files
from msbench.results.store import read_runs
from msbench.runs.suite import load_suite, resolve_specs

ROOT = Path(__file__).resolve().parents[2]
MAMBA, GRIFFIN = SETTLED


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return suite_file(tmp_path, GATE)


def entries(results: Path, path: Path, **options: bool) -> CollectedEntries:
    return collect_entries(load_suite(str(path)), read_runs(results, "small"), results, **options)


def written(results: Path, path: Path) -> Baseline:
    return baseline_file.parse_baseline(load_yaml(results / "baseline" / "small.yaml"), load_suite(str(path)))


class TestCollect:
    def test_every_seed_of_the_protocol_counts_whether_or_not_it_is_planned(
        self, path: Path, tmp_path: Path
    ) -> None:
        run_all(tmp_path, path, (*MAMBA, 0.601, 0.603), GRIFFIN)
        seen = entries(tmp_path, path).entries["listops", "mamba", "cpu"]
        assert (seen.seeds, seen.values) == ((0, 1, 2, 3, 4), (*MAMBA, 0.601, 0.603))
        assert (seen.n, seen.n_test, seen.data, seen.source) == (5, 2000, DATA, "5" * 64)
        assert seen.mean == pytest.approx(0.602)
        assert (seen.margin, seen.reason) == (0.02, "for tests")

    def test_runs_under_overrides_do_not(self, path: Path, tmp_path: Path) -> None:
        (spec, *_) = resolve_specs(load_suite(str(path)), overrides=["train.epochs=2"])
        recorded(tmp_path, spec, 0.9)
        assert entries(tmp_path, path).entries == {}

    def test_classes_of_hardware_are_apart(self, path: Path, tmp_path: Path) -> None:
        run_all(tmp_path, path, MAMBA, ())
        gpu = {"device": "cuda", "gpus": ["NVIDIA H100"]}
        run_all(tmp_path, path, (0.7, 0.71), (), environment=gpu, source_digest="6" * 64)
        found = entries(tmp_path, path)
        assert {place[2]: seen.n for place, seen in found.entries.items()} == {"cpu": 3, "NVIDIA H100": 2}
        assert entries(tmp_path, path, any_hardware=True).left_out == [
            "listops · mamba: runs are on several classes of hardware: NVIDIA H100, cpu"
        ]

    def test_any_hardware_is_a_class_of_its_own(self, path: Path, tmp_path: Path) -> None:
        run_all(tmp_path, path, MAMBA, ())
        assert list(entries(tmp_path, path, any_hardware=True).entries) == [("listops", "mamba", "any")]

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"status": "diverged", "metrics": {}}, "seed 2 diverged"),
            ({"n_test": None}, "number of test examples"),
            ({"n_test": 5}, "number of test examples"),
            (
                {"metrics": {"test_accuracy": 60.0}},
                "values.2: 60 is not a fraction from 0 to 1; is it a percentage?",
            ),
            (
                {"status": "failed", "metrics": {}, "source_digest": "6" * 64, "ended": "2026-02-01"},
                "runs of the present code, or newer ones, are not among these (",
            ),
        ],
    )
    def test_what_cannot_be_held_against_has_no_entry(
        self, changes: dict[str, object], words: str, path: Path, tmp_path: Path
    ) -> None:
        run_all(tmp_path, path, MAMBA[:2], GRIFFIN)
        (spec,) = resolve_specs(load_suite(str(path)), models=["mamba"], seeds=[2])
        recorded(tmp_path, spec, 0.6, **changes)
        found = entries(tmp_path, path)
        assert list(found.entries) == [("listops", "griffin", "cpu")]
        assert words in found.left_out[0]

    @pytest.mark.parametrize("key", ["data_digest", "source_digest"])
    def test_records_without_a_digest_are_reported(self, key: str, path: Path, tmp_path: Path) -> None:
        run_all(tmp_path, path, MAMBA, (), **{key: ""})
        done = msbench("baseline", path, "--results", tmp_path)
        assert done.exit_code == ExitCode.UNDECIDED
        assert f"the records are invalid: {key.split('_')[0]}: " in done.stderr

    def test_records_without_hardware_or_result_are_reported(self, path: Path, tmp_path: Path) -> None:
        (one, *_, other) = resolve_specs(load_suite(str(path)))
        recorded(tmp_path, one, 0.6, environment={})
        recorded(tmp_path, other, None, status="failed")
        found = entries(tmp_path, path)
        assert found.entries == {}
        assert [text.split(": ")[1] for text in found.left_out] == [
            "the records do not name their hardware",
            "no run has a result",
        ]

    def test_the_newest_data_count(self, path: Path, tmp_path: Path) -> None:
        run_all(tmp_path, path, MAMBA, ())
        run_all(tmp_path, path, (0.7,), (), data_digest="e" * 64, ended="2026-03-01T00:00:00+00:00")
        assert entries(tmp_path, path).entries["listops", "mamba", "cpu"].values == (0.7,)


class TestMerged:
    def test_entries_of_other_hardware_stay(self, path: Path, tmp_path: Path) -> None:
        suite = load_suite(str(path))
        run_all(tmp_path, path, MAMBA, GRIFFIN)
        first, changes = merge_entries(suite, None, entries(tmp_path, path))
        assert len(changes) == 2
        gpu = {"device": "cuda", "gpus": ["NVIDIA H100"]}
        run_all(tmp_path / "gpu", path, MAMBA, (), environment=gpu)
        second, changes = merge_entries(suite, first, entries(tmp_path / "gpu", path))
        assert [change.old for change in changes] == [None]
        assert list(second.cells["listops"]["mamba"]) == ["NVIDIA H100", "cpu"]
        assert second.cells["listops"]["griffin"] == first.cells["listops"]["griffin"]

    def test_the_same_numbers_keep_their_date(self, path: Path, tmp_path: Path) -> None:
        suite = load_suite(str(path))
        run_all(tmp_path, path, MAMBA, GRIFFIN)
        first, _ = merge_entries(suite, None, entries(tmp_path, path))
        old = Baseline.model_validate({**first.model_dump(), "cells": aged(first)})
        assert merge_entries(suite, old, entries(tmp_path, path)) == (old, [])


def aged(baseline: Baseline) -> object:
    """Its cells as another version wrote them on another day."""
    return {
        task: {
            model: {
                kind: seen.model_copy(update={"date": "2020-01-01", "msbench": "0.0.1"}).model_dump()
                for kind, seen in classes.items()
            }
            for model, classes in models.items()
        }
        for task, models in baseline.cells.items()
    }


class TestCommand:
    def test_it_says_what_is_new(self, path: Path, tmp_path: Path) -> None:
        run_all(tmp_path, path, MAMBA, GRIFFIN)
        done = msbench("baseline", path, "--results", tmp_path)
        assert done.exit_code == 0, done.stderr
        assert done.stdout.splitlines()[1].split() == (
            ["listops", "mamba", "cpu", "--", "60.20%", "±", "0.20%", "(3)", "new", "2.00%"]
        )
        assert "small.yaml: written" in done.stderr
        assert written(tmp_path, path).cells["listops"]["griffin"]["cpu"].values == GRIFFIN

    def test_the_same_again_changes_nothing(self, path: Path, tmp_path: Path) -> None:
        run_all(tmp_path, path, MAMBA, GRIFFIN)
        msbench("baseline", path, "--results", tmp_path)
        before = (tmp_path / "baseline" / "small.yaml").read_bytes()
        done = msbench("baseline", path, "--results", tmp_path)
        assert (done.exit_code, done.stdout) == (0, "")
        assert "unchanged" in done.stderr
        assert (tmp_path / "baseline" / "small.yaml").read_bytes() == before

    def test_other_numbers_want_to_be_meant(self, path: Path, tmp_path: Path) -> None:
        run_all(tmp_path, path, MAMBA, GRIFFIN)
        msbench("baseline", path, "--results", tmp_path)
        before = (tmp_path / "baseline" / "small.yaml").read_bytes()
        run_all(tmp_path, path, (0.4, 0.41, 0.42), (), source_digest="6" * 64, ended="2026-03-01T00:00:00")
        refused = msbench("baseline", path, "--results", tmp_path)
        assert refused.exit_code == ExitCode.USAGE
        assert "--replace" in refused.stderr
        assert "60.20% ± 0.20% (3) -> 41.00% ± 1.00% (3): -19.20 points, other code" in refused.stderr
        assert refused.stdout == ""
        assert (tmp_path / "baseline" / "small.yaml").read_bytes() == before
        done = msbench("baseline", path, "--results", tmp_path, "--replace", "--json")
        assert done.exit_code == 0
        (change,) = json.loads(done.stdout)
        assert (change["before"]["mean"], change["now"]["mean"]) == pytest.approx((0.602, 0.41))
        assert written(tmp_path, path).cells["listops"]["mamba"]["cpu"].values == (0.4, 0.41, 0.42)

    def test_a_changed_margin_is_a_change(self, path: Path, tmp_path: Path) -> None:
        run_all(tmp_path, path, MAMBA, ())
        msbench("baseline", path, "--results", tmp_path)
        suite_file(tmp_path, "gate: {margin: 0.1, reason: wider}\n")
        refused = msbench("baseline", path, "--results", tmp_path)
        assert refused.exit_code == ExitCode.USAGE
        assert "margin was 2.00%" in refused.stderr

    def test_without_a_result_nothing_is_written(self, path: Path, tmp_path: Path) -> None:
        done = msbench("baseline", path, "--results", tmp_path)
        assert done.exit_code == ExitCode.UNDECIDED
        assert not (tmp_path / "baseline").exists()

    def test_a_file_that_is_no_baseline_is_not_written_over(self, path: Path, tmp_path: Path) -> None:
        run_all(tmp_path, path, MAMBA, GRIFFIN)
        (tmp_path / "notes.yaml").write_text("mine: 1\n")
        done = msbench("baseline", path, "--results", tmp_path, "--out", tmp_path / "notes.yaml", "--replace")
        assert done.exit_code == ExitCode.USAGE
        assert (tmp_path / "notes.yaml").read_text() == "mine: 1\n"

    def test_a_folder_is_no_file(self, path: Path, tmp_path: Path) -> None:
        run_all(tmp_path, path, MAMBA, GRIFFIN)
        done = msbench("baseline", path, "--results", tmp_path, "--out", tmp_path)
        assert done.exit_code == ExitCode.USAGE
        assert "cannot be" in done.stderr

    def test_nothing_else_writes_one(self, path: Path, tmp_path: Path) -> None:
        run_all(tmp_path, path, MAMBA, GRIFFIN)
        msbench("check", path, "--results", tmp_path)
        msbench("check", path, "--results", tmp_path, "--calibrate")
        msbench("report", path, "--results", tmp_path, "--against", "baseline")
        assert not (tmp_path / "baseline").exists()


def test_the_published_baseline_is_found_and_is_of_its_suite(tmp_path: Path) -> None:
    """It is read with the results of another folder too, and pooled seeds make one seed enough."""
    (path,) = find_baselines(tmp_path, "quick")
    suite = load_suite("quick")
    found = baseline_file.parse_baseline(load_yaml(path), suite)
    (models,) = found.cells.values()
    assert set(models) == set(suite.models)
    for classes in models.values():
        assert classes["cpu"].n >= 3
        assert classes["cpu"].margin == suite.gate.for_cell("listops-short", "mamba").margin
    assert find_baselines(tmp_path, "absent") == []


def test_the_package_has_its_baselines(tmp_path: Path) -> None:
    (path,) = find_baselines(tmp_path / "results", "quick")
    assert path.read_bytes() == (ROOT / "results" / "baseline" / "quick.yaml").read_bytes()


def test_an_entry_that_asks_for_no_more_than_a_trivial_rule_is_reported(path: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    run_all(results, path, mamba=(0.6, 0.61), griffin=(0.363, 0.365))
    done = msbench("baseline", path, "--results", results)
    assert done.exit_code == 0
    (line,) = [line for line in done.stderr.splitlines() if "gives" in line]
    given = "36.40% is no more than 'root operator only' gives (36.30%)"
    warning = f"{given}; a model that learns only this rule passes"
    assert line == f"msbench: listops · griffin · cpu: {warning}"


class TestHidden:
    """A baseline in the results hides the committed or installed one of its suite."""

    @pytest.fixture
    def committed(self, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A baseline of three seeds that comes with the package."""
        folder = tmp_path / "installed" / "baseline"
        run_all(tmp_path / "before", path, MAMBA, GRIFFIN)
        out = folder / "small.yaml"
        assert msbench("baseline", path, "--results", tmp_path / "before", "--out", out).exit_code == 0
        own = files.find_own_folder
        monkeypatch.setattr(
            files, "find_own_folder", lambda name: folder if name == "baseline" else own(name)
        )
        return out

    def test_failing_results_do_not_replace_it_by_accident(
        self, committed: Path, path: Path, tmp_path: Path
    ) -> None:
        results = tmp_path / "results"
        run_all(results, path, (0.4, 0.41, 0.42), GRIFFIN)
        assert msbench("check", path, "--results", results).exit_code == ExitCode.GATE_FAILED
        refused = msbench("baseline", path, "--results", results)
        assert refused.exit_code == ExitCode.USAGE
        assert f"would hide {committed}" in refused.stderr
        assert "60.20% ± 0.20% (3) -> 41.00% ± 1.00% (3)" in refused.stderr
        assert not (results / "baseline" / "small.yaml").exists()
        assert msbench("baseline", path, "--results", results, "--replace").exit_code == 0
        checked = msbench("check", path, "--results", results)
        assert checked.exit_code == ExitCode.OK
        assert f"small.yaml hides {committed}, which expects other results: " in checked.stderr
        assert "mamba · cpu: 41.00% ± 1.00% (3) here, 60.20% ± 0.20% (3) there" in checked.stderr

    def test_one_seed_that_hides_three_is_reported(self, committed: Path, path: Path, tmp_path: Path) -> None:
        results = tmp_path / "results"
        run_all(results, path, MAMBA[:1], GRIFFIN[:1])
        assert msbench("baseline", path, "--results", results, "--replace").exit_code == 0
        document = json.loads(msbench("check", path, "--results", results, "--json").stdout)
        (warning,) = document["suites"][0]["warnings"]
        assert str(committed) in warning
        assert "60.00% (1) here, 60.20% ± 0.20% (3) there" in warning

    def test_the_same_numbers_are_no_warning(self, committed: Path, path: Path, tmp_path: Path) -> None:
        results = tmp_path / "before"
        assert msbench("baseline", path, "--results", results, "--out", tmp_path / "x.yaml").exit_code == 0
        (results / "baseline").mkdir()
        (results / "baseline" / "small.yaml").write_bytes(committed.read_bytes())
        assert "hides" not in msbench("check", path, "--results", results).stderr


def test_many_at_once_lose_no_entry(path: Path, tmp_path: Path) -> None:
    """Each reads, merges and writes the one file: eight processes, each with another GPU's results."""
    out = tmp_path / "one.yaml"
    commands = []
    for number in range(8):
        results = tmp_path / f"results-{number}"
        gpu = {"device": "cuda", "gpus": [f"GPU {number:02}"]}
        run_all(results, path, MAMBA, GRIFFIN, environment=gpu)
        options = ["--results", str(results), "--out", str(out)]
        commands.append([sys.executable, "-m", "msbench", "baseline", str(path), *options])
    running = [subprocess.Popen(each, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for each in commands]
    for process in running:
        assert process.wait() == 0, process.communicate()[1]
        process.communicate()
    found = baseline_file.parse_baseline(load_yaml(out), load_suite(str(path)))
    assert list(found.cells["listops"]["mamba"]) == [f"GPU {number:02}" for number in range(8)]


@pytest.mark.parametrize(
    ("margin", "words"),
    [(0.1, "33.00% - 10.00% is not above chance (25.00%)"), (0.2, "a smaller margin can fail")],
)
def test_an_entry_that_anything_passes_is_reported(
    margin: float, words: str, path: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    suite_file(tmp_path, f"gate: {{margin: {margin}, reason: wide}}\n")
    run_all(results, path, (0.33, 0.33), (), chance=0.25, baselines={})
    done = msbench("baseline", path, "--results", results)
    assert done.exit_code == 0
    assert "`check` will call this entry invalid: " in done.stderr
    assert words in done.stderr
    checked = json.loads(msbench("check", path, "--results", results, "--json").stdout)
    assert checked["suites"][0]["cells"][0]["verdict"] == "invalid"
