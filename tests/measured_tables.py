"""What was measured, as the tables of ``docs/results.md``: made from the records that are published."""

import atexit
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

from msbench.config.run import RunSpec
from msbench.reporting.render.formatting import format_measured
from msbench.reporting.tables.breakdown import add_breakdowns
from msbench.reporting.tables.cells import (
    MODIFIED_GROUP,
    RULES_GROUP,
    UNITS,
    Column,
    Report,
    Row,
    Table,
)
from msbench.reporting.tables.load import ReportOptions, load_report
from msbench.reporting.tables.versus import LEVEL, POWER, compare_over_seeds, compare_tables
from msbench.results.mixing_documents import Distances, find_comparable
from msbench.results.record import RunRecord
from msbench.results.reported import read_all_reported
from msbench.runs.suite import list_suites, load_suite, resolve_specs
from msbench.stats.difference import Difference, find_detectable_difference, holm
from msbench.stats.summary import compute_sd

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "results"
REPORTED = RESULTS / "reported"
LAPTOP = [each.name for each in list_suites(REPOSITORY / "suites") if each.name.startswith("laptop-")]
BASES = {"laptop-ptbxl": "msssm-s6"}
"""The model that others are compared with, where it is not mamba."""
BY = {"laptop-listops-long": ("length", "reach"), "laptop-recall": ("distance",)}
"""The properties of the test examples that accuracy is shown by."""
SINCE = {
    "laptop-listops": (
        ("bucketing: false", "bucketing: true"),
        ("\n  s4: {model: {state: 40}", "\n  s4: {model: {state: 40, b_clip: null}"),
    )
}
"""What has changed in a suite, or a model's start, since the published runs: as it is now and as it was."""
NO_READING = ("train.lr", "train.epochs")
"""Settings that no one reads the paper for."""
STANDING = re.compile(
    r"the paper has it (above|below) .*; here the difference is (.*? to .*?\)): .*, (p .*) \(Holm,"
    r" [^)]*\)(?:; a true difference of (\S+) would be found by 80% of such tests)?"
)
UNDER_WAY = ("listops-150",)
"""Tasks with runs that are not in the tables yet: seeds are missing."""
PUBLISHED = [name for name in LAPTOP if (RESULTS / name).is_dir()]


