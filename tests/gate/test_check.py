"""``msbench check`` as CI meets it: a test for each row of the table of exit codes, and what is printed."""

import json
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from check_runs import DATA, GATE, PRESENT, SETTLED, msbench, recorded, run_all, suite_file

from msbench.config import RunSpec
from msbench.errors import ExitCode
from msbench.gate.check import CheckOptions, GateResult, _list_names, check_suites
from msbench.runs.identity import identify
from msbench.runs.suite import load_suite, resolve_specs

Checks = Callable[..., tuple[int, dict[str, str], str]]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return suite_file(tmp_path, GATE)


@pytest.fixture
def agreed(path: Path, tmp_path: Path) -> Path:
    """A baseline of six settled runs."""
    run_all(tmp_path / "before", path, *SETTLED)
    out = tmp_path / "agreed.yaml"
    done = msbench("baseline", path, "--results", tmp_path / "before", "--out", out)
    assert done.exit_code == 0, done.stderr
    return out


@pytest.fixture
def checked(path: Path, agreed: Path, results: Path) -> Checks:
    """Check the suite against that baseline: exit code, verdicts by model, stderr."""

    def check(*options: str) -> tuple[int, dict[str, str], str]:
        done = msbench("check", path, "--against", agreed, "--results", results, "--json", *options)
        assert "Traceback" not in done.stderr
        document = json.loads(done.stdout)
        assert document["exit_code"] == done.exit_code
        (suite,) = document["suites"]
        return done.exit_code, {cell["model"]: cell["verdict"] for cell in suite["cells"]}, done.stderr

    return check


