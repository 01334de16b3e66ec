"""Results of other source code than what is here: they are named, and fail a strict gate."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from check_runs import DATA, GATE, SETTLED, msbench, recorded, run_all, suite_file

from msbench.config import RunSpec
from msbench.errors import ExitCode
from msbench.gate.check import CheckOptions, check_suites
from msbench.runs import plan as agenda
from msbench.runs.suite import load, plan

RETRAIN = "'msbench run small --model mamba --task listops' trains it again"


def source_of(spec: RunSpec) -> str:
    return agenda.identify(spec, DATA).source_digest


def test_only_runs_of_other_source_are_named(tmp_path: Path) -> None:
    path, results = suite_file(tmp_path), tmp_path / "results"
    for spec in plan(load(str(path))):
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
