"""The paper's source, read again by a small parser of its own, against ``results/reported``."""

import os
import re
from pathlib import Path

import pytest

from msbench.results.reported import read_all_reported

REPOSITORY = Path(__file__).parents[2]
SAMPLES = Path(os.environ.get("MSBENCH_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
PAPER = SAMPLES.parent / "paper" / "ms-ssm.tex"
TABLES = {
    "tab:classification": "before",
    "tab:listops": "before",
    "tab:ptbxl": "after",
    "table:lra": "after",
    "tab:ablation": "before",
    "tab:mean-mixing-distance": "before",
    "tab:ablation-app": "after",
}
"""Label of each table, and whether it stands before or after the tabular."""

Cell = tuple[str, str, str, str, str, str, str]
"""Label, group, row, citation key, column, value, sd."""

COMMANDS = (
    (r"\\(?:textbf|textsc|texttt|textit)\{([^{}]*)\}", r"\1"),
    (r"\\rowcolor\{[^}]*\}|\\(?:toprule|midrule|bottomrule)", ""),
    (r"\\model\s*", "MS-SSM "),
    (r"\\([_%])", r"\1"),
    (r"[{}~]", " "),
)


def plain(text: str) -> str:
    for pattern, replacement in COMMANDS:
        text = re.sub(pattern, replacement, text)
    return " ".join(text.split())


def without_comments(source: str) -> str:
    return re.sub(r"(?<!\\)%.*", "", source)


def cells_of(tabular: str, label: str) -> list[Cell]:
    body = re.sub(r"\\end\{tabular\}.*", "", tabular, flags=re.DOTALL)
    header: list[str] = []
    group, found = "", []
    for line in body.split("\\\\"):
        if heading := re.search(r"\\multicolumn\{\d+\}\{c\}\{([^{}]*)\}", line):
            group = plain(heading[1])
            continue
        line = re.sub(r"\\multicolumn\{1\}\{l\}\{([^{}]*)\}", r"\1", line)
        key = re.search(r"\\cite\w*\{([^}]*)\}", line)
        fields = [plain(part) for part in re.sub(r"\\cite\w*\{[^}]*\}", "", line).split("&")]
        if len(fields) < 2:
            continue
        if fields[0].isdigit() or (not fields[0] and not header):
            fields[:2] = [f"{fields[0]} {fields[1]}".strip()]
        if not header:
            header = fields[1:]
            continue
        for column, text in zip(header, fields[1:], strict=True):
            value, sd = re.fullmatch(r"\$?([^$_]*?)(?:_\s*\\pm ([\d.]+)\s*\$)?", text).groups()  # type: ignore[union-attr]
            value = "" if value == "-" else value
            found.append((label, group, fields[0], key[1] if key else "", column, value, sd or ""))
    return found


@pytest.fixture(scope="module")
def paper() -> set[Cell]:
    if not PAPER.is_file():
        pytest.skip(f"the paper's source is not at {PAPER} (set MSBENCH_TEST_DATA to its neighbour)")
    source = without_comments(PAPER.read_text(encoding="utf-8"))
    found: list[Cell] = []
    for label, place in TABLES.items():
        at = source.index(f"\\label{{{label}}}")
        begin = "\\begin{tabular}"
        inside = source.index(begin, at) if place == "before" else source.rindex(begin, 0, at)
        tabular = re.sub(r"\\begin\{tabular\}\{(?:[^{}]|\{[^{}]*\})*\}", "", source[inside:], count=1)
        found += cells_of(tabular, label)
    assert len(found) == len(set(found))
    return set(found)


def test_every_cell_is_the_papers_and_none_is_missing(paper: set[Cell]) -> None:
    ours = set()
    for cell in read_all_reported(REPOSITORY / "results" / "reported"):
        key = cell.source.split(";")[0]
        cited = "" if key in ("this paper", "no citation") else key
        ours.add((cell.label, cell.group, cell.row, cited, cell.column, cell.value, cell.sd))
    assert ours - paper == set(), "in results/reported, not in the paper"
    assert paper - ours == set(), "in the paper, not in results/reported"


def test_the_parser_finds_every_table(paper: set[Cell]) -> None:
    assert {cell[0] for cell in paper} == set(TABLES)
    assert len(paper) == 240
