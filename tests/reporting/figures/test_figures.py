"""All figures of a report: what is drawn, what is not and why, and what that costs in imports."""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from figure_values import COLUMN, CPU, GPU, NAMES, cell, column, record, report_of, table, write_log
from typer.testing import CliRunner

from msbench.cli import app
from msbench.errors import ConfigError
from msbench.reporting.command import describe_figures
from msbench.reporting.figures import WITHOUT_MODELS, FigureFile, make_figures, write_figures
from msbench.reporting.figures.style import apply_style
from msbench.reporting.tables.cells import Cell, Report, find_run_folder
from msbench.results.record import RunRecord, compute_run_id, write_record
from msbench.results.store import get_run_folder
from msbench.runs.suite import Suite, resolve_specs

pytestmark = pytest.mark.usefixtures("handmade_records")

BENCH = Path(__file__).parents[3] / "results" / "bench"
COLUMNS = (column("listops", "ListOps $"), column("text", "Text & <more>"))


def finished(names: Sequence[str], results: Path, seeds: int = 1) -> Report:
    """A table of these models on two tasks, with logs and mixing distances of their runs."""
    rows: dict[str, list[Cell]] = {name: [] for name in names}
    records: list[RunRecord] = []
    for number, name in enumerate(names):
        for place in COLUMNS:
            ids = [f"{place.task}-{number}-{seed}" for seed in range(seeds)]
            records += [
                record(identity, seed=seed, task=place.task, parameters=1000 * 2**number)
                for seed, identity in enumerate(ids)
            ]
            sd = 1.5 if seeds > 1 else None
            rows[name].append(cell(*ids, measured=50.0 + number, sd=sd, reported="52.5"))
    for each in records:
        folder = find_run_folder(results, each)
        write_log(folder, [(2.0 - each.seed / 8, 0.25), (1.0, 0.5)])
        layers = [
            {"layer": number, "mean": mean, "sd": 1.0, "n": 2}
            for number, mean in enumerate((1.0 + each.seed, 40.0))
        ]
        measured = {
            "schema_version": 1,
            "run_id": each.run_id,
            "trained": True,
            "created": "2026-01-01",
            "options": {},
            "options_digest": "a",
            "default_options": True,
            "mean": 20.0,
            "sd": 1.0,
            "layers": layers,
            "examples": 8,
        }
        (folder / "mixing").mkdir()
        (folder / "mixing" / "trained.json").write_text(json.dumps(measured), encoding="utf-8")
    return report_of(table(rows, COLUMNS), records=records, results=results)


def stems(found: Sequence[FigureFile]) -> list[str]:
    return [each.stem for each in found if not each.reason]


ALL = [f"small-{kind}" for kind in WITHOUT_MODELS]


@pytest.mark.parametrize(("names", "seeds"), [(NAMES[:1], 1), (NAMES, 2)])
def test_one_model_and_twelve_with_odd_names(names: Sequence[str], seeds: int, tmp_path: Path) -> None:
    found = make_figures(finished(names, tmp_path, seeds))
    assert stems(found) == ALL
    for each in found:
        drawn = each.figure()
        assert drawn.axes
        boxes = [axes.get_window_extent() for axes in drawn.axes]
        assert all(box.width > 40 and box.height > 40 for box in boxes), "no panel is squeezed by its legend"
        rows = list(csv.DictReader(each.csv().decode().splitlines(keepends=True)))
        assert len(rows) == len(each.rows)
        assert [row["name"] for row in rows] == [row.name for row in each.rows]
        assert {row["name"] for row in rows} == set(names)


def test_a_legend_covers_no_data(tmp_path: Path) -> None:
    for each in make_figures(finished(NAMES, tmp_path, 2), ["curves", "reported"]):
        drawn = each.figure()
        [legend] = drawn.legends
        with apply_style():
            box = legend.get_window_extent()
        assert box.y0 >= 0
        assert all(axes.get_window_extent().y0 > box.y1 for axes in drawn.axes)


