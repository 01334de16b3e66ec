"""The paper's tables from runs of several suites, made by hand with the suites that there are."""

import csv
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from report_runs import run

from msbench.config import RunSpec
from msbench.reporting.render.csv import render_long, render_wide
from msbench.reporting.tables.build import build_table
from msbench.reporting.tables.cells import MEASURED_GROUP, RULES_GROUP, Cell, Row, Table
from msbench.reporting.tables.definitions import PAPER_TABLES
from msbench.reporting.tables.selection import SuiteRuns
from msbench.results.mixing_documents import Distances
from msbench.results.record import RunRecord
from msbench.results.reported import read_all_reported
from msbench.runs.suite import load_suite, resolve_specs

REPORTED = read_all_reported(Path(__file__).parents[2] / "results" / "reported")
TABLES = {table.id: table for table in PAPER_TABLES}
SUITES = {name: load_suite(name) for table in PAPER_TABLES for name in table.suites}
Value = Callable[[RunSpec], float | None]


def runs_of(
    name: str, models: Iterable[str] = (), value: Value = lambda _: 0.5, **changes: object
) -> SuiteRuns:
    """Runs of a suite; those that have no value diverged."""
    suite = SUITES[name]
    specs = [spec for model in models for spec in resolve_specs(suite, models=[model])]
    metric = "test_macro_auroc" if name == "ptbxl" else "test_accuracy"
    records = []
    for spec in specs:
        given = value(spec)
        status = "diverged" if given is None else "finished"
        metrics = {} if given is None else {metric: given}
        records.append(record(spec, status=status, metrics=metrics, **changes))
    return SuiteRuns(suite, [*resolve_specs(suite), *specs], records)


def record(spec: RunSpec, **changes: object) -> RunRecord:
    return run(spec, 0.5, suite=spec.suite, data_digest=f"data of {spec.task}", **changes)  # type: ignore[arg-type]


def table(name: str, *material: SuiteRuns, **options: bool) -> Table:
    return build_table(TABLES[name], material, REPORTED, **options)


def row(table: Table, name: str) -> Row:
    return next(row for row in table.rows if row.name == name)


def measured(cells: Iterable[Cell]) -> list[float | None]:
    return [None if cell.measured is None else round(cell.measured, 6) for cell in cells]


def test_table_1_takes_a_column_each_from_two_suites() -> None:
    scifar = runs_of("scifar", ["mamba", "msssm-s6"], lambda _: 0.9)
    imagenet = runs_of("imagenet", ["mamba"], lambda _: 0.8)
    made = table("classification", scifar, imagenet)
    assert [(column.label, column.suite) for column in made.columns] == [
        ("sCIFAR", "scifar"),
        ("ImageNet-1K", "imagenet"),
    ]
    assert measured(row(made, "Mamba").cells) == [90.0, 80.0]
    assert measured(row(made, "MS-SSM (S6)").cells) == [90.0, None]
    assert (made.number, made.heading) == (1, "Table 1: sCIFAR and ImageNet-1K")


def test_the_ablation_shows_a_model_in_every_row_that_stands_for_it_and_units_of_its_own() -> None:
    """Rows 1, 5 and 8 are the model itself; a variant that no suite lists is measured all the same."""
    models = ["msssm-s6", "msssm-no-ssm"]
    listops = runs_of("listops", models, lambda spec: 0.6 if spec.model_name == "msssm-s6" else 0.55)
    made = table("ablation", listops, runs_of("ptbxl", models, lambda _: 0.93))
    for name in ("1 MS-SSM (S6)", "5 (self scale, original input)", "8 Input-dependent"):
        assert measured(row(made, name).cells) == [0.93, 60.0]
    assert measured(row(made, "3 Remove S6/S4").cells) == [0.93, 55.0]
    assert [column.unit for column in made.columns] == ["auroc", "percent"]


def test_what_the_suite_does_not_list_is_shown_and_never_the_best() -> None:
    runs = runs_of("listops", ["mamba", "hawk"], lambda spec: 0.7 if spec.model_name == "hawk" else 0.5)
    made = table("listops", runs)
    hawk, mamba = row(made, "hawk").cells[0], row(made, "Mamba").cells[0]
    assert (hawk.measured, hawk.unlisted, hawk.best) == (70.0, True, False)
    assert (mamba.measured, mamba.unlisted, mamba.best) == (50.0, False, True)
    [note] = [note for note in made.notes if note.startswith("not listed by suite listops")]
    assert note.endswith("neither best nor judged: hawk")


