"""A scaled protocol against the order of the paper's rows."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compared_runs import answered, kept, report_on
from report_runs import PlannedRun, SmallSuite, printed, suite_runs
from test_measure import written

from msbench.errors import UnknownName
from msbench.reporting.render.csv import render_long
from msbench.reporting.render.latex import render_fragment
from msbench.reporting.render.terminal import render_table
from msbench.reporting.tables.build import build_table
from msbench.reporting.tables.cells import Table
from msbench.reporting.tables.definitions import define_claim_tables
from msbench.reporting.tables.versus import compare_tables, judge_claim
from msbench.results.mixing_documents import read_distances
from msbench.runs.suite_file import Claim

pytestmark = pytest.mark.usefixtures("handmade_records")

N = 500
RATES = {
    "mamba": [0.40, 0.41, 0.42],
    "msssm-s6": [0.60, 0.61, 0.62],
    "s4": [0.30, 0.31, 0.32],
    "s4d-lin": [0.41, 0.42, 0.40],
    "lstm": [0.70, 0.71, 0.72],
}
CLAIM = Claim(table="listops", column="Accuracy (%)", task="listops", base="mamba")
PRINTED = [
    printed("Mamba", "38.02", model="mamba"),
    printed("MS-SSM", "63.04", model="msssm-s6"),
    printed("S4", "59.60", model="s4", note="a note on the printed value"),
    printed("S4D", "60.52"),
    printed("CDIL", "44.05"),
    printed("Griffin", "32.34", model="griffin"),
    printed("Mamba", "0.939", model="mamba", table="ablation", column="PTB-XL"),
]


def made(
    results: Path, claim: Claim, rates: dict[str, list[float]] | None = None, listed: Sequence[str] = ()
) -> Table:
    """The table of this claim from runs with these accuracies, by a suite that lists all of them or some."""
    plan, records = [], []
    for model, values in (rates or RATES).items():
        for seed, rate in enumerate(values):
            found = kept(results, model, answered(np.arange(N) < round(rate * N)), seed)
            plan.append(PlannedRun("listops", model, seed))
            records.append(found.record)
    cells = frozenset(("listops", model) for model in listed)
    runs = suite_runs(plan, records, SmallSuite(claims=(claim,), cells=cells))
    (definition,) = define_claim_tables(runs.suite)
    table = build_table(definition, [runs], PRINTED)
    return judge_claim(report_on(results), table, claim, PRINTED)


def verdicts(table: Table) -> dict[str, str | None]:
    given = {row.name: row.cells[0].standing for row in table.rows}
    return {name: standing.verdict if standing else None for name, standing in given.items()}


def test_each_row_stands_to_the_base_row_as_in_the_paper_or_not(tmp_path: Path) -> None:
    claim = CLAIM.model_copy(update={"rows": {"S4D": "s4d-lin"}})
    table = made(tmp_path, claim)
    rows = [row.name for row in table.rows if row.model]
    assert rows == ["Mamba", "MS-SSM", "S4", "S4D"]  # of lstm the paper's table has no row, of CDIL no model
    assert verdicts(table) == {
        "Mamba": None,
        "MS-SSM": "agrees",
        "S4": "contradicts",
        "S4D": "undecided",
    }


def test_none_of_the_papers_numbers_is_shown(tmp_path: Path) -> None:
    table = made(tmp_path, CLAIM)
    assert {cell.reported for row in table.rows for cell in row.cells} == {""}
    for text in (render_table(table), render_fragment(table), render_long(table).decode()):
        assert not any(each.value in text for each in PRINTED)
        assert "a note on the printed value" not in text
        assert "reported is what the paper prints" not in text


def test_the_evidence_is_in_the_reason_and_below_the_table(tmp_path: Path) -> None:
    table = made(tmp_path, CLAIM)
    standing = next(row for row in table.rows if row.name == "S4").cells[0].standing
    assert standing is not None
    assert standing.reason.startswith(
        "the paper has it above mamba; here the difference is −10.00 (−12.27 to"
    )
    assert "worse than mamba, p < 0.001 (Holm, Welch" in standing.reason
    assert "Holm over 2 comparisons" in render_table(table)
    (row,) = (row for row in csv.DictReader(io.StringIO(render_long(table).decode())) if row["row"] == "S4")
    assert (row["verdict"], row["reason"]) == ("contradicts", standing.reason)
    assert "contradicts: below the base row where the paper has it above" in render_table(table)
    assert r"\ominus" in render_fragment(table)


def test_one_seed_decides_nothing(tmp_path: Path) -> None:
    table = made(tmp_path, CLAIM, {"mamba": [0.2], "s4": [0.9], "msssm-s6": [0.9, 0.91]})
    assert verdicts(table) == {"Mamba": None, "MS-SSM": "undecided", "S4": "undecided"}
    assert "better than mamba, p < 0.001 (Holm, McNemar" in render_table(table)


def test_what_the_suite_does_not_list_tests_no_claim(tmp_path: Path) -> None:
    table = made(tmp_path, CLAIM, listed=["mamba", "msssm-s6"])
    assert verdicts(table) == {"Mamba": None, "MS-SSM": "agrees", "S4": None}
    assert "worse than mamba, p < 0.001" in render_table(table)


def test_a_table_of_claims_is_compared_with_its_base_row_alone(tmp_path: Path) -> None:
    table = made(tmp_path, CLAIM)
    assert compare_tables(report_on(tmp_path, table), "mamba").tables == (table,)
    assert not any("--modified" in note for note in table.notes)


def test_rows_of_the_base_models_runs_have_no_verdict(tmp_path: Path) -> None:
    cells = [*PRINTED, printed("Mamba, again", "90.00", model="mamba")]
    plan = [PlannedRun("listops", model, seed) for model in ("mamba", "s4") for seed in range(2)]
    records = [
        kept(tmp_path, each.model_name, answered(np.arange(N) < 200 + each.seed), each.seed).record
        for each in plan
    ]
    runs = suite_runs(plan, records, SmallSuite(claims=(CLAIM,)))
    built = build_table(define_claim_tables(runs.suite)[0], [runs], cells)
    table = judge_claim(report_on(tmp_path), built, CLAIM, cells)
    assert verdicts(table)["Mamba, again"] is None


def test_without_runs_of_the_base_row_nothing_is_said_but_why(tmp_path: Path) -> None:
    table = made(tmp_path, CLAIM, {"s4": [0.3, 0.31]})
    assert set(verdicts(table).values()) == {None}
    assert "no measured mamba in this table" in render_table(table)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"table": "listop"}, "unknown reported table 'listop'; did you mean 'listops'"),
        ({"column": "Accuracy"}, r"unknown reported column 'Accuracy'; did you mean 'Accuracy \(%\)'"),
        ({"rows": {"S4DD": "s4d-lin"}}, "unknown reported row 'S4DD'; did you mean 'S4D'"),
    ],
)
def test_what_the_paper_does_not_have_is_named(changes: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=words) as raised:
        made(tmp_path, Claim.model_validate({**CLAIM.model_dump(), **changes}))
    assert "suite small: claims" in str(raised.value)


def distances(results: Path, means: dict[str, Sequence[float]]) -> Table:
    """The table of a claim on mixing distances, of runs that have these means."""
    claim = CLAIM.model_copy(update={"measure": "mixing"})
    plan, records, found = [], [], {}
    for model, values in means.items():
        for seed, mean in enumerate(values):
            run = kept(results, model, answered(np.arange(N) < 200), seed)
            written(run.folder, mean=mean)
            plan.append(PlannedRun("listops", model, seed))
            records.append(run.record)
            found[run.record.run_id] = run.folder
    runs = suite_runs(plan, records, SmallSuite(claims=(claim,)))
    runs = replace(runs, distances={each: read_distances(folder)[0] for each, folder in found.items()})
    table = build_table(define_claim_tables(runs.suite)[0], [runs], PRINTED)
    return judge_claim(report_on(results), table, claim, PRINTED)


def test_mixing_distances_are_compared_over_seeds(tmp_path: Path) -> None:
    table = distances(tmp_path, {"mamba": [20, 21, 22], "msssm-s6": [60, 61, 62], "s4": [10, 11, 12]})
    assert verdicts(table) == {"Mamba": None, "MS-SSM": "agrees", "S4": "contradicts"}
    text = render_table(table)
    assert "larger than mamba, p < 0.001 (Holm, Welch over seeds, n = 3 and 3)" in text
    assert "smaller than mamba" in text


def test_one_seed_of_a_distance_decides_nothing(tmp_path: Path) -> None:
    table = distances(tmp_path, {"mamba": [20], "msssm-s6": [60, 61, 62]})
    assert verdicts(table) == {"Mamba": None, "MS-SSM": None}
