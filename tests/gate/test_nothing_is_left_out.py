"""A gate that is asked for everything does not pass by leaving something out."""

import json
import os
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from check_runs import GATE, PRESENT, SETTLED, SUITE, msbench, recorded, run_all
from typer.testing import Result

from msbench.errors import ExitCode
from msbench.results import store
from msbench.runs.suite import load_suite, resolve_specs

pytestmark = pytest.mark.usefixtures("home")

OTHER = SUITE.replace("name: small", "name: other")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two suites, their runs and their baselines, all of which pass."""
    monkeypatch.chdir(tmp_path)
    for name, text in {"small": SUITE, "other": OTHER}.items():
        path = Path("suites") / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + GATE, encoding="utf-8")
        run_all(Path("results"), path, *SETTLED, source_digest=PRESENT)
        assert msbench("baseline", name).exit_code == 0
    return tmp_path


def check(*options: str) -> tuple[Result, dict[str, Any]]:
    done = msbench("check", "--json", "--junit", "gate.xml", *options)
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout) if done.stdout else {}
    return done, {suite["suite"]: suite for suite in document.get("suites", [])}


def test_all_pass_before() -> None:
    done, suites = check("--strict")
    assert done.exit_code == 0, done.stderr
    assert list(suites) == ["other", "small"]


def edited(old: str, new: str) -> Callable[[], None]:
    def edit() -> None:
        path = Path("suites/small.yaml")
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    return edit


def replaced_by_folder() -> None:
    Path("suites/small.yaml").unlink()
    Path("suites/small.yaml").mkdir()


def looped(place: str) -> Callable[[], None]:
    def loop() -> None:
        shutil.rmtree(place)
        os.symlink(Path(place).name, place)

    return loop


def dangling() -> None:
    shutil.rmtree("results/small")
    os.symlink("gone", "results/small")


@pytest.mark.parametrize(
    ("harm", "codes", "words"),
    [
        (edited("margin: 0.02", "margin: .nan"), {2}, "small.yaml:"),
        (edited("margin: 0.02", "margin: 80"), {2}, "where 0.01 is one point"),
        (edited("  listops:\n", "  listops-typo:\n"), {2}, "small.yaml:"),
        (edited("  griffin:", "  grifin:"), {2}, "'grifin'; did you mean 'griffin'"),
        (edited("name: small", "name: little"), {2}, "must be 'small'"),
        (edited("title:", "title: : :"), {2}, "small.yaml:"),
        (replaced_by_folder, {2}, "small.yaml"),
        (lambda: Path("suites/small.yaml").unlink(), {5}, "no suite of this name"),
        (lambda: Path("suites/small.yaml").rename("suites/small.yml"), {5}, "small.yml? Suites end in .yaml"),
        (lambda: Path("results/small").rename("results/moved"), {5}, "results/moved: no suite of this name"),
        (lambda: shutil.rmtree("results/small"), {5}, "2 missing"),
        (looped("results/small"), {5}, "2 missing"),
        (looped("results/small/listops"), {5}, "2 missing"),
        (dangling, {5}, "2 missing"),
        (lambda: _edit_baseline("griffin:", "grifin:"), {2}, "did you mean 'griffin'"),
        (lambda: _edit_baseline("margin: 0.02", "margin: 0.19"), {2}, "its checksum does not match"),
    ],
)
def test_a_suite_that_cannot_be_checked_is_no_pass(
    harm: Callable[[], Any], codes: set[int], words: str
) -> None:
    """Its neighbour is checked all the same, and a strict gate fails."""
    harm()
    done, suites = check()
    assert done.exit_code in codes, done.stderr
    assert words in msbench("check").stderr
    assert [cell["verdict"] for cell in suites["other"]["cells"]] == ["pass", "pass"]
    root = ElementTree.parse("gate.xml").getroot()
    (testsuite,) = [each for each in root if each.get("name") not in ("other", "moved")]
    assert testsuite.get("name") == "small"
    assert [child.tag for case in testsuite for child in case if child.tag != "system-out"]
    assert check("--strict")[0].exit_code in {ExitCode.USAGE, ExitCode.GATE_FAILED}


def _edit_baseline(old: str, new: str) -> None:
    path = Path("results/baseline/small.yaml")
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_results_that_cannot_be_listed_are_an_error() -> None:
    shutil.rmtree("results")
    os.symlink("results", "results")
    done = msbench("check")
    assert done.exit_code == ExitCode.USAGE
    assert "results: cannot be listed" in done.stderr


def test_a_link_to_itself_hides_no_neighbour() -> None:
    """From `report` and `list runs` neither; both warn of it."""
    for place in ("results/loop", "results/small/loop", "results/small/listops/loop"):
        os.symlink(Path(place).name, place)
    listed = msbench("list", "runs")
    assert len(listed.stdout.splitlines()) == 1 + 12
    for words in ("results/loop: cannot be listed", "results/small/listops/loop: cannot be"):
        assert words in listed.stderr
    report = msbench("report", "--json")
    assert {table["id"] for table in json.loads(report.stdout)} == {"small", "other"}
    assert "results/small/loop: cannot be listed" in report.stderr
    assert check()[0].exit_code == ExitCode.UNDECIDED


class TestThePresentCode:
    """Runs of the code and data that are here speak for it, whatever their clocks say."""

    def test_an_older_result_with_a_future_clock_does_not_displace_it(self) -> None:
        path = Path("suites/small.yaml")
        run_all(Path("results"), path, (0.4, 0.41, 0.42), SETTLED[1], source_digest=PRESENT)
        run_all(Path("results"), path, *SETTLED, ended="2099-01-01T00:00:00+00:00")
        done, suites = check()
        assert [cell["verdict"] for cell in suites["small"]["cells"]] == ["fail", "pass"]
        assert done.exit_code == ExitCode.GATE_FAILED

    def test_a_result_without_a_time_counts(self) -> None:
        path = Path("suites/small.yaml")
        run_all(Path("results"), path, *SETTLED)
        run_all(Path("results"), path, (0.4, 0.41, 0.42), SETTLED[1], source_digest=PRESENT, ended="")
        assert [cell["verdict"] for cell in check()[1]["small"]["cells"]] == ["fail", "pass"]

    @pytest.mark.parametrize("status", ["failed", "interrupted", "out-of-memory"])
    def test_an_attempt_of_it_without_a_result_is_no_pass(self, status: str) -> None:
        """Results of older code are shown, though they ended later."""
        shutil.rmtree("results/small")
        run_all(Path("results"), Path("suites/small.yaml"), *SETTLED, ended="2099-01-01T00:00:00+00:00")
        for spec in resolve_specs(load_suite("small"), models=["mamba"]):
            recorded(Path("results"), spec, None, status=status, source_digest=PRESENT)
        verdicts = [cell["verdict"] for cell in check()[1]["small"]["cells"]]
        assert verdicts == ["inconclusive", "pass"]

    def test_on_other_data_it_is_not_displaced_by_newer_ones(self) -> None:
        """Which data are here is not known: none are set up."""
        path = Path("suites/small.yaml")
        text = path.read_text(encoding="utf-8").replace(
            'reason: "for tests"', 'reason: "for tests", other_data: any'
        )
        path.write_text(text, encoding="utf-8")
        new: dict[str, Any] = {
            "source_digest": PRESENT,
            "data_digest": "e" * 64,
            "ended": "2099-01-01T00:00:00+00:00",
        }
        run_all(Path("results"), path, (0.4, 0.41, 0.42), SETTLED[1], source_digest=PRESENT)
        run_all(Path("results"), path, *SETTLED, **new)
        assert [cell["verdict"] for cell in check()[1]["small"]["cells"]] == ["inconclusive"] * 2

    @pytest.mark.parametrize("harm", ["killed", "damaged", "edited"])
    def test_a_run_of_it_without_a_readable_record_is_no_pass(self, harm: str) -> None:
        """A cached result of other source must not turn a kill into a success."""
        run_all(Path("results"), Path("suites/small.yaml"), *SETTLED)
        (spec, *_) = resolve_specs(load_suite("small"), models=["mamba"])
        record = recorded(Path("results"), spec, 0.6, source_digest=PRESENT)
        file = store.get_run_folder(Path("results"), spec, record.run_id) / "run.json"
        if harm == "killed":
            file.unlink()
        elif harm == "damaged":
            file.write_text(file.read_text(encoding="utf-8")[:-20], encoding="utf-8")
        else:
            file.write_text(file.read_text(encoding="utf-8").replace('"seed": 0', '"seed": 1'), "utf-8")
        done, suites = check()
        assert [cell["verdict"] for cell in suites["small"]["cells"]] == ["inconclusive", "pass"]
        assert str(file.parent) in suites["small"]["cells"][0]["reason"]
        assert done.exit_code == ExitCode.UNDECIDED
        assert check("--strict")[0].exit_code == ExitCode.GATE_FAILED
        refused = msbench("baseline", "small", "--out", "new.yaml")
        assert f"{file.parent}" in refused.stderr

    def test_an_old_run_without_a_record_changes_nothing(self) -> None:
        (spec, *_) = resolve_specs(load_suite("small"), models=["mamba"])
        store.get_run_folder(Path("results"), spec, "0" * 12).mkdir()
        assert check("--strict")[0].exit_code == 0


def test_examples_of_one_cell_are_as_many() -> None:
    (spec, *_) = resolve_specs(load_suite("small"), models=["mamba"])
    recorded(Path("results"), spec, SETTLED[0][0], source_digest=PRESENT, n_test=100)
    done, suites = check()
    assert [cell["verdict"] for cell in suites["small"]["cells"]] == ["invalid", "pass"]
    assert done.exit_code == ExitCode.GATE_FAILED


def test_tasks_of_equal_settings_are_two(tmp_path: Path) -> None:
    """Their specs have one digest, as it has no task in it."""
    path = tmp_path / "small.yaml"
    path.write_text(SUITE.replace("  listops:\n", "  listops:\n  again:\n") + GATE, encoding="utf-8")
    results = tmp_path / "two"
    for spec in resolve_specs(load_suite(str(path)), seeds=[0, 1, 2, 3]):
        value = 0.6 if spec.task == "listops" else 0.5
        recorded(results, spec, value + spec.seed / 1000, source_digest=PRESENT)
    (table,) = json.loads(msbench("report", path, "--results", results, "--json").stdout)
    means = {row["model"]: [cell["measured"] for cell in row["cells"]] for row in table["rows"]}
    assert means["mamba"] == pytest.approx([60.15, 50.15])
    assert not any("another spec" in note["text"] for note in table["notes"])
    assert msbench("baseline", path, "--results", results).exit_code == 0
    done = msbench("check", path, "--results", results, "--json")
    (suite,) = json.loads(done.stdout)["suites"]
    assert [cell["expected"] for cell in suite["cells"]] == pytest.approx([0.6015, 0.6015, 0.5015, 0.5015])
    assert [cell["verdict"] for cell in suite["cells"]] == ["pass"] * 4
