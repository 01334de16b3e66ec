"""How a verdict shows in every renderer."""

import csv
import io
from dataclasses import replace
from typing import get_args

import pytest
from report_runs import PlannedRun, build, run

from msbench.reporting.render.csv import render_long
from msbench.reporting.render.formatting import VERDICTS, list_verdicts
from msbench.reporting.render.latex import render_fragment
from msbench.reporting.render.terminal import render_table
from msbench.reporting.tables.cells import ClaimVerdict, Judgement, Table, Verdict

SPECS = [PlannedRun("listops", name, seed) for name in ("mamba", "s4") for seed in range(2)]
FULL = Judgement("fail", "mean 0.4 below 0.5 - 0.01", 0.5, 0.01, 0.38, 0.42, 3)


def judged(judgement: Judgement | None, status: str = "finished") -> Table:
    """Two models, the first with this judgement; `status` is of its runs."""
    values = [0.40 if status == "finished" else None, 0.41, 0.6, 0.62]
    states = [status, "finished", "finished", "finished"]
    runs = [run(spec, value, status=state) for spec, value, state in zip(SPECS, values, states, strict=True)]
    table = build(SPECS, runs[:1] + runs[2:] if status != "finished" else runs)
    first, *others = table.rows
    [cell] = first.cells
    return replace(table, rows=(replace(first, cells=(replace(cell, judgement=judgement),)), *others))


def line(table: Table, name: str) -> str:
    return next(line for line in render_table(table).splitlines() if line.strip().startswith(name))


def test_at_a_terminal_the_word_stands_after_the_value_with_a_legend() -> None:
    table = judged(FULL)
    assert line(table, "mamba").endswith("40.50±0.71 fail")
    assert line(table, "s4").endswith("61.0*±1.4")
    assert f"fail: {VERDICTS['fail'].meaning}" in render_table(table).splitlines()


def test_in_latex_a_sign_stands_after_the_value_with_a_legend() -> None:
    source = render_fragment(judged(FULL))
    assert r"mamba & 40 & .50 & $\pm$ 0.71~$\times$ \\" in source
    assert rf"$\times$ fail: {VERDICTS['fail'].meaning}" in source
    assert r"$\times$" not in render_fragment(judged(None))


@pytest.mark.parametrize("verdict", get_args(Verdict))
def test_every_verdict_is_next_to_a_mean_with_a_word_and_a_sign(verdict: Verdict) -> None:
    """A seed that diverged, or nothing to compare with, is no less a verdict where others gave a mean."""
    assert set(VERDICTS) == {*get_args(Verdict), *get_args(ClaimVerdict)}
    assert len({style.sign for style in VERDICTS.values()}) == len(VERDICTS)
    table = judged(Judgement(verdict, "why"))
    assert line(table, "mamba").endswith(f" 40.50±0.71 {verdict}")
    assert f"{verdict}: {VERDICTS[verdict].meaning}" in render_table(table).splitlines()
    assert rf"mamba & 40 & .50 & $\pm$ 0.71~{VERDICTS[verdict].sign} \\" in render_fragment(table)


def test_a_cell_without_a_value_says_its_state_once() -> None:
    table = judged(Judgement("diverged", "a seed diverged"), status="diverged")
    assert line(table, "mamba").split() == ["mamba", "div."]
    assert list_verdicts(table) == []
    xfail = judged(Judgement("xfail", "known"), status="diverged")
    assert line(xfail, "mamba").split() == ["mamba", "div.", "xfail"]


def test_the_long_csv_has_all_of_a_judgement() -> None:
    rows = list(csv.DictReader(io.StringIO(render_long(judged(FULL)).decode())))
    names = ("verdict", "reason", "expected", "margin", "low", "high", "seeds_needed")
    assert [rows[0][name] for name in names] == ["fail", FULL.reason, "0.5", "0.01", "0.38", "0.42", "3"]
    assert [rows[1][name] for name in names] == [""] * 7
    bare = list(csv.DictReader(io.StringIO(render_long(judged(Judgement("missing", "none"))).decode())))
    assert [bare[0][name] for name in names] == ["missing", "none", "", "", "", "", ""]


def test_json_has_it_too() -> None:
    assert judged(FULL).as_dict()["rows"][0]["cells"][0]["judgement"]["verdict"] == "fail"
