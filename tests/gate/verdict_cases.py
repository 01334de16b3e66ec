"""Verdicts made by hand, and texts that break formats."""

from typing import get_args

from msbench.gate.check import SuiteVerdicts
from msbench.gate.verdicts import JudgedCell
from msbench.reporting.tables.cells import Judgement, Verdict

ODD_TEXTS = [
    *(
        'a"b',
        "a'b",
        "<tag>&amp;",
        "]]>",
        "two\nlines",
        "a\tb",
        "a\r\nb",
        "\x00\x07\x1b[1m",
        "\ufffe",
        "модель→δ",
    ),
    *(
        "::error::x",
        "50%",
        "%0A",
        "a,b:c",
        "a|b",
        "a\\|b",
        "`x`",
        "*b*",
        "_i_",
        "[x](y)",
        "<!-- c",
        "𝄞",
        "$x^2$",
        " x ",
    ),
]


def cell(
    verdict: str, task: str = "listops", model: str = "mamba", reason: str = "because", crashed: int = 0
) -> JudgedCell:
    """One judged cell."""
    (known,) = [each for each in get_args(Verdict) if each == verdict]
    return JudgedCell("small", task, model, Judgement(known, reason), crashed)


def checked(*cells: JudgedCell, suite: str = "small") -> SuiteVerdicts:
    """The verdicts on a suite."""
    renamed = tuple(JudgedCell(suite, each.task, each.model, each.judgement, each.crashed) for each in cells)
    return SuiteVerdicts(suite, "baseline.yaml", renamed)
