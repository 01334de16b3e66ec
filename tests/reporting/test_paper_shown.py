"""The seven tables as their readers get them: compiled, at a terminal of 80 columns, through a pipe."""

import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from many_runs import write_many
from report_runs import read_report
from rich.cells import cell_len
from test_measure import written

from msbench.reporting import command
from msbench.reporting.render import formatting, terminal
from msbench.reporting.tables.cells import Table
from msbench.reporting.tables.definitions import PAPER_TABLES
from msbench.results import store

NAMES = [table.id for table in PAPER_TABLES]
needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
PAPER = r"""\documentclass[twocolumn]{article}
\usepackage{booktabs,graphicx}
\begin{document}
A paper, and in it Table~\ref{tab:NAME}.
\input{NAME.tex}
\clearpage
\input{NAME-legend.tex}
\end{document}
"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[Table]:
    """All seven, with something measured in each."""
    results = tmp_path_factory.mktemp("runs")
    write_many(results, 200)
    for folder in store.list_run_folders(results, "listops").folders:
        written(folder)
    tables = list(read_report(["paper"], results).tables)
    assert all(table.measured for table in tables)
    return tables


def compiled(folder: Path, name: str) -> str:
    """The log of the second of two passes, in which labels have settled."""
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
    for _ in range(2):
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    return (folder / f"{name}.log").read_text(errors="replace")


def complaints(log: str) -> list[str]:
    return re.findall(r".*(?:Warning|Overfull|Underfull|Missing character|undefined).*", log)


@needs_latex
def test_all_compile_together_and_each_alone(tables: list[Table], tmp_path: Path) -> None:
    command.write_tables(tables, tmp_path, latex=True)
    log = compiled(tmp_path, "all-report")
    assert complaints(log) == []
    assert int(re.findall(r"\((\d+) pages", log)[-1]) > 7  # a page a table, then the legends
    for name in NAMES:
        assert complaints(compiled(tmp_path, f"{name}-report")) == []


@needs_latex
@pytest.mark.parametrize("name", ["lra", "ablation"])
def test_in_a_paper_of_two_columns_a_table_fits_and_is_referred_to(
    name: str, tables: list[Table], tmp_path: Path
) -> None:
    command.write_tables(tables, tmp_path, latex=True)
    (tmp_path / "paper.tex").write_text(PAPER.replace("NAME", name))
    log = compiled(tmp_path, "paper")
    assert not [line for line in complaints(log) if "Underfull" not in line]


@pytest.mark.parametrize("index", range(7), ids=NAMES)
def test_at_a_terminal_of_80_columns_every_number_is_there(index: int, tables: list[Table]) -> None:
    table = tables[index]
    narrow, piped = Terminal(), io.StringIO()
    terminal.print_tables([table], narrow, 80)
    terminal.print_tables([table], piped)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", narrow.getvalue())
    assert max(map(cell_len, plain.splitlines())) <= 80
    for text in (plain, piped.getvalue()):
        assert f"Table {table.number}: {table.title}" in text.splitlines()
    for row in table.rows:
        numbers = [part.value for parts in formatting.format_row(table, row) for part in parts]
        starts = [line for line in piped.getvalue().splitlines() if line.strip().startswith(f"{row.name}  ")]
        assert any(all(number in line for number in numbers) for line in starts), row.name
        # A long name may be folded there between words; its numbers are next to its last line.
        words = row.name.split()
        ends = tuple(f"{' '.join(words[index:])}  " for index in range(len(words)))
        parts = [line for line in plain.splitlines() if line.strip().startswith(ends)]
        assert all(any(number in line for line in parts) for number in numbers), row.name


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True
