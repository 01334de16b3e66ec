"""``msbench bench data``: what is set up is measured, what is not says so."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from msbench import datasets
from msbench.analysis.benchmarks import data
from msbench.analysis.benchmarks.options import BenchmarkOptions
from msbench.cli import app
from msbench.errors import DataError, ExitCode, UnknownName
from msbench.runs.suite import Suite, list_suites, resolve_specs


def bench(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["bench", "data", *map(str, arguments)])


@pytest.fixture
def only_tiny(tiny: Suite, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.setattr(data, "list_suites", lambda **_: [tiny])
    return tiny


def test_each_way_of_seeing_a_set_is_named_once() -> None:
    entries = list(data.list_entries(print))
    specs = [spec for suite in list_suites() for spec in resolve_specs(suite)]
    assert {entry.config for entry in entries} == {spec.data for spec in specs}
    assert len({entry.config for entry in entries}) == len(entries)
    assert entries[0].name == f"{specs[0].suite} {specs[0].task}"


def test_a_set_that_is_there_is_opened_and_fed(only_tiny: Suite, tmp_path: Path) -> None:
    spec = resolve_specs(only_tiny)[0]
    dataset = datasets.setup(spec.data, datasets.data_root())
    done = bench("--json", "-q", "--quick", "--out", tmp_path / "data.json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert json.loads((tmp_path / "data.json").read_text(encoding="utf-8")) == found
    (row,) = found["rows"]
    assert row["status"] == "measured"
    assert row["name"] == "tiny listops-tiny"
    assert (row["digest"], row["examples"]) == (dataset.digest, 100)
    assert row["made_per_second"] == pytest.approx(100 / row["made_seconds"])
    assert row["examples_per_second"] == pytest.approx(60 / row["epoch"]["median"])
    lengths = dataset.splits["train"].lengths
    positions = row["positions_per_second"] * row["epoch"]["median"]
    assert lengths.sum() - 1 <= positions <= len(lengths) * lengths.max() + 1
    assert row["resident_bytes"] == 0
    again = bench("--json", "-q", "--quick", "--compare", tmp_path / "data.json")
    assert {line["mode"] for line in json.loads(again.stdout)["comparison"]["rows"]} == {"open", "epoch"}


def test_tables_fit_80_columns(only_tiny: Suite) -> None:
    datasets.setup(resolve_specs(only_tiny)[0].data, datasets.data_root())
    done = bench("-q", "--quick")
    assert done.exit_code == 0, done.output
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "tiny listops-tiny" in done.stdout
    assert "Opened again" in done.stdout


@pytest.mark.usefixtures("only_tiny")
def test_what_is_not_set_up_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path))
    done = bench("-q")
    assert done.exit_code == ExitCode.UNDECIDED
    command = (
        "msbench setup listops --set data.train=60 --set data.validation=20 --set data.test=20"
        " --set data.min_length=3 --set data.max_length=20 --set data.max_depth=4 --set data.max_args=3"
    )
    assert f"tiny listops-tiny: skipped: not set up: `{command}`" in done.stdout


def test_a_fault_of_one_set_marks_its_row(only_tiny: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets.setup(resolve_specs(only_tiny)[0].data, datasets.data_root())

    def broken(*_args: object) -> None:
        raise DataError("tokens.npy is damaged")

    monkeypatch.setattr(datasets, "open_dataset", broken)
    (row,) = data.measure_datasets(BenchmarkOptions(repeats=3), lambda _text: None)["rows"]
    assert row["status"] == "failed"
    assert "tokens.npy is damaged" in row["reason"]


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(UnknownName, match="--only"):
        data.measure_datasets(BenchmarkOptions(only=("listopps",)), lambda _text: None)


def test_an_invalid_suite_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "broken.yaml").write_text("name: broken\n")
    reported: list[str] = []
    assert list(data.list_entries(reported.append))
    assert any("broken.yaml" in line for line in reported)