def test_settings_of_ones_own_are_one_note_that_names_the_rows() -> None:
    suite = replace(SUITES["scifar"])
    suite.__dict__["own_settings"] = frozenset({("scifar", "mamba"), ("scifar", "lstm")})
    runs = SuiteRuns(suite, resolve_specs(suite, models=["mamba", "lstm"]), [])
    [note] = [note for note in table("classification", runs).notes if "msbench's own" in note]
    assert note == "settings are msbench's own, as the source of the row publishes none: LSTM, Mamba"


def test_listops_says_where_its_reported_rows_come_from() -> None:
    """Nine rows are of one source, which trained shortly: all that are named are rows of the table."""
    made = table("listops")
    (note,) = (text for text in made.notes if "5,000 steps" in text)
    named = re.split(", | and ", note.removeprefix("reported: ").split(" are from ")[0])
    assert len(named) == 9
    assert set(named) <= {row.name for row in made.rows}


def test_the_ablation_lists_no_other_models() -> None:
    made = table("ablation", runs_of("listops", ["mamba", "hawk"]))
    assert {"mamba", "hawk"}.isdisjoint(row.model for row in made.rows)
    assert made.measured == 0


def test_models_without_a_row_stand_in_a_group_of_their_own() -> None:
    made = table("listops", runs_of("listops", ["mamba", "hawk"]))
    assert [(row.group, row.cells[0].measured) for row in made.rows if row.model == "hawk"] == [
        (MEASURED_GROUP, 50.0)
    ]


def lra_of(model: str, value: Value = lambda _: 0.8, listops: float | None = 0.6) -> Table:
    more = [runs_of("listops", [model], lambda _: listops)] if listops is not None else []
    return table("lra", runs_of("lra", [model], value), *more)


VALUES = {"text": 0.9, "retrieval": 0.8, "image": 0.7, "pathfinder": 0.6, "pathx": 0.5}


def test_both_averages_are_of_what_they_are_named_after() -> None:
    made = lra_of("msssm-s6", lambda spec: VALUES[spec.task], 0.4)
    *_, five, six = row(made, "MS-SSM (S6)").cells
    assert measured([five, six]) == [70.0, 65.0]
    assert five.reported == "86.73"
    assert (six.reported, len(six.run_ids)) == ("", 6)
    assert (five.sd, five.evidence) == (None, None)


def test_a_task_that_lacks_leaves_a_hole_that_says_so() -> None:
    made = lra_of("msssm-s6", lambda spec: None if spec.task == "pathx" else 0.8)
    *_, five, six = row(made, "MS-SSM (S6)").cells
    assert (five.measured, five.status, six.measured) == (None, "missing", None)
    assert five.notes == ("AVG. is not computed: Path-X diverged",)
    assert six.notes == ("Avg. of 6 is not computed: Path-X diverged",)


def test_without_listops_the_paper_average_stands_alone() -> None:
    made = lra_of("msssm-s6", listops=None)
    *_, five, six = row(made, "MS-SSM (S6)").cells
    assert measured([five, six]) == [80.0, None]
    assert six.notes[0].endswith("listops missing")


def test_a_model_that_ran_listops_alone_leaves_no_word_in_long_range_arena() -> None:
    made = table("lra", runs_of("listops", ["griffin", "hawk", "msssm-no-ssm"]))
    assert not any(cell.notes for row in made.rows for cell in row.cells)
    assert {"hawk", "msssm-no-ssm"}.isdisjoint(row.model for row in made.rows)


def test_reported_averages_are_as_printed_even_where_they_are_no_mean() -> None:
    made = lra_of("msssm-s6")
    assert row(made, "DSSEXP-NO-SCALE").cells[5].reported == "66.46"
    assert row(made, "Transformer").cells[5].reported == "62.12"


