from importlib import resources
from typing import get_args

from msbench.reporting.render.formatting import VERDICTS
from msbench.reporting.render.html.page import count_verdicts
from msbench.reporting.tables.cells import Cell, ClaimVerdict, Column, Judgement, Row, Table, Verdict


def test_every_verdict_has_a_look_of_its_own() -> None:
    assert set(VERDICTS) == {*get_args(Verdict), *get_args(ClaimVerdict)}
    assert len({(look.tone, look.shape) for look in VERDICTS.values()}) == len(VERDICTS)
    assert len({look.shape for look in VERDICTS.values()}) == len(VERDICTS)


def test_every_shape_is_drawn() -> None:
    shapes = (resources.files("msbench.reporting.render.html") / "templates" / "shapes.svg").read_text(
        encoding="utf-8"
    )
    for look in VERDICTS.values():
        assert f'id="shape-{look.shape}"' in shapes


def test_verdicts_are_counted_in_one_order() -> None:
    verdicts: list[Verdict] = ["fail", "pass", "fail"]
    cells = tuple(Cell(judgement=Judgement(each, "")) for each in verdicts)
    row = Row("m", "", "m", (*cells, Cell()))
    table = Table("t", "T", "C", tuple(Column(str(at), str(at)) for at in range(4)), (row,))
    assert count_verdicts([table, table]) == [("pass", 2), ("fail", 4)]
