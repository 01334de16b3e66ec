import json
from pathlib import Path
from typing import Any

import pytest
from report_runs import read_report
from test_measure import written

from msbench.config import RunSpec
from msbench.errors import ConfigError, Undecided, UnknownName
from msbench.reporting import command
from msbench.results import store
from msbench.results.record import RunRecord, compute_run_id, write_record
from msbench.runs.suite import Suite, load_suite, resolve_specs

pytestmark = pytest.mark.usefixtures("handmade_records")


def recorded(results: Path, spec: RunSpec, **changes: Any) -> Path:
    """Write the record of a finished run of this spec, as a run would, and return its file."""
    identity = compute_run_id(spec.digest, "data", str(changes))
    values: dict[str, Any] = {
        "run_id": identity,
        "status": "finished",
        "suite": spec.suite,
        "task": spec.task,
        "model": spec.model_name,
        "seed": spec.seed,
        "spec": spec.model_dump(mode="json"),
        "spec_digest": spec.digest,
        "data_digest": "data",
        "source_digest": "source",
        "metrics": {"test_accuracy": 0.5},
        "n_test": 20,
    }
    folder = store.get_run_folder(results, spec, identity)
    write_record(folder, RunRecord(**{**values, **changes}))
    return folder / "run.json"


def test_a_suites_runs_become_its_table(tiny: Suite, tiny_file: Path, tmp_path: Path) -> None:
    for spec in resolve_specs(tiny):
        recorded(tmp_path / "results", spec)
    [table] = read_report([str(tiny_file)], tmp_path / "results").tables
    assert [row.name for row in table.rows] == ["msssm-s6", "mamba"]
    assert [row.cells[0].measured for row in table.rows] == [50.0, 50.0]
    assert json.loads(json.dumps(table.as_dict()))["rows"][0]["cells"][0]["n"] == 1


def test_seeds_beyond_the_plan_are_the_suites_and_those_under_overrides_are_not(
    tiny: Suite, tiny_file: Path, tmp_path: Path
) -> None:
    more = resolve_specs(tiny, models=["mamba"], seeds=[0, 5, 6])
    changed = resolve_specs(tiny, models=["mamba"], seeds=[7], overrides=["train.epochs=1"])
    for accuracy, spec in enumerate([*more, *changed], start=1):
        recorded(tmp_path, spec, metrics={"test_accuracy": accuracy / 10})
    [table] = read_report([str(tiny_file)], tmp_path, modified=True).tables
    cells = {row.name: row.cells[0] for row in table.rows}
    assert cells["mamba"].n == 3
    assert cells["mamba"].measured == pytest.approx(20.0)
    assert cells["mamba † modified: train.epochs 1"].measured == pytest.approx(40.0)


def test_runs_under_overrides_are_not_the_suites(tiny: Suite, tiny_file: Path, tmp_path: Path) -> None:
    [spec, _] = resolve_specs(tiny, overrides=["train.epochs=1"])
    recorded(tmp_path, spec)
    [table] = read_report([str(tiny_file)], tmp_path, modified=True).tables
    assert table.rows[-1].name == "msssm-s6 † modified: train.epochs 1"
    assert table.rows[0].cells[0].measured is None


def test_a_record_of_an_older_version_is_shown(tiny: Suite, tiny_file: Path, tmp_path: Path) -> None:
    """Without the fields that came later, and with one that nobody knows."""
    first, second = resolve_specs(tiny)
    path = recorded(tmp_path, first)
    values = json.loads(path.read_text())
    for key in ("n_test", "schema_version"):
        del values[key]
    path.write_text(json.dumps({**values, "mood": "good"}))
    recorded(tmp_path, second, metrics={})
    [table] = read_report([str(tiny_file)], tmp_path).tables
    assert [row.cells[0].measured for row in table.rows] == [50.0, None]
    assert any("has no test_accuracy" in note for note in table.notes)


def test_an_unreadable_record_is_named_and_the_others_count(
    tiny: Suite, tiny_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = resolve_specs(tiny)
    broken = recorded(tmp_path, first)
    broken.write_text("{")
    recorded(tmp_path, second)
    [table] = read_report([str(tiny_file)], tmp_path).tables
    assert [row.cells[0].measured for row in table.rows] == [None, 50.0]
    assert str(broken) in capsys.readouterr().err


def test_nothing_run_is_undecided(tiny_file: Path, tmp_path: Path) -> None:
    with pytest.raises(Undecided, match="nothing has been run; 'msbench run SUITE'"):
        read_report([], tmp_path)
    with pytest.raises(Undecided, match="suite tiny: nothing has been run"):
        read_report([str(tiny_file)], tmp_path)


def test_an_unknown_suite_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="unknown suite or table 'listopps'; did you mean 'listops'"):
        read_report(["listopps"], tmp_path)


