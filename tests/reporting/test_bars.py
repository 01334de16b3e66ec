"""Plots of results at a terminal: marks at their places, within the width, in any encoding."""

import io
from dataclasses import replace

import pytest
from report_runs import RULES, PlannedRun, build, printed, run
from rich.cells import cell_len

from msbench.reporting.render.bars import render_bars
from msbench.reporting.render.terminal import print_tables
from msbench.reporting.tables.cells import Table

VALUES = {
    "mamba": (0.60, 0.62, 0.64),
    "lru": (0.70, 0.71, 0.72),
    "s5": (0.65, 0.66, 0.17),
    "s4": (0.63, 0.63, 0.63),
}


EXPECTED = """\
Small ListOps: Accuracy (%), accuracy in percent
lru    71.00                        ┊              ├────●───┤
s4     63.00                        ┊    ●
Mamba  62.00                   ├───────◇●────────┤
S6                                 ◇┊
s5     49.33  ◂──●─────────────────────────────────────────────▸
                 50       55       60       65       70
● mean with its 95 % interval; ◇ reported; ┊ top 1 (60.00)
Beyond the scale of Accuracy (%): a seed of s5 (17.00), majority
(17.00), root operator only (36.30)

""".splitlines()


def make_table() -> Table:
    specs = [PlannedRun("listops", name, seed) for name in VALUES for seed in range(3)]
    values = [value for of_model in VALUES.values() for value in of_model]
    rules = {**RULES, "top 1": 0.6}
    records = [run(spec, value, baselines=rules) for spec, value in zip(specs, values, strict=True)]
    return build(specs, records, [printed("Mamba", "61.50", model="mamba"), printed("S6", "59.60")])


def test_a_plot_is_what_a_reader_expects() -> None:
    assert render_bars(make_table(), 64).splitlines() == EXPECTED


def test_marks_stand_in_order_and_within_the_width() -> None:
    for width in (40, 80, 200):
        lines = render_bars(make_table(), width).splitlines()
        assert all(cell_len(line) <= width for line in lines)
        dots = [line.index("●") for line in lines if "●" in line and not line.startswith("●")]
        assert len(dots) == 4
        assert dots == sorted(dots, reverse=True)
    assert render_bars(make_table(), 20) == "", "where a track has no room there is none"


def test_a_name_too_long_for_a_bar_ends_in_an_ellipsis() -> None:
    table = make_table()
    name = "a model whose name is longer than bars have room for"
    first = next(row for row in table.rows if row.model == "lru")
    rows = tuple(replace(row, name=name) if row is first else row for row in table.rows)
    long = replace(table, rows=rows)
    assert "a model whose name is longer th…  71.00" in render_bars(long, 80)
    assert "a model whose name is longer th~  71.00" in render_bars(long, 80, "ascii")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_the_marks_has_others(encoding: str) -> None:
    text = render_bars(make_table(), 64, encoding)
    text.encode(encoding)
    assert "|----o---|" in text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bars_are_at_a_terminal_only_and_not_of_claims() -> None:
    table = make_table()
    for stream, shown, expected in (
        (Terminal(), table, True),
        (Terminal(), replace(table, base="mamba"), False),
        (io.StringIO(), table, False),
    ):
        print_tables([shown], stream, 80)
        assert ("●" in stream.getvalue()) is expected
        assert "61.50" in stream.getvalue()
