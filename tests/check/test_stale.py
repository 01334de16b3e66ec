"""Results of other source code are told, and stay what they are."""

import json
from pathlib import Path

from check_runs import DATA, SETTLED, msbench, recorded, run_all, suite_file

from msbench import agenda, report, store
from msbench.check.stale import stale
from msbench.specs import RunSpec
from msbench.suite import load, plan

AGAIN = "'msbench run small --model mamba --task listops' trains it with this one"


def lines(path: Path, results: Path) -> tuple[str, ...]:
    found = report.load([str(path)], results)
    return stale(found, found.tables[0])


def source_of(spec: RunSpec) -> str:
    return agenda.identify(spec, DATA).source_digest


def test_only_runs_of_other_source_are_told(tmp_path: Path) -> None:
    path, results = suite_file(tmp_path), tmp_path / "results"
    for spec in plan(load(str(path))):
        recorded(results, spec, 0.5, source_digest=source_of(spec))
    assert lines(path, results) == ()
    for spec in plan(load(str(path)), models=["mamba"]):
        recorded(results, spec, 0.5, ended="2026-02-01T00:00:00+00:00")
    assert lines(path, results) == (
        f"listops · mamba: its runs are of other source code than what is here; {AGAIN}",
    )


def test_settings_that_are_not_understood_are_of_another_version(tmp_path: Path) -> None:
    path, results = suite_file(tmp_path), tmp_path / "results"
    (spec, *_) = plan(load(str(path)), models=["mamba"])
    record = recorded(results, spec, 0.5, source_digest=source_of(spec))
    assert lines(path, results) == ()
    folder = store.run_directory(results, spec, record.run_id)
    changed = {**record.spec, "train": {**record.spec["train"], "epochs": "many"}}
    store.write_record(folder, record.model_copy(update={"spec": changed}))
    assert len(lines(path, results)) == 1


def test_a_check_says_so_and_decides_as_before(tmp_path: Path) -> None:
    path, results = suite_file(tmp_path), tmp_path / "results"
    run_all(results, path, *SETTLED)
    assert msbench("baseline", path, "--results", results).exit_code == 0
    assert AGAIN in msbench("check", path, "--results", results).stderr
    done = msbench("check", path, "--results", results, "--json")
    document = json.loads(done.stdout)
    assert AGAIN in document["suites"][0]["stale"][0]
    assert [cell["verdict"] for cell in document["suites"][0]["cells"]] == ["pass", "pass"]
    assert done.exit_code == document["exit_code"] == 0