class TestExitCodes:
    def test_0_where_everything_holds(self, path: Path, results: Path, checked: Checks) -> None:
        run_all(results, path, (0.601, 0.603, 0.605), (0.501, 0.5, 0.499), source_digest=PRESENT)
        assert checked()[:2] == (ExitCode.OK, {"mamba": "pass", "griffin": "pass"})
        assert checked("--strict")[0] == ExitCode.OK

    def test_0_where_something_is_better(self, path: Path, results: Path, checked: Checks) -> None:
        run_all(results, path, (0.65, 0.651, 0.652), SETTLED[1])
        assert checked()[:2] == (ExitCode.OK, {"mamba": "improved", "griffin": "pass"})
        assert checked("--strict")[0] == ExitCode.GATE_FAILED

    def test_4_where_a_cell_is_below(self, path: Path, results: Path, checked: Checks) -> None:
        run_all(results, path, (0.55, 0.551, 0.552), SETTLED[1])
        assert checked()[:2] == (ExitCode.GATE_FAILED, {"mamba": "fail", "griffin": "pass"})

    @pytest.mark.parametrize(
        ("values", "verdict"),
        [((0.1, 0.101, 0.099), "chance-level"), ((0.363, 0.36, 0.365), "trivial-rule")],
    )
    def test_4_where_nothing_was_learned(
        self, values: tuple[float, ...], verdict: str, path: Path, results: Path, checked: Checks
    ) -> None:
        run_all(results, path, values, SETTLED[1])
        assert checked()[:2] == (ExitCode.GATE_FAILED, {"mamba": verdict, "griffin": "pass"})

    def test_4_where_a_seed_diverged(self, path: Path, results: Path, checked: Checks) -> None:
        run_all(results, path, SETTLED[0][:2], SETTLED[1])
        lose(results, path, "diverged")
        assert checked()[:2] == (ExitCode.GATE_FAILED, {"mamba": "diverged", "griffin": "pass"})

    def test_4_where_a_number_is_invalid(self, path: Path, results: Path, checked: Checks) -> None:
        run_all(results, path, (60.0, 60.1, 60.2), SETTLED[1])
        assert checked()[:2] == (ExitCode.GATE_FAILED, {"mamba": "invalid", "griffin": "pass"})

    def test_5_where_seeds_do_not_decide(self, path: Path, results: Path, checked: Checks) -> None:
        run_all(results, path, (0.55, 0.58, 0.61), SETTLED[1])
        assert checked()[:2] == (ExitCode.UNDECIDED, {"mamba": "inconclusive", "griffin": "pass"})
        assert checked("--strict")[0] == ExitCode.GATE_FAILED

    def test_5_where_a_model_has_not_run(self, path: Path, results: Path, checked: Checks) -> None:
        run_all(results, path, SETTLED[0], ())
        assert checked()[:2] == (ExitCode.UNDECIDED, {"mamba": "pass", "griffin": "missing"})
        assert checked("--strict")[0] == ExitCode.GATE_FAILED

    def test_5_where_a_seed_has_not_run(self, path: Path, results: Path, checked: Checks) -> None:
        run_all(results, path, SETTLED[0][:2], SETTLED[1])
        assert checked()[:2] == (ExitCode.UNDECIDED, {"mamba": "inconclusive", "griffin": "pass"})

    def test_5_where_nothing_has_run(self, checked: Checks) -> None:
        assert checked()[:2] == (ExitCode.UNDECIDED, {"mamba": "missing", "griffin": "missing"})
        assert checked("--strict")[0] == ExitCode.GATE_FAILED

    def test_3_where_a_run_broke(self, path: Path, results: Path, checked: Checks) -> None:
        run_all(results, path, SETTLED[0][:2], (0.4, 0.401, 0.402))
        lose(results, path, "out-of-memory")
        assert checked()[:2] == (ExitCode.RUN_FAILED, {"mamba": "inconclusive", "griffin": "fail"})
        assert checked("--strict")[0] == ExitCode.RUN_FAILED

    @pytest.mark.parametrize(
        ("status", "code"),
        [
            ("failed", ExitCode.RUN_FAILED),
            ("out-of-memory", ExitCode.RUN_FAILED),
            ("interrupted", ExitCode.UNDECIDED),
        ],
    )
    def test_no_pass_where_newer_code_has_no_result(
        self, status: str, code: ExitCode, path: Path, results: Path, checked: Checks
    ) -> None:
        """Results of the code before it are still there, and do not speak for it."""
        run_all(results, path, *SETTLED)
        lose(results, path, status, source_digest="6" * 64, ended="2026-02-01T00:00:00+00:00")
        assert checked()[:2] == (code, {"mamba": "inconclusive", "griffin": "pass"})

    def test_6_where_the_data_are_others(self, path: Path, results: Path, checked: Checks) -> None:
        run_all(results, path, SETTLED[0], SETTLED[1], data_digest="e" * 64)
        assert checked()[:2] == (ExitCode.DATA, {"mamba": "other-data", "griffin": "other-data"})
        assert checked("--strict")[0] == ExitCode.DATA

    def test_0_where_a_failure_is_expected(self, tmp_path: Path, results: Path, checked: Checks) -> None:
        mark = "{task: listops, model: mamba, reason: slow start, link: 'https://example.org/7'}"
        path = suite_file(tmp_path, f"gate: {{margin: 0.02, reason: for tests, xfail: [{mark}]}}\n")
        run_all(results, path, (0.5, 0.501, 0.502), SETTLED[1])
        assert checked()[:2] == (ExitCode.OK, {"mamba": "xfail", "griffin": "pass"})
        run_all(results, path, SETTLED[0], SETTLED[1], ended="2026-02-01T00:00:00+00:00")
        assert checked()[:2] == (ExitCode.OK, {"mamba": "improved", "griffin": "pass"})
        assert checked("--strict")[0] == ExitCode.GATE_FAILED