def test_mixing_distances_fill_table_6_and_accuracies_do_not() -> None:
    runs = runs_of("listops", ["mamba", "msssm-s6"])
    found = {
        runs.records[0].run_id: [
            Distances(
                schema_version=1,
                run_id=runs.records[0].run_id,
                trained=True,
                default_options=True,
                options_digest="a",
                mean=41.234,
                sd=20.5,
                layers=(),
                examples=8,
                created="2026",
            )
        ]
    }
    made = table("mixing-distance", SuiteRuns(runs.suite, runs.specs, runs.records, found))
    assert measured(row(made, "Mamba").cells) == [41.234]
    assert row(made, "MS-SSM (S6)").cells[0].status == "missing"
    assert (row(made, "Mamba").cells[0].reported, row(made, "Mamba").cells[0].reported_sd) == (
        "38.84",
        "21.97",
    )
    assert any("not over seeds" in note for note in made.notes)
    assert not any(cell.best for row in made.rows for cell in row.cells), "farther is not better"


def test_trivial_rules_stand_under_the_task_that_they_are_of() -> None:
    rules = {"majority": 0.17}
    made = table(
        "ablation", runs_of("listops", ["msssm-s6"], baselines=rules), runs_of("ptbxl", ["msssm-s6"])
    )
    [rule] = (row for row in made.rows if row.group == RULES_GROUP)
    assert measured(rule.cells) == [None, 17.0]


def test_modified_runs_are_those_of_the_columns_and_not_of_what_averages_need() -> None:
    changed = [
        resolve_specs(SUITES[name], models=["mamba"], overrides=["train.epochs=1"])[0]
        for name in ("lra", "listops")
    ]
    material = [
        SuiteRuns(SUITES[spec.suite], resolve_specs(SUITES[spec.suite]), [record(spec)]) for spec in changed
    ]
    made = table("lra", *material, modified=True)
    assert [row.name for row in made.rows if row.model == "mamba"][1:] == ["mamba † modified: train.epochs 1"]
    counted = [note for note in table("lra", *material).notes if "another spec" in note]
    assert len(counted) == 1
    assert "1 run of suite lra" in counted[0]
    assert "'msbench report lra --modified'" in counted[0]


def test_a_suite_that_lacks_a_task_of_the_table_is_named(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "suites" / "ptbxl.yaml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "rhythm" not in line]
    path = tmp_path / "ptbxl.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    made = table("ptbxl", SuiteRuns(load_suite(path), (), ()))
    assert "suite ptbxl here has no task rhythm" in made.notes


def full(name: str) -> Table:
    """The table with something measured in every suite."""
    material = [runs_of(suite, ["mamba", "msssm-s6", "msssm-no-ssm"]) for suite in TABLES[name].suites]
    return table(name, *material)


@pytest.mark.parametrize("name", TABLES)
def test_a_csv_read_back_is_the_table(name: str) -> None:
    made = full(name)
    data = render_long(made)
    lines = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    frame = pd.read_csv(io.BytesIO(data), dtype=str, keep_default_na=False)
    assert frame.to_dict("records") == lines
    cells = [
        (row, column, cell) for row in made.rows for column, cell in zip(made.columns, row.cells, strict=True)
    ]
    for line, (row, column, cell) in zip(lines, cells, strict=True):
        assert (line["table"], line["group"], line["row"], line["model"]) == (
            made.id,
            row.group,
            row.name,
            row.model,
        )
        assert (line["suite"], line["task"], line["column"]) == (column.suite, column.task, column.label)
        assert (line["unit"], line["source"]) == (column.unit, column.source)
        assert (line["reported"], line["reported_sd"]) == (cell.reported, cell.reported_sd)
        assert (float(line["measured"]) if line["measured"] else None) == cell.measured
        assert (float(line["sd"]) if line["sd"] else None) == cell.sd
        assert (int(line["n"]), int(line["n_planned"]), line["status"]) == (
            cell.n,
            cell.n_planned,
            cell.status,
        )
        assert tuple(line["run_ids"].split()) == cell.run_ids
    across = pd.read_csv(io.BytesIO(render_wide(made)), dtype=str, keep_default_na=False)
    assert len(set(across.columns)) == 3 + 5 * len(made.columns)
    assert list(across["row"]) == [row.name for row in made.rows]


def test_tasks_of_one_name_are_distinguished_in_the_wide_csv() -> None:
    [column] = TABLES["listops"].columns
    columns = tuple(replace(column, suite=suite, printed=False) for suite in ("listops", "listops-release"))
    definition = replace(TABLES["listops"], reported="", columns=columns)
    made = build_table(definition, [runs_of("listops", ["mamba"])], [])
    header = render_wide(made).decode().splitlines()[0].split(",")
    assert {"listops/listops measured", "listops-release/listops measured"} <= set(header)