def test_figures_without_data_have_a_reason_and_no_files(tmp_path: Path) -> None:
    nothing = report_of(table({"Mamba": [Cell(reported="50"), Cell()]}, COLUMNS))
    found = make_figures(nothing)
    assert [each.stem for each in found] == ALL
    assert [each.reason for each in found] == [
        "no model has a result that was measured as planned",
        "no run has a log of epochs",
        "no model has both a measured number and a number of parameters",
        "no model has both a measured number and a time of training",
        "no cell has both a reported and a measured number",
        "no run has a measured mixing distance; `msbench mixing` measures it",
    ]
    assert write_figures(found, tmp_path / "out") == []
    assert describe_figures(found)[1] == "no figure small-curves: no run has a log of epochs"
    again = make_figures(replace(nothing, tables=nothing.tables * 2))
    assert describe_figures(again)[1] == (
        "no figure small-curves, small-curves-2: no run has a log of epochs"
    )
    assert not (tmp_path / "out").exists()


def test_runs_on_other_hardware_are_in_the_caption() -> None:
    made = table({"A": [cell("a", "b", "c")]})
    records = [record("a", environment=CPU), record("b", environment=CPU), record("c", environment=GPU)]
    [found] = make_figures(report_of(made, records=records), ["time"])
    assert found.rows[0].run_ids == ("a", "b")
    assert "1 run on NVIDIA H100 left out" in found.caption


def test_a_model_looks_alike_everywhere_and_files_have_their_own_names(tmp_path: Path) -> None:
    made = finished(["Mamba", "MS-SSM"], tmp_path)
    again = table({"MS-SSM": made.tables[0].rows[1].cells}, COLUMNS)
    one, two = make_figures(replace(made, tables=(*made.tables, again)), ["curves"])
    assert [one.stem, two.stem] == ["small-curves", "small-curves-2"]
    looks = [
        {
            text.get_text(): line.get_color()
            for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
        }
        for each in (one, two)
        for legend in each.figure().legends
    ]
    assert looks[0]["MS-SSM"] == looks[1]["MS-SSM"] != looks[0]["Mamba"]