def lose(results: Path, path: Path, status: str, **changes: str) -> None:
    """Seed 2 of mamba ends without a result."""
    (spec,) = resolve_specs(load_suite(str(path)), models=["mamba"], seeds=[2])
    recorded(results, spec, None, status=status, **changes)


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--against", "papr"), ExitCode.USAGE, "did you mean 'paper'"),
        (("--against", "absent.yaml"), ExitCode.USAGE, "absent.yaml: no such file"),
        (("--against", "paper"), ExitCode.USAGE, "its protocol is scaled down from the paper's"),
        (("--junit", "."), ExitCode.USAGE, "--junit .: cannot be written"),
    ],
)
def test_what_is_invalid_is_said(
    options: tuple[str, ...], code: ExitCode, words: str, path: Path, results: Path
) -> None:
    run_all(results, path, *SETTLED)
    done = msbench("check", path, "--results", results, *options)
    assert done.exit_code == code, done.stderr
    assert words in done.stderr
    assert done.stdout == ""


def test_a_misspelt_model_in_a_baseline_is_no_pass(path: Path, agreed: Path, results: Path) -> None:
    run_all(results, path, *SETTLED)
    agreed.write_text(agreed.read_text().replace("griffin:", "grifin:"))
    done = msbench("check", path, "--against", agreed, "--results", results)
    assert done.exit_code == ExitCode.USAGE
    assert "agreed.yaml:" in done.stderr
    assert "did you mean 'griffin'" in done.stderr


def test_without_a_baseline_it_says_how_to_get_one(path: Path, results: Path) -> None:
    run_all(results, path, *SETTLED)
    done = msbench("check", path, "--results", results)
    assert done.exit_code == ExitCode.UNDECIDED
    assert "msbench baseline small" in done.stdout


def test_results_have_their_own_baseline(path: Path, results: Path) -> None:
    run_all(results, path, *SETTLED)
    assert msbench("baseline", path, "--results", results).exit_code == 0
    done = msbench("check", path, "--results", results)
    assert done.exit_code == 0, done.stdout
    assert "small against" in done.stderr
    assert "2 pass" in done.stderr


def test_results_without_a_run_of_any_suite_end_in_5(results: Path) -> None:
    done = msbench("check", "--results", results)
    assert done.exit_code == ExitCode.UNDECIDED
    assert msbench("check", "--strict", "--results", results).exit_code == ExitCode.GATE_FAILED


