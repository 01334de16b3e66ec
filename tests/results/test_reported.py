import os
import shutil
from pathlib import Path

import pytest
from report_runs import ODD_NAMES, printed

from msbench.errors import ConfigError
from msbench.results import files
from msbench.results.reported import HEADER, ReportedCell, find_reported, read_all_reported, read_reported

FOLDER = Path(__file__).parents[2] / "results" / "reported"
GOOD = "listops,tab:listops,SSMs,S4,s4,Accuracy (%),59.60,,percent,gu2022efficiently,"


def written(tmp_path: Path, *lines: str, name: str = "listops.csv") -> Path:
    path = tmp_path / name
    path.write_text("\n".join([",".join(HEADER), *lines]) + "\n", encoding="utf-8")
    return path


def test_names_and_digits_survive_reading(tmp_path: Path) -> None:
    names = [name for name in ODD_NAMES if name and not files.FORMULA.match(name)]
    cells = [printed(name, "59.60", group=name, model=name, note=name) for name in names]
    path = tmp_path / "listops.csv"
    path.write_bytes(files.encode_csv(HEADER, [[getattr(cell, key) for key in HEADER] for cell in cells]))
    assert read_reported(path) == cells


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("listops,tab:listops,SSMs,S4", "4 fields where the header has 11"),
        (
            GOOD.replace("59.60", "nan"),
            "value: 'nan' is not a plain number; leave it empty where the paper prints '-'",
        ),
        (
            GOOD.replace("59.60", "-"),
            "value: '-' is not a plain number; leave it empty where the paper prints '-'",
        ),
        (GOOD.replace("59.60", "59,60"), "12 fields"),
        (GOOD.replace("percent", "percents"), "did you mean 'percent'"),
        (GOOD.replace(",S4,", ",,"), "row: must not be empty"),
        (GOOD.replace("gu2022efficiently", ""), "source: must not be empty"),
        (GOOD.replace("listops,tab", "lra,tab"), "table 'lra' in a file named listops.csv"),
        (GOOD.replace("59.60,", ",1.0"), "sd '1.0' without a value"),
        (GOOD.replace("SSMs", '"SSMs" x'), "expected after"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, problem: str) -> None:
    path = written(tmp_path, GOOD.replace("S4", "S5"), line)
    with pytest.raises(ConfigError) as caught:
        read_reported(path)
    assert f"{path}:3: " in str(caught.value)
    assert problem in str(caught.value)


def test_a_repeated_cell_names_both_lines(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD, GOOD)
    with pytest.raises(ConfigError, match=r":3: row 'S4', column 'Accuracy \(%\)' is already on line 2"):
        read_reported(path)


def test_another_header_no_rows_and_no_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "listops.csv"
    path.write_text("table,value\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"listops.csv:1: the header must be table,label"):
        read_reported(path)
    with pytest.raises(ConfigError, match="no cells"):
        read_reported(written(tmp_path))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_reported(tmp_path / "absent.csv")


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "listops.csv"
    path.write_bytes(",".join(HEADER).encode() + b"\n\xff\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_reported(path)


def test_a_folder_without_numbers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no CSV"):
        read_all_reported(tmp_path)


def test_the_results_folder_comes_before_the_checkout(tmp_path: Path) -> None:
    assert find_reported(tmp_path) == FOLDER
    (tmp_path / "reported").mkdir()
    written(tmp_path / "reported", GOOD)
    assert find_reported(tmp_path) == tmp_path / "reported"


def test_every_table_of_the_paper_is_there() -> None:
    counts: dict[str, int] = {}
    for cell in read_all_reported(FOLDER):
        counts[cell.table] = counts.get(cell.table, 0) + 1
    assert counts == {
        "ablation": 20,
        "ablation-initialisation": 4,
        "classification": 32,
        "listops": 26,
        "lra": 96,
        "mixing-distance": 2,
        "ptbxl": 60,
    }


def test_a_row_has_one_model_and_a_column_one_unit() -> None:
    rows: dict[tuple[str, str, str], set[str]] = {}
    units: dict[tuple[str, str], set[str]] = {}
    for cell in read_all_reported(FOLDER):
        rows.setdefault((cell.table, cell.group, cell.row), set()).add(cell.model)
        units.setdefault((cell.table, cell.column), set()).add(cell.unit)
    assert all(len(models) == 1 for models in rows.values())
    assert all(len(found) == 1 for found in units.values())


def test_averages_are_noted_where_they_are_not_the_mean_of_their_row() -> None:
    """A note may excuse an average, but every average without such a note is the mean of its row."""
    rows: dict[str, list[ReportedCell]] = {}
    for cell in read_all_reported(FOLDER):
        if cell.table == "lra":
            rows.setdefault(cell.row, []).append(cell)
    off = []
    for name, (*tasks, average) in rows.items():
        values = [float(cell.value) for cell in tasks if cell.value]
        if abs(sum(values) / len(values) - float(average.value)) > 0.005 + 1e-9:
            off.append(name)
            assert " is " in average.note or "neither" in average.note
    assert off == ["DSS_softmax", "DSSEXP", "DSSEXP-NO-SCALE", "Griffin", "MS-SSM (S6)"]


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "listops.csv")
    with pytest.raises(ConfigError, match="cannot be read: not a regular file"):
        read_reported(tmp_path / "listops.csv")


@pytest.mark.parametrize("name", [".listops.csv", "._listops.csv", ".#listops.csv"])
def test_hidden_files_are_no_reported_numbers(tmp_path: Path, name: str) -> None:
    numbers = tmp_path / "reported"
    shutil.copytree(FOLDER, numbers)
    cells = read_all_reported(numbers)
    if name.startswith(".#"):
        (numbers / name).symlink_to("somebody@host.1234:5678")
    else:
        (numbers / name).write_bytes(b"\0\5\x16\7Mac OS X")
    assert read_all_reported(numbers) == cells
    for path in numbers.glob("[!.]*"):
        path.unlink()
    assert find_reported(tmp_path) != numbers