@cache
def suite_of(name: str) -> str:
    """The name of a suite, or a file that has it as it was for its published runs."""
    if name not in SINCE:
        return name
    text = (REPOSITORY / "suites" / f"{name}.yaml").read_text(encoding="utf-8")
    for now, then in SINCE[name]:
        assert text.count(now) == 1, "the runs were measured again: leave it out of SINCE"
        text = text.replace(now, then)
    folder = Path(mkdtemp())
    atexit.register(rmtree, folder)
    (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return str(folder / f"{name}.yaml")


def read_report(name: str, **options: Any) -> Report:
    """The report of a suite on the published results, without the tasks that are under way."""
    report = load_report(ReportOptions(names=[suite_of(name)], results=RESULTS, **options))
    done = (
        keep_columns(table, [column for column in table.columns if column.task not in UNDER_WAY])
        for table in report.tables
    )
    return replace(report, tables=tuple(table for table in done if table.columns))


def keep_columns(table: Table, columns: Sequence[Column]) -> Table:
    """The table with some of its columns alone."""
    places = [table.columns.index(column) for column in columns]
    rows = (replace(row, cells=tuple(row.cells[at] for at in places)) for row in table.rows)
    return replace(table, columns=tuple(columns), rows=tuple(rows))


def list_tasks(table: Table) -> Iterator[Table]:
    """Yield the table of each task alone: its column of results."""
    for column in table.columns:
        if column.source == "run":
            yield keep_columns(table, [column])


def blocks(name: str, base: str) -> list[str]:
    """The tables of a suite: for each task its models against `base`, then each claim that says something."""
    report = compare_tables(read_report(name), base)
    own, *claims = report.tables
    return [
        *(models(report, each, base) for each in list_tasks(own) if each.measured),
        *(claim(each) for each in claims if each.measured),
    ]


def models(report: Report, table: Table, base: str) -> str:
    """Every measured row of the one task of a table, compared with `base`, and the trivial rules."""
    lines = []
    for row in table.rows:
        runs = report.list_runs(table, row, 0)
        if runs and row.group != MODIFIED_GROUP:
            size, rate = f"{runs[0].parameters:,}", f"{runs[0].spec['train']['lr']:g}"
            lines.append((f"`{row.model}`", size, rate, number(table, row), comparison(row, base)))
        elif row.group == RULES_GROUP:
            lines.append((f"rule: {row.name}", "", "", number(table, row), ""))
    head = ("model", "parameters", "`lr`", UNITS[table.columns[0].unit].words, f"against `{base}`")
    return markdown(head, lines)


def claim(table: Table) -> str:
    """Every row of the paper's that has a model: what was measured, how the paper has it, and the verdict."""
    lines = []
    for row in table.rows:
        (cell,) = row.cells
        first = (row.name, f"`{row.model}`", number(table, row))
        if row.model == table.base:
            lines.append((*first, "", "", "", "", "base"))
        elif cell.standing is not None:
            found = STANDING.fullmatch(cell.standing.reason)
            assert found is not None
            where, difference, p, least = found.groups()
            lines.append((*first, difference, least or "", p, where, cell.standing.verdict))
    unit = UNITS[table.columns[0].unit].words
    head = ("row", "model", unit, "less base (95 %)", "detectable", "Holm", "in the paper", "verdict")
    return markdown(head, lines)


@dataclass(frozen=True)
class PaperClaim:
    """A claim of the paper: that `models` are above, or below, `bases` in the results or mixing distances."""

    text: str
    models: tuple[str, ...]
    bases: tuple[str, ...]
    above: bool = False
    is_distance: bool = False

    @property
    def numbers(self) -> str:
        """The paper's numbers of both, on ListOps, or the distances."""
        sides = (
            ", ".join(printed(each, self.is_distance) for each in side) for side in (self.models, self.bases)
        )
        return " / ".join(sides) + (" tokens" if self.is_distance else "")


CLAIMS = (
    PaperClaim("MS-SSM (S6) is better than Mamba", ("msssm-s6",), ("mamba",), above=True),
    PaperClaim(
        "and than Mamba with twice the states or layers",
        ("msssm-s6",),
        ("mamba-2x-state", "mamba-2x-param"),
        above=True,
    ),
    PaperClaim("MS-SSM (S4) is better than S4D", ("msssm-s4",), ("s4d-lin",), above=True),
    PaperClaim("It needs the SSMs of its streams", ("msssm-no-ssm",), ("msssm-s6",)),
    PaperClaim("and most of all its multi-scale convolution", ("msssm-no-multiscale",), ("msssm-s6",)),
    PaperClaim(
        "The streams are to be scanned, by B, C and Δ of the input",
        ("msssm-gate-self-self", "msssm-gate-original-self"),
        ("msssm-s6",),
    ),
    PaperClaim(
        "Its mixer is to depend on the input, linearly",
        ("msssm-mixer-static", "msssm-mixer-softmax"),
        ("msssm-s6",),
    ),
    PaperClaim("Its initial decays are to depend on the scale", ("msssm-mamba-init",), ("msssm-s6",)),
    PaperClaim(
        "It mixes over longer distances than Mamba", ("msssm-s6",), ("mamba",), above=True, is_distance=True
    ),
)
LISTOPS = ("Accuracy (%)", "ListOps")
"""The columns of the paper's tables that have results of ListOps."""


def printed(model: str, is_distance: bool) -> str:
    """The paper's mean mixing distance of a model, or its result on ListOps."""
    cells = (each for each in read_all_reported(REPORTED) if each.model == model)
    (value,) = {
        each.value for each in cells if (each.unit == "tokens" if is_distance else each.column in LISTOPS)
    }
    return value


VERDICTS = {True: "holds", False: "does not hold", None: "cannot be told"}


def overview() -> str:
    """Each claim with what the published suites say of it: Welch over seeds, Holm over the whole table."""
    found = {
        (number_, task, model, base): compare_over_seeds(base, *values)
        for number_, each in enumerate(CLAIMS)
        for model, base in product(each.models, each.bases)
        for task, values in seeds_of(model, base, each.is_distance)
    }
    adjusted = holm({key: each.p_holm for key, each in found.items()})
    lines, said = [], set[int]()
    for key, each in found.items():
        number_, task, model, base = key
        test, claim_ = each.test, CLAIMS[number_]
        assert isinstance(test, Difference)
        is_found = None if adjusted[key] >= LEVEL else (test.difference > 0) == claim_.above
        scale = 1 if claim_.is_distance else 100
        low, high = (f"{scale * limit:+.2f}".replace("-", "−") for limit in (test.low, test.high))
        least = f" ({scale * find_detectable_difference(test, POWER):.1f})" if is_found is None else ""
        first = ("", "", "") if number_ in said else (f"{number_ + 1}", claim_.text, claim_.numbers)
        said.add(number_)
        where = f"{task}: `{model}` / `{base}`"
        lines.append(
            (
                *first,
                where,
                f"{low} to {high}",
                each.how.split("n = ")[1].replace(" and", ","),
                VERDICTS[is_found] + least,
            )
        )
    return markdown(("", "claim", "in the paper", "here", "difference (95 %)", "n", "verdict"), lines)


def seeds_of(model: str, base: str, is_distance: bool) -> Iterator[tuple[str, list[list[float]]]]:
    """Yield each published task on which both have two seeds or more, with their values over seeds."""
    for name in PUBLISHED:
        report = read_report(name)
        table = report.tables[0]
        if table.protocol != "scaled":  # not one of the paper's tasks
            continue
        for at, column in enumerate(table.columns):
            if (column.unit == "tokens") != is_distance:
                continue
            rows = {row.model: row.cells[at] for row in table.rows if row.group != MODIFIED_GROUP}
            cells = [rows[each] for each in (model, base) if each in rows]
            if is_distance:
                both = [
                    [
                        each.mean
                        for run in cell.run_ids
                        if (each := find_comparable(report.distances.get(run, ()))) and each.mean is not None
                    ]
                    for cell in cells
                ]
            else:
                both = [list(cell.evidence.values) if cell.evidence else [] for cell in cells]
            if len(both) == 2 and min(map(len, both)) > 1:
                yield column.label.partition(":")[0], both


def rates(name: str) -> list[str]:
    """For each task, validation with seed 0 at every learning rate that was tried; planned ones are bold."""
    report, suite = read_report(name), load_suite(suite_of(name))
    records = [record for group in report.records.values() for record in group]
    tasks = [each.columns[0].task for each in list_tasks(report.tables[0])]
    return [
        rates_of_task(records, resolve_specs(suite, tasks=[task], seeds=[0]))
        for task in tasks
        if any(record.task == task for record in records)
    ]


def rates_of_task(records: Sequence[RunRecord], plan: Sequence[RunSpec]) -> str:
    planned = {spec.model_name: spec.model_dump(mode="json") for spec in plan}
    found: dict[str, dict[float, str]] = {model: {} for model in planned}
    for record in records:
        spec, mine = record.spec, planned.get(record.model)
        if mine is None or {**spec, "train": {**spec["train"], "lr": mine["train"]["lr"]}} != mine:
            continue
        value, rate = f"{record.metrics['validation_accuracy']:.2%}", spec["train"]["lr"]
        found[record.model][rate] = f"**{value}**" if rate == mine["train"]["lr"] else value
    tried = sorted({rate for values in found.values() for rate in values})
    lines = [
        (f"`{model}`", *(found[model].get(rate, "") for rate in tried)) for model in found if found[model]
    ]
    return markdown(("model", *(f"{rate:g}" for rate in tried)), lines)


def accuracies_by(name: str, properties: Sequence[str]) -> list[str]:
    """For each of these properties of the test examples: accuracy in the bins, the change over them."""
    report = read_report(name, claims=False)
    return [
        breakdown(table)
        for each in properties
        for table in add_breakdowns(report, each, print).tables
        if table.by
    ]


def breakdown(table: Table) -> str:
    """Accuracy by a property: in bins, with intervals; or at each value, with how far the seeds get."""
    by_value = all(column.bin is None or column.bin.low == column.bin.high for column in table.columns)
    lines = []
    for row in table.rows:
        said = map(format_measured, row.cells, table.columns)
        cells = [
            f"{each.value} ({each.interval})" if each.interval and not by_value else each.value
            for each in said
        ]
        last = [", ".join(farthest(table, row))] if by_value else cells[-1:]
        lines.append((f"`{row.model}`" if row.model else row.name, *cells[:-1], *last))
    labels = [column.label for column in table.columns]
    head = (table.by or "", *labels[:-1], "farthest with half right, by seed" if by_value else labels[-1])
    return markdown(head, lines)


def farthest(table: Table, row: Row) -> Iterator[str]:
    """Of each seed of a row, the greatest value of the property at which half of the answers are right."""
    by_seed = zip(*(cell.evidence.values for cell in row.cells[:-1] if cell.evidence), strict=True)
    for values in by_seed:
        right = [
            column.bin.high
            for column, value in zip(table.columns, values, strict=False)
            if column.bin and value >= 0.5
        ]
        yield f"{max(right):,}" if right else "none"


def distances(name: str) -> list[str]:
    """The mean mixing distances on the examples of other tasks, by layer: mean and deviation over seeds."""
    report = read_report(name, claims=False)
    found: dict[tuple[str, str, str, str], list[Distances]] = {}
    for row in report.tables[0].rows:
        for each in (each for run in runs_of(row) for each in report.distances.get(run, ())):
            if "on" in each.options:
                state = "trained" if each.trained else "untrained"
                key = (each.options["on"], each.options["normaliser"], state, row.model)
                found.setdefault(key, []).append(each)
    if not found:
        return []
    layers = max(len(each.layers) for group in found.values() for each in group)
    lines = [
        (task, normaliser, state, f"`{model}`", *map(over_seeds, zip(*map(means, group), strict=True)))
        for (task, normaliser, state, model), group in sorted(found.items())
    ]
    numbers = [f"layer {number}" for number in range(1, layers + 1)]
    return [markdown(("examples of", "normaliser", "state", "model", *numbers, "all layers"), lines)]


def runs_of(row: Row) -> list[str]:
    """The runs behind the cells of a row, each once."""
    return list(dict.fromkeys(run for cell in row.cells for run in cell.run_ids))


def means(measured: Distances) -> list[float]:
    """The distance of each layer, then that of all of them."""
    every = [*(layer.mean for layer in measured.layers), measured.mean]
    assert None not in every
    return [mean for mean in every if mean is not None]


def over_seeds(values: Sequence[float]) -> str:
    """``24.6 ± 8.4 (5)``: mean, sample standard deviation and number of seeds."""
    mean, sd = UNITS["tokens"].format_mean(statistics.fmean(values), compute_sd(values))
    return f"{mean} ± {sd} ({len(values)})"


def readings(name: str, base: str) -> str:
    """The runs of `base` in which one setting alone departs from the plan, next to it; on validation."""
    report = read_report(name, modified=True, validation=True)
    (table,) = report.tables
    rows = [row for row in table.rows if row.model == base and is_reading(row)]
    lines = [(option(row) or "the defaults", *cells) for row, *cells in against(report, rows, base)]
    return markdown(("reading", "validation accuracy in percent", "against the defaults"), lines)


def chosen(name: str, model: str, reading: str, base: str) -> str:
    """On test, next to `base`: `model` as planned, and under a reading that was chosen on validation."""
    report = read_report(name, modified=True, claims=False)
    (table,) = report.tables
    wanted = {(base, ""), (model, ""), (model, reading)}
    rows = [row for row in table.rows if (row.model, changed(row)) in wanted]
    lines = [
        (", ".join(filter(None, (f"`{row.model}`", option(row)))), *cells)
        for row, *cells in against(report, rows, base)
    ]
    return markdown(("model", "accuracy in percent", f"against `{base}`"), lines)


def against(report: Report, rows: Sequence[Row], base: str) -> list[tuple[Row, str, str]]:
    """Some rows of the one table of a report, compared among themselves alone."""
    (table,) = report.tables
    some = replace(report, tables=(replace(table, rows=tuple(rows)),))
    (compared,) = compare_tables(some, base).tables
    return [(row, number(compared, row), comparison(row, base)) for row in compared.rows]


def is_reading(row: Row) -> bool:
    """Whether the row is as planned, or departs from it in one setting that can be a reading."""
    alone = ", " not in changed(row) and changed(row).split(" ")[0] not in NO_READING
    return row.group != MODIFIED_GROUP or alone


def option(row: Row) -> str:
    """What departs from the plan, as a suite has it: ``model.block: glu`` in backticks."""
    return f"`{changed(row).replace(' ', ': ', 1)}`" if changed(row) else ""


def changed(row: Row) -> str:
    """How the runs of a row depart from the plan, such as ``model.block glu``; empty where they do not."""
    return row.provenance.removeprefix("modified: ") if row.group == MODIFIED_GROUP else ""


def number(table: Table, row: Row) -> str:
    """``60.33 ± 0.62 (3)``: mean, sample standard deviation and number of seeds."""
    said = format_measured(row.cells[0], table.columns[0])
    spread = f" ± {said.sd}" if said.sd else ""
    return f"{said.value}{spread}" + (f" ({row.cells[0].n})" if row.cells[0].n else "")


def comparison(row: Row, base: str) -> str:
    """The note on how the row compares with `base`; empty for that row itself."""
    found = [text for text in row.cells[0].notes if f" {base}, p " in text]
    return found[0].replace(f" than {base}", "").replace(f" from {base}", "") if found else ""


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    rule = "|" + "---|" * len(head)
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(line)} |" for line in lines)])