def test_where_nothing_was_checked_no_older_file_says_so(results: Path, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    junit.write_text("<testsuites tests='1' />")
    assert msbench("check", "--results", results, "--junit", junit).exit_code == ExitCode.UNDECIDED
    suites = ElementTree.parse(junit).getroot()
    assert (suites.get("tests"), suites.get("errors")) == ("1", "1")


def test_two_suites_of_one_name_are_not_one(path: Path, results: Path, tmp_path: Path) -> None:
    """The second must not take the place of the first."""
    (tmp_path / "other").mkdir()
    other = suite_file(tmp_path / "other", seeds="[0]")
    run_all(results, path, *SETTLED)
    done = msbench("check", path, other, "--results", results)
    assert done.exit_code == ExitCode.USAGE
    assert "two suites are called small" in done.stderr
    assert msbench("check", path, path, "--results", results).exit_code == ExitCode.UNDECIDED


def test_a_reference_in_the_place_of_a_suite_is_reported(results: Path) -> None:
    done = msbench("check", "paper", "--results", results)
    assert done.exit_code == ExitCode.USAGE
    assert "--against paper" in done.stderr


def test_a_reason_of_several_lines_is_one_row(tmp_path: Path, agreed: Path, results: Path) -> None:
    mark = '{task: listops, model: mamba, reason: "slow\\nstart", link: "https://example.org/7"}'
    path = suite_file(tmp_path, f"gate: {{margin: 0.02, reason: for tests, xfail: [{mark}]}}\n")
    run_all(results, path, (0.5, 0.501, 0.502), SETTLED[1])
    done = msbench("check", path, "--against", agreed, "--results", results)
    assert "slow start" in done.stdout
    assert len(done.stdout.splitlines()) == 3


def test_a_file_names_its_suite(agreed: Path, results: Path) -> None:
    """It is a suite that only its file reaches: the name in the baseline does not find it."""
    done = msbench("check", "--against", agreed, "--results", results)
    assert done.exit_code == ExitCode.USAGE
    assert "unknown suite 'small'" in done.stderr


def test_everything_at_once(
    path: Path, agreed: Path, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary, junit = tmp_path / "summary.md", tmp_path / "deep" / "junit.xml"
    summary.write_text("# before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    run_all(results, path, (0.5, 0.501, 0.502), SETTLED[1])
    arguments = ("check", path, "--against", agreed, "--results", results, "--junit", junit, "--github")
    done = msbench(*arguments)
    assert done.exit_code == ExitCode.GATE_FAILED
    assert "\x1b" not in done.stdout
    assert len(done.stdout.splitlines()) == 3
    (command,) = [line for line in done.stderr.splitlines() if line.startswith("::")]
    assert command.startswith("::error title=msbench check%3A small::")
    assert summary.read_text().startswith("# before\n### msbench check: small")
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.get("classname") for case in suite.iter("testcase")] == ["small.listops"] * 2
    assert msbench(*arguments, "--json").stdout.startswith("{")


class TestAllSuites:
    """Without a name, every suite that has a run."""

    @pytest.fixture
    def results(self, tmp_path: Path) -> Path:
        for name in ("quick", "listops"):
            for spec in resolve_specs(load_suite(name), models=["mamba"]):
                recorded(tmp_path, spec, 0.38)
        return tmp_path

    def test_each_is_held_against_its_baseline(self, results: Path) -> None:
        done = msbench("check", "--results", results, "--json")
        document = json.loads(done.stdout)
        found = {suite["suite"]: suite["cells"] for suite in document["suites"]}
        assert {name: [cell["verdict"] for cell in cells] for name, cells in found.items()} == {
            "listops": ["missing"] * load_suite("listops").size,
            "quick": ["other-data", "missing"],
        }
        assert done.exit_code == ExitCode.DATA, "of several suites the most fundamental decides"

    def test_the_paper_is_asked_only_of_its_own(self, results: Path) -> None:
        done = msbench("check", "--against", "paper", "--results", results, "--json")
        assert [suite["suite"] for suite in json.loads(done.stdout)["suites"]] == ["listops"]
        assert "skipped: suite quick" in done.stderr

    def test_a_suite_that_only_its_file_reaches_is_reported(self, path: Path, results: Path) -> None:
        run_all(results, path, *SETTLED)
        done = msbench("check", "--results", results)
        assert "name its file to check it" in done.stderr
        assert "small" not in done.stdout

    def test_a_suite_is_checked_once(self, results: Path) -> None:
        done = msbench("check", "quick", "quick", "--results", results, "--json")
        assert len(json.loads(done.stdout)["suites"]) == 1

    def test_a_model_that_is_not_listed_is_not_asked_for(self, results: Path) -> None:
        (spec,) = resolve_specs(load_suite("quick"), models=["griffin"])
        recorded(results, spec, 0.5)
        done = msbench("check", "quick", "--results", results, "--json")
        (suite,) = json.loads(done.stdout)["suites"]
        assert [cell["model"] for cell in suite["cells"]] == ["mamba", "msssm-s6"]

    def test_nor_is_it_judged_against_the_paper_and_that_is_said(self, tmp_path: Path) -> None:
        for model in ("s4d-real", "mamba"):
            (spec,) = resolve_specs(load_suite("listops"), models=[model])
            recorded(tmp_path, spec, 0.5)
        done = msbench("check", "listops", "--against", "paper", "--results", tmp_path, "--json")
        (suite,) = json.loads(done.stdout)["suites"]
        assert "mamba" in [cell["model"] for cell in suite["cells"]]
        assert "s4d-real" not in [cell["model"] for cell in suite["cells"]]
        assert suite["warnings"] == [
            "s4d-real on listops is not judged: listops does not list it, so no result is expected at its"
            " settings"
        ]


def test_a_listed_model_without_runs_is_missing_though_the_paper_has_no_such_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = Path(load_suite("listops").source.name).read_text(encoding="utf-8")
    (tmp_path / "suites").mkdir()
    path, results = tmp_path / "suites" / "listops.yaml", tmp_path / "results"
    path.write_text(shipped.replace("\nmodels:\n", "\nmodels:\n  s4d-real:\n"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for model in ("mamba", "s4d-real"):
        for spec in resolve_specs(load_suite("listops"), [model], seeds=[0, 1, 2]):
            recorded(results, spec, 0.5, source_digest=PRESENT)
    assert msbench("baseline", "listops").exit_code == ExitCode.OK
    shutil.rmtree(results / "listops" / "listops" / "s4d-real")
    done = msbench("check", "listops", "--json")
    (suite,) = json.loads(done.stdout)["suites"]
    found = {cell["model"]: cell["verdict"] for cell in suite["cells"]}
    assert (found["mamba"], found["s4d-real"]) == ("pass", "missing")
    assert done.exit_code == ExitCode.UNDECIDED
    assert "s4d-real" not in msbench("report", "listops").stdout


def test_a_reader_that_goes_away_changes_no_verdict(path: Path, agreed: Path, results: Path) -> None:
    run_all(results, path, (0.5, 0.501, 0.502), SETTLED[1])
    options = ("--against", str(agreed), "--results", str(results))
    command = [sys.executable, "-m", "msbench", "check", str(path), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == ExitCode.GATE_FAILED


RETRAIN = "'msbench run small --model mamba --task listops' trains it again"


def source_of(spec: RunSpec) -> str:
    return identify(spec, DATA).source_digest


def test_only_runs_of_other_source_are_named(tmp_path: Path) -> None:
    path, results = suite_file(tmp_path), tmp_path / "results"
    for spec in resolve_specs(load_suite(str(path))):
        model_source = "5" * 64 if spec.model_name == "mamba" else source_of(spec)
        recorded(results, spec, 0.5, source_digest=model_source)
    messages: list[str] = []
    (one,) = check_suites(CheckOptions(suites=[str(path)], results=results), messages.append).suites
    assert messages == []
    assert one.stale == (f"listops · mamba: its runs used other source code than the present one; {RETRAIN}",)


def test_a_check_reports_it_and_strict_fails(tmp_path: Path) -> None:
    path, results, junit = suite_file(tmp_path, GATE), tmp_path / "results", tmp_path / "gate.xml"
    run_all(results, path, *SETTLED)
    assert msbench("baseline", path, "--results", results).exit_code == 0
    assert RETRAIN in msbench("check", path, "--results", results).stderr
    done = msbench("check", path, "--results", results, "--json", "--junit", junit)
    document = json.loads(done.stdout)
    assert RETRAIN in document["suites"][0]["stale"][0]
    assert [cell["verdict"] for cell in document["suites"][0]["cells"]] == ["pass", "pass"]
    assert done.exit_code == document["exit_code"] == 0
    assert ElementTree.parse(junit).getroot().get("failures") == "0"
    strict = msbench("check", path, "--results", results, "--strict", "--junit", junit)
    assert strict.exit_code == ExitCode.GATE_FAILED
    assert ElementTree.parse(junit).getroot().get("failures") == "2"


def test_a_check_of_nothing_is_no_pass() -> None:
    assert GateResult(()).exit_code == ExitCode.UNDECIDED
    assert GateResult((), strict=True).exit_code == ExitCode.GATE_FAILED


@pytest.mark.parametrize("name", [".x.yaml", "._x.yaml", ".#x.yaml"])
def test_hidden_files_are_no_baselines(tmp_path: Path, name: str) -> None:
    (tmp_path / "baseline").mkdir()
    if name.startswith(".#"):
        (tmp_path / "baseline" / name).symlink_to("somebody@host.1234:5678")
    else:
        (tmp_path / "baseline" / name).write_bytes(b"\0\5\x16\7Mac OS X")
    assert _list_names(tmp_path, "baseline") == []
    (tmp_path / "baseline" / "x.yaml").touch()
    assert _list_names(tmp_path, "baseline") == ["x"]
