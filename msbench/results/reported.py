"""The paper's numbers, read from ``results/reported/*.csv``: one row per cell, everything as text.

Values stay as printed: trailing zeros are kept, and a model named None, NA, 1e5 or 007 keeps its name.
"""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from pydantic import AfterValidator, Field

from msbench.config.base import Config
from msbench.config.layers import LocatedValues, validate
from msbench.errors import ConfigError
from msbench.results.files import list_shared_folders, read_bytes

Required = Annotated[str, Field(min_length=1)]
NUMBER = re.compile(r"(-?[0-9]+(\.[0-9]+)?)?")


def check_number(text: str) -> str:
    """Return a plain number as printed, or an empty text; raise ValueError for another."""
    if not NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a plain number; leave it empty where the paper prints '-'")
    return text


Number = Annotated[str, AfterValidator(check_number)]


class ReportedCell(Config):
    """One cell of a table of the paper; the fields are the header of the CSV.

    `model` is the msbench model that the row stands for, or empty. `note` records where the value disagrees
    with its own source.
    """

    table: Required
    label: Required
    group: str
    row: Required
    model: str
    column: Required
    value: Number
    sd: Number
    unit: Literal["percent", "auroc", "tokens"]
    source: Required
    note: str


HEADER = list(ReportedCell.model_fields)


def read_reported(path: Path) -> list[ReportedCell]:
    """Return the cells of one CSV, in file order. Raises ConfigError as `read_reported_lines` does."""
    return list(read_reported_lines(path).values())


def read_reported_lines(path: Path) -> dict[int, ReportedCell]:
    """Return the cells of one CSV by their line, in file order.

    Raises ConfigError, with file and line, for a header, a row or a value that is not as documented.
    """
    cells: dict[int, ReportedCell] = {}
    seen: dict[tuple[str, str, str], int] = {}
    for line, row in _lines(path):
        cell = _cell(path, line, row)
        place = (cell.group, cell.row, cell.column)
        if place in seen:
            _refuse_line(
                path, line, f"row {cell.row!r}, column {cell.column!r} is already on line {seen[place]}"
            )
        seen[place] = line
        cells[line] = cell
    if not cells:
        _refuse_line(path, 1, "no cells below the header")
    return cells


def read_all_reported(folder: Path) -> list[ReportedCell]:
    """Return the cells of every CSV in `folder`, files sorted by name.

    Raises ConfigError where there is none.
    """
    paths = sorted(folder.glob("[!.]*.csv"))
    if not paths:
        raise ConfigError(f"{folder}: no CSV with reported numbers; they come with the source of msbench")
    return [cell for path in paths for cell in read_reported(path)]


def find_reported(results: Path) -> Path:
    """Return the folder of the paper's numbers: in `results`, or those that come with msbench.

    Raises ConfigError, naming the folders, where none of them has a CSV.
    """
    folders = list_shared_folders(results, "reported")
    for folder in folders:
        if any(folder.glob("[!.]*.csv")):
            return folder
    raise ConfigError(f"no reported numbers (*.csv) in {', '.join(map(str, folders))}")


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and fields of every row below the header."""
    try:
        reader = csv.reader(io.StringIO(read_bytes(path).decode(), newline=""), strict=True)
        if (header := next(reader, [])) != HEADER:
            _refuse_line(path, 1, f"the header must be {','.join(HEADER)}, not {','.join(header)}")
        for row in reader:
            yield reader.line_num, row
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None
    except csv.Error as error:
        _refuse_line(path, reader.line_num, str(error))


def _cell(path: Path, line: int, row: list[str]) -> ReportedCell:
    if len(row) != len(HEADER):
        _refuse_line(path, line, f"{len(row)} fields where the header has {len(HEADER)}")
    values = dict(zip(HEADER, row, strict=True))
    cell = validate(ReportedCell, LocatedValues(values, {}, f"{path}:{line}"))
    if cell.table != path.stem:
        _refuse_line(path, line, f"table {cell.table!r} in a file named {path.name}")
    if cell.sd and not cell.value:
        _refuse_line(path, line, f"sd {cell.sd!r} without a value")
    return cell


def _refuse_line(path: Path, line: int, problem: str) -> NoReturn:
    raise ConfigError(f"{path}:{line}: {problem}")