def test_without_a_name_every_known_suite_with_runs_is_reported(
    tiny: Suite, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path, resolve_specs(tiny)[0])
    with pytest.raises(Undecided, match="no run of a suite that is known here"):
        read_report([], tmp_path)
    assert "tiny: no suite of this name here" in capsys.readouterr().err
    recorded(tmp_path, resolve_specs(load_suite("listops"))[0])
    [table] = read_report([], tmp_path).tables
    assert table.id == "listops"
    assert any(row.name == "S5" and row.cells[0].reported == "62.15" for row in table.rows)


def test_a_foreign_file_among_the_suites_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "compose.yaml").write_text("services: {web: {image: nginx}}")
    monkeypatch.chdir(tmp_path)
    recorded(tmp_path / "results", resolve_specs(load_suite("quick"))[0])
    [table] = read_report([], tmp_path / "results").tables
    assert table.id == "quick"
    assert "suites/compose.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("name", [path.stem for path in Path(__file__).parents[2].glob("suites/*.yaml")])
def test_every_suite_finds_its_reported_table(name: str, tmp_path: Path) -> None:
    suite = load_suite(name)
    recorded(tmp_path, resolve_specs(suite)[0])
    [table] = read_report([name], tmp_path).tables
    assert table.kinds[0][0] == ("reported" if suite.reported else "measured")


def test_files_are_written_whole_or_not_at_all(tiny: Suite, tiny_file: Path, tmp_path: Path) -> None:
    recorded(tmp_path, resolve_specs(tiny)[0])
    tables = read_report([str(tiny_file)], tmp_path).tables
    out = tmp_path / "deep" / "reports"
    paths = command.write_tables(tables, out, csv=True, latex=True)
    assert [path.name for path in paths] == [
        *("tiny.csv", "tiny-wide.csv", "tiny.tex", "tiny-legend.tex", "tiny-report.tex")
    ]
    assert sorted(out.iterdir()) == sorted(paths)
    assert command.write_tables(tables, out) == []
    (tmp_path / "taken" / "tiny.csv").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"tiny.csv: cannot be written: "):
        command.write_tables(tables, tmp_path / "taken", csv=True)


@pytest.mark.parametrize("name", ["file", "table.tex", "deep/table.csv", "table.tex/"])
def test_out_is_a_folder_and_never_a_file(name: str, tiny: Suite, tiny_file: Path, tmp_path: Path) -> None:
    recorded(tmp_path / "results", resolve_specs(tiny)[0])
    tables = read_report([str(tiny_file)], tmp_path / "results").tables
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match=r"--out .*names a file, and must be a folder"):
        command.write_tables(tables, tmp_path / name, latex=True)
    assert (tmp_path / "file").read_text() == "mine"
    assert not list(tmp_path.glob("table*"))
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize("name", ["absent", "deep/absent/", "there", "there.tex"])
def test_an_absent_out_is_made_and_an_existing_one_kept(
    name: str, tiny: Suite, tiny_file: Path, tmp_path: Path
) -> None:
    recorded(tmp_path / "results", resolve_specs(tiny)[0])
    tables = read_report([str(tiny_file)], tmp_path / "results").tables
    for folder in ("there", "there.tex"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.txt").write_text("mine")
    out = tmp_path / name
    paths = command.write_tables(tables, out, latex=True)
    names = ["tiny.tex", "tiny-legend.tex", "tiny-report.tex"]
    assert paths == [out / name for name in names]
    assert {path.name for path in out.iterdir()} - {"mine.txt"} == set(names)
    assert (tmp_path / "there" / "mine.txt").read_text() == "mine"


def test_mixing_distances_next_to_a_suites_runs_are_a_column_of_its_own_table(
    tiny: Suite, tiny_file: Path, tmp_path: Path
) -> None:
    first, second = resolve_specs(tiny)
    written(recorded(tmp_path, first).parent, mean=12.0, sd=3.0)
    written(recorded(tmp_path, second).parent, trained=False)
    [table] = read_report([str(tiny_file)], tmp_path).tables
    assert [column.label for column in table.columns] == ["listops-tiny", "listops-tiny: mixing distance"]
    assert [row.cells[1].measured for row in table.rows[:2]] == [12.0, None]
    assert table.rows[0].cells[1].sd == 3.0
    assert not any(row.cells[1].best for row in table.rows)
    assert any(note.startswith("± of a mixing distance is over layers") for note in table.notes)


def test_distances_before_training_alone_make_no_column(tiny: Suite, tiny_file: Path, tmp_path: Path) -> None:
    written(recorded(tmp_path, resolve_specs(tiny)[0]).parent, trained=False)
    [table] = read_report([str(tiny_file)], tmp_path).tables
    assert [column.label for column in table.columns] == ["listops-tiny"]
