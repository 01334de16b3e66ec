"""Tables, records and logs of runs, made by hand."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msbench.reporting.figures.series import Series, collect_series
from msbench.reporting.tables.cells import Cell, Column, Report, Row, Table
from msbench.results.record import RunRecord

CPU = {"device": "cpu", "cpu": "A Processor", "threads": 2}
GPU = {"device": "cuda", "gpus": ["NVIDIA H100"]}


def column(task: str, label: str, unit: str = "percent", **changes: Any) -> Column:
    """A column of the suite ``small``."""
    return Column(task, label, unit, "small", **changes)


COLUMN = column("listops", "ListOps")
NOWHERE = Path("nowhere")
NAMES = (
    *(
        "S4_D & 50%",
        "$x$",
        r"\frac{$",
        "модель",
        "<tag>",
        "模型",
        "a" * 90,
        "a" * 89 + "b",
        "",
        " \x1b[1m\n\x00",
    ),
    *("MS-SSM→δ", "a_b^c"),
)
"""Names that could be read as mathematics, that fonts lack, that are no XML, too long, or none."""


def record(identity: str, *, seed: int = 0, task: str = "listops", **changes: Any) -> RunRecord:
    """A finished run with an accuracy of 0.5."""
    values: dict[str, Any] = {
        "run_id": identity,
        "status": "finished",
        "suite": "small",
        "task": task,
        "model": "mamba",
        "seed": seed,
        "spec": {},
        "spec_digest": identity,
        "data_digest": "data",
        "source_digest": "source",
        "metrics": {"test_accuracy": 0.5},
        "parameters": 1000,
        "timing": {"train_seconds": 60.0},
        "environment": CPU,
    }
    # A run id is twelve digits; a letter is easier to read in a test.
    return RunRecord(**(values | changes | {"run_id": "0" * 12})).model_copy(update={"run_id": identity})


def cell(*run_ids: str, **changes: Any) -> Cell:
    """A measured cell of these runs."""
    values: dict[str, Any] = {
        "measured": 50.0,
        "n": len(run_ids),
        "n_planned": len(run_ids),
        "status": "measured",
    }
    return Cell(**{**values, **changes, "run_ids": run_ids})


def table(rows: Mapping[str, Sequence[Cell]], columns: Sequence[Column] = (COLUMN,), **changes: Any) -> Table:
    """A table with a row a name; the models are called ``mamba``."""
    made = tuple(Row(name, "Models", "mamba", tuple(cells)) for name, cells in rows.items())
    values: dict[str, Any] = {"id": "small", "title": "Small", "caption": "For tests."}
    return Table(**(values | changes), columns=tuple(columns), rows=made)


def report_of(*tables: Table, records: Iterable[RunRecord] = (), results: Path = NOWHERE) -> Report:
    """A report of these tables and records."""
    return Report(tables, results, {each.run_id: (each,) for each in records})


def series_in(of: Table, records: Iterable[RunRecord]) -> list[Series]:
    """The series of a table whose cells these records are behind."""
    return collect_series(report_of(of, records=records), of)


def write_log(folder: Path, epochs: Sequence[tuple[float, float]]) -> None:
    """A ``metrics.csv`` with these losses in training and accuracies on validation, of 10 steps an epoch."""
    lines = [f"{at},{10 * at + 10},{loss!r},{accuracy!r}" for at, (loss, accuracy) in enumerate(epochs)]
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(("epoch,step,train_loss,validation_accuracy", *lines, ""))
    (folder / "metrics.csv").write_text(text, encoding="utf-8")


def points_of(line: Any) -> list[tuple[float, float]]:
    """The points of a line, as they were given to matplotlib."""
    return [(float(across), float(upwards)) for across, upwards in line.get_xydata()]