def test_benchmarks_of_the_scan_are_found(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    for path in BENCH.glob("*.json"):
        shutil.copy(path, tmp_path / "bench")
    (tmp_path / "bench" / "scan-broken $.json").write_text("{")
    found = make_figures(report_of(results=tmp_path))
    assert stems(found) == ["bench-scan-cpu-length", "bench-scan-cpu-backends"]
    [broken] = [each for each in found if each.reason]
    assert broken.stem == "bench-scan-broken-"
    assert "no benchmark of the scan" in broken.reason
    assert all("threads" in each.description for each in found if not each.reason)


def recorded(tiny: Suite, results: Path) -> list[RunRecord]:
    """Finished runs of the suite ``tiny``, on disk."""
    found = []
    for spec in resolve_specs(tiny):
        made = record(
            compute_run_id(spec.digest, "data", "source"),
            task=spec.task,
            model=spec.model_name,
            seed=spec.seed,
            spec=spec.model_dump(mode="json"),
            spec_digest=spec.digest,
            suite="tiny",
            n_test=20,
        )
        folder = get_run_folder(results, spec, made.run_id)
        write_record(folder, made)
        write_log(folder, [(1.0, 0.25)])
        found.append(made)
    return found


def test_averages_and_distances_are_no_accuracy_of_runs() -> None:
    average = column("average", "Average", source="average", of=(("small", "listops"), ("small", "text")))
    distance = column("listops", "Distance", "tokens", source="mixing")
    cells = [cell("a", reported="50"), cell("a", measured=3.0, reported="4"), Cell()]
    rule = [Cell(), Cell(), Cell(measured=9.0, status="trivial-rule")]
    made = table({"Mamba": cells, "rule": rule}, [average, distance, COLUMN])
    found = {
        each.stem.removeprefix("small-"): each
        for each in make_figures(report_of(made, records=[record("a")]))
    }
    assert [row.label for row in found["reported"].rows] == ["Average", "Distance"]
    assert found["parameters"].rows == found["time"].rows == ()


def test_the_command_writes_them_without_torch(tiny: Suite, tiny_file: Path, tmp_path: Path) -> None:
    recorded(tiny, tmp_path)
    arguments = [
        "msbench",
        "report",
        str(tiny_file),
        "--results",
        str(tmp_path),
        "--out",
        str(tmp_path / "out"),
    ]
    code = (
        f"import sys; sys.argv = {[*arguments, '--figures']!r}\n"
        "import msbench.cli\n"
        "try: msbench.cli.main()\n"
        "finally: print([name for name in ('torch', 'matplotlib.pyplot') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "no figure tiny-reported: no cell has both" in done.stderr
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {
        f"tiny-{kind}.{suffix}" for kind in WITHOUT_MODELS[:4] for suffix in ("csv", "pdf", "png", "svg")
    }


def test_the_command_draws_the_start_where_asked(
    tiny: Suite, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tiny, tmp_path)
    asked: list[tuple[str, ...]] = []

    def only_asked(*arguments: Any) -> list[FigureFile]:
        asked.append(arguments[-1])
        return [FigureFile("tiny-initialisation", "Start", reason="not now")]

    monkeypatch.setattr("msbench.reporting.figures.make_figures", only_asked)
    for options in (["--figures"], ["--initialisation"], []):
        done = CliRunner().invoke(app, ["report", str(tiny_file), "--results", str(tmp_path), *options])
        assert done.exit_code == 0, done.stderr
        assert ("not now" in done.stderr) == bool(options)
    assert asked == [WITHOUT_MODELS, (*WITHOUT_MODELS, "initialisation")]


def test_out_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be a folder"):
        write_figures(make_figures(report_of()), tmp_path / "figure.pdf")


def test_the_page_alone_says_nothing_of_figures(tiny: Suite, tiny_file: Path, tmp_path: Path) -> None:
    recorded(tiny, tmp_path)
    asked = ["report", str(tiny_file), "--results", str(tmp_path), "--out", str(tmp_path / "out"), "--html"]
    assert "no figure" not in CliRunner().invoke(app, asked).stderr
    assert "no figure" in CliRunner().invoke(app, [*asked, "--figures"]).stderr


def test_panels_stand_in_the_order_of_the_columns(tmp_path: Path) -> None:
    """Also where the first model has no result in the first of them."""
    found = finished(["A", "B"], tmp_path)
    (first, *others) = found.tables[0].rows
    without = replace(first, cells=(Cell(), *first.cells[1:]))
    made = replace(found, tables=(replace(found.tables[0], rows=(without, *others)),))
    for each in make_figures(made, ["curves", "parameters", "mixing"]):
        assert list(dict.fromkeys(row.label for row in each.rows)) == [place.label for place in COLUMNS]


def test_runs_in_two_columns_have_one_panel_of_distances(tmp_path: Path) -> None:
    found = finished(["A"], tmp_path)
    (table_,) = found.tables
    again = replace(COLUMNS[0], label="distance", unit="tokens", source="mixing")
    (row,) = table_.rows
    made = replace(table_, columns=(*COLUMNS, again), rows=(replace(row, cells=(*row.cells, row.cells[0])),))
    (figure,) = make_figures(replace(found, tables=(made,)), ["mixing"])
    assert list(dict.fromkeys(row.label for row in figure.rows)) == [COLUMNS[1].label, "distance"]


def draw(
    tiny_file: Path, results: Path, folder: Path, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """``msbench report --figures`` in a folder, under these environment variables."""
    words = ["report", str(tiny_file), "--results", str(results), "--figures", "--out", "out"]
    return subprocess.run(
        [sys.executable, "-m", "msbench", *words],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("backend", ["module://matplotlib_inline.backend_inline", "nonsense"])
def test_no_backend_is_looked_for(backend: str, tiny: Suite, tiny_file: Path, tmp_path: Path) -> None:
    recorded(tiny, tmp_path / "results")
    done = draw(tiny_file, tmp_path / "results", tmp_path, MPLBACKEND=backend)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "out").glob("*.svg"))) == 4


def test_unreadable_settings_of_matplotlib_are_one_message(
    tiny: Suite, tiny_file: Path, tmp_path: Path
) -> None:
    recorded(tiny, tmp_path / "results")
    path = tmp_path / "matplotlibrc"
    path.write_text("font.size: 30\nno.such.key: 1\n", encoding="utf-8")
    done = draw(tiny_file, tmp_path / "results", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no.such.key" not in done.stderr  # none of the file is used, so nothing is said of its content
    path.write_bytes(b"font.size: 30  # caf\xe9\n")
    done = draw(tiny_file, tmp_path / "results", tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("msbench: figures: Cannot decode configuration file ")
    assert line.endswith("matplotlibrc' as utf-8. Correct that file, or move it away")
