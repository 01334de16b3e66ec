"""What `msbench report NAME...` means."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from report_runs import read_report
from test_load_tables import recorded
from test_measure import written
from typer.testing import CliRunner

from msbench.cli import app
from msbench.errors import ConfigError, Undecided, UnknownName
from msbench.reporting.tables.cells import Table
from msbench.reporting.tables.definitions import PAPER_TABLES
from msbench.runs.suite import load_suite, resolve_specs

pytestmark = pytest.mark.usefixtures("handmade_records")


def ids(tables: Sequence[Table]) -> list[str]:
    return [table.id for table in tables]


PAPER = [table.id for table in PAPER_TABLES]


@pytest.mark.parametrize("name", ["ablation", "table-5", "5"])
def test_a_table_of_the_paper_has_three_names(name: str, tmp_path: Path) -> None:
    [table] = read_report([name], tmp_path).tables
    assert (table.id, table.number) == ("ablation", 5)


def test_paper_means_all_seven_without_any_run(tmp_path: Path) -> None:
    tables = read_report(["paper"], tmp_path).tables
    assert ids(tables) == PAPER
    assert all(table.kinds[0] == ("reported", "measured") for table in tables)
    assert not any(table.measured for table in tables)


def test_a_table_that_is_named_twice_is_shown_once(tmp_path: Path) -> None:
    assert ids(read_report(["5", "paper", "table-5"], tmp_path).tables) == [
        "ablation",
        *(name for name in PAPER if name != "ablation"),
    ]


@pytest.mark.parametrize("name", ["listops", "ptbxl", "lra"])
def test_a_suite_and_a_table_of_one_name_are_one(name: str, tmp_path: Path) -> None:
    recorded(tmp_path, resolve_specs(load_suite(name), ["mamba"])[0])
    [table] = read_report([name], tmp_path).tables
    assert table.number is not None
    assert next(row.run_ids for row in table.rows if row.model == "mamba")


def test_a_suite_of_another_name_has_its_own_table_and_fills_the_papers(tmp_path: Path) -> None:
    recorded(tmp_path, resolve_specs(load_suite("scifar"))[0])
    own, paper = read_report(["scifar", "1"], tmp_path).tables
    assert (own.number, len(own.columns)) == (None, 1)
    assert (paper.number, len(paper.columns)) == (1, 2)
    assert own.measured == paper.measured == 1


@pytest.mark.parametrize(
    ("name", "near"),
    [("ablaton", "ablation"), ("papr", "paper"), ("table5", "table-5"), ("scifr", "scifar")],
)
def test_an_unknown_name_is_answered_with_the_nearest_of_suites_and_tables(
    name: str, near: str, tmp_path: Path
) -> None:
    with pytest.raises(UnknownName, match=f"unknown suite or table '{name}'; did you mean '{near}'"):
        read_report([name], tmp_path)


def test_a_file_that_is_not_there_is_no_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.yaml"):
        read_report([str(tmp_path / "mine.yaml")], tmp_path)


def test_two_suites_of_one_name_are_not_mixed(tiny_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(tiny_file.read_text().replace("epochs: 3", "epochs: 4"))
    recorded(tmp_path, resolve_specs(load_suite(tiny_file))[0])
    with pytest.raises(ConfigError, match="two suites are called tiny"):
        read_report([str(tiny_file), str(other)], tmp_path)
    assert len(read_report([str(tiny_file), str(tiny_file)], tmp_path).tables) == 1


def test_a_scaled_suite_that_took_a_papers_name_never_fills_its_table(
    tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "suites").mkdir()
    mine = tmp_path / "suites" / "listops.yaml"
    mine.write_text(tiny_file.read_text().replace("name: tiny", "name: listops"))
    monkeypatch.chdir(tmp_path)
    recorded(tmp_path / "results", resolve_specs(load_suite("listops"))[0])
    for name in ("listops", "5"):
        with pytest.raises(ConfigError, match=r"listops\.yaml: protocol 'scaled' is never shown next to"):
            read_report([name], tmp_path / "results")
    [table] = read_report([], tmp_path / "results").tables
    assert (table.id, table.number, table.protocol) == ("listops", None, "scaled")
    assert ids(read_report([str(mine)], tmp_path / "results").tables) == ["listops"]


def test_a_broken_suite_takes_no_other_table_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Table 1 needs ImageNet's suite; without it sCIFAR still has a table of its own."""
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "imagenet.yaml").write_text("name: [")
    monkeypatch.chdir(tmp_path)
    recorded(tmp_path / "results", resolve_specs(load_suite("scifar"))[0])
    assert ids(read_report([], tmp_path / "results").tables) == ["scifar"]
    assert "imagenet.yaml" in capsys.readouterr().err


