from pathlib import Path

import pytest
from html_pages import LOG, file, listops
from report_runs import PlannedRun, build, run

from msbench import store
from msbench.report.html.gather import gather
from msbench.suite import load, plan


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_only_runs_behind_cells_are_read(results: Path) -> None:
    table, records = listops()
    aside = [run(PlannedRun("listops", "mamba"), 0.1, data_digest="data-0", ended="2025-01-01")]
    file(results, [*records, *aside])
    found = gather([table], results)
    behind = [identity for row in table.rows for identity in row.run_ids]
    assert list(found.runs) == behind
    assert found.others == len(records) + 1 - len(behind) == 2
    assert found.beyond == 0
    assert found.runs[behind[0]].epochs[0]["validation_loss"] == 1.9


def test_no_more_runs_than_asked_for_are_read_and_the_rest_counted(results: Path) -> None:
    table, records = listops()
    file(results, records)
    found = gather([table], results, most=3)
    assert (len(found.runs), found.beyond) == (3, 5)


def test_records_that_are_none_are_named(results: Path) -> None:
    table, records = listops()
    file(results, records)
    first, second, *_ = table.rows[0].run_ids
    for identity, text in ((first, "{"), (second, (results / "x").name)):
        next(results.rglob(identity)).joinpath("run.json").write_text(text, encoding="utf-8")
    found = gather([table], results)
    assert found.unread == (first, second)


def test_a_record_under_another_id_is_not_taken_for_it(results: Path) -> None:
    table, records = listops()
    file(results, records)
    folder = next(results.rglob(records[0].run_id))
    store.write_record(folder, records[1])
    assert gather([table], results).unread == (records[0].run_id,)


@pytest.mark.parametrize("log", ["", "epoch\n", "epoch,loss\n1\n", "\x00\xff", 'a,b\n"x'])
def test_a_log_that_is_none_costs_the_chart_alone(results: Path, log: str) -> None:
    table, records = listops()
    file(results, records, log)
    assert len(gather([table], results).runs) == 8


def test_the_same_id_elsewhere_is_told(results: Path) -> None:
    table, records = listops()
    file(results, records)
    twin = results / "z" / "task" / "model" / records[0].run_id
    store.write_record(twin, records[0])
    found = gather([table], results).runs[records[0].run_id]
    assert found.folder.startswith("suite/")
    assert found.elsewhere == (f"z/task/model/{records[0].run_id}",)


def test_commands_name_the_suite_as_it_was_typed_and_say_what_was_overridden(
    results: Path, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    text = Path(load("quick").source.name).read_text(encoding="utf-8")
    path.write_text(text.replace("name: quick", "name: mine"), encoding="utf-8")
    spec = plan(load(path), ["mamba"], overrides=["train.max_steps=7"])[0]
    record = run(PlannedRun(spec.task, "mamba")).model_copy(
        update={"suite": "mine", "spec": spec.model_dump(mode="json")}
    )
    file(results, [record], LOG)
    table = build([PlannedRun(spec.task, "mamba")], [record.model_copy(update={"suite": "small"})])
    (shown,) = gather([table], results, [str(path)]).runs.values()
    assert f"msbench run {path} --model mamba" in shown.command
    assert shown.command.endswith("--seed 0 --set train.max_steps=7")
    (without,) = gather([table], results).runs.values()
    assert without.command == f"msbench run mine --model mamba --task {spec.task} --seed 0"