def test_without_a_name_come_tables_with_measurements_and_suites_with_runs(tmp_path: Path) -> None:
    """Table 2 is that of the suite; Table 5 shows its runs too, Table 6 and 7 have nothing of theirs."""
    recorded(tmp_path, resolve_specs(load_suite("listops"), models=["msssm-no-ssm"])[0])
    recorded(tmp_path, resolve_specs(load_suite("quick"))[0])
    assert ids(read_report([], tmp_path).tables) == ["listops", "ablation", "quick"]


def test_the_table_of_a_suite_whose_runs_all_failed_is_shown(tmp_path: Path) -> None:
    spec = resolve_specs(load_suite("listops"))[0]
    recorded(tmp_path, spec, status="diverged", metrics={})
    [table] = read_report([], tmp_path).tables
    assert (table.id, table.measured) == ("listops", 0)


def test_a_suite_without_runs_is_undecided_and_the_papers_table_is_not(tmp_path: Path) -> None:
    with pytest.raises(Undecided, match="suite scifar: nothing has been run; 'msbench run scifar'"):
        read_report(["scifar"], tmp_path)
    assert ids(read_report(["listops"], tmp_path).tables) == ["listops"]


def test_nothing_at_all_points_to_the_papers_tables(tmp_path: Path) -> None:
    with pytest.raises(Undecided, match="'msbench report paper' shows all seven tables"):
        read_report([], tmp_path)


def test_the_command_without_a_name_points_to_the_papers_tables(tmp_path: Path) -> None:
    recorded(tmp_path, resolve_specs(load_suite("quick"))[0])
    done = CliRunner().invoke(app, ["report", "--results", str(tmp_path)])
    assert done.exit_code == 0
    assert done.stderr == "msbench: 'msbench report paper' shows all seven tables of the paper\n"
    assert CliRunner().invoke(app, ["report", "quick", "--results", str(tmp_path)]).stderr == ""


def test_distances_next_to_runs_are_read_and_bad_ones_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (
        resolve_specs(load_suite("listops"), models=[model])[0] for model in ("mamba", "msssm-s6")
    )
    written(recorded(tmp_path, first).parent, mean=41.0, sd=20.0)
    bad = written(recorded(tmp_path, second).parent, mean="far")
    [table] = read_report(["6"], tmp_path).tables
    assert [(row.name, row.cells[0].measured) for row in table.rows] == [
        ("Mamba", 41.0),
        ("MS-SSM (S6)", None),
    ]
    assert str(bad) in capsys.readouterr().err


def test_every_table_is_judged_once_by_who_is_asked_to(tmp_path: Path) -> None:
    seen: list[str] = []

    def judge(table: Table) -> Table:
        seen.append(table.id)
        return table

    read_report(["paper"], tmp_path, judge=judge)
    assert seen == PAPER


def test_the_runs_behind_a_cell_are_found(tmp_path: Path) -> None:
    """Also where another suite has a run of the same id: the id does not tell the suite."""
    files = {
        (name, model): recorded(
            tmp_path, resolve_specs(load_suite(name), models=[model])[0], source_digest=name
        )
        for name in ("lra", "listops", "listops-release")
        for model in ("mamba", "msssm-s6")
    }
    loaded = read_report(["lra", "listops", "listops-release"], tmp_path)
    for table, name in zip(loaded.tables, ("lra", "listops", "listops-release"), strict=True):
        [row] = (row for row in table.rows if row.model == "mamba")
        [record] = loaded.list_runs(table, row, 0)
        assert (record.suite, record.model) == (name, "mamba")
        assert loaded.find_folder(record) / "run.json" == files[name, "mamba"]
    lra = loaded.tables[0]
    assert [loaded.list_runs(lra, row, 6) for row in lra.rows if row.model == "mamba"] == [()]
