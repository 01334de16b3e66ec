r"""Tables as LaTeX: a fragment for ``\input``, and a standalone document."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from msbench.reporting.render import words
from msbench.reporting.render.escape import DEFINITION, escape
from msbench.reporting.render.words import Words
from msbench.reporting.tables.cells import ClaimVerdict, Row, Table
from msbench.reporting.tables.judgement import Verdict
from msbench.reporting.tables.names import stem

DOCUMENT = r"""% Made by msbench. Compiles alone: pdflatex {name}-report.tex
\documentclass{{article}}
\usepackage[utf8]{{inputenc}}
\usepackage[{paper}margin=2cm]{{geometry}}
\usepackage{{booktabs}}
\usepackage{{graphicx}}
\setlength{{\emergencystretch}}{{3em}}
\begin{{document}}
{inputs}
\end{{document}}
"""

MANY = 8
"""Numbers per row beyond which a table would become illegibly small on a portrait page."""
WIDE_PAPER = "a3paper,landscape,"

# A table wider than the text is shrunk to its width, and one too tall for a page with its notes to a page.
FIT_WIDTH = r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi"
FIT_HEIGHT = (
    r"\ifdim\dimexpr\ht2+\dp2\relax>0.8\textheight\resizebox*{!}{0.8\textheight}{\usebox2}\else\usebox2\fi"
)
VERDICT_SIGNS: dict[Verdict | ClaimVerdict, str] = {
    "pass": r"$\bullet$",
    "improved": r"$\uparrow$",
    "inconclusive": "?",
    "fail": r"$\times$",
    "chance-level": r"$\circ$",
    "trivial-rule": r"$\diamond$",
    "invalid": "!",
    "other-data": r"$\neq$",
    "xfail": r"($\times$)",
    "diverged": r"$\infty$",
    "missing": r"$\emptyset$",
    "agrees": r"$\oplus$",
    "contradicts": r"$\ominus$",
    "undecided": r"$\approx$",
}
"""Signs of the verdicts, which need no package."""


def fragment(table: Table) -> str:
    r"""Return the table float, for ``\input`` into a document that loads booktabs and graphicx."""
    return "\n".join(_fragment(table)) + "\n"


def document(tables: Sequence[Table], name: str) -> str:
    """Return a document that inputs only the fragments of these tables; `name` is that of its file."""
    inputs = "\n\\clearpage\n".join(map(_input, tables))
    wide = any(sum(map(len, table.kinds)) > MANY for table in tables)
    return DOCUMENT.format(name=name, inputs=inputs, paper=WIDE_PAPER if wide else "")


def _input(table: Table) -> str:
    """Return the ``\\input`` of a fragment, with the paper's table number where there is one."""
    number = "" if table.number is None else rf"\setcounter{{table}}{{{table.number - 1}}}" "\n"
    return rf"{number}\input{{{stem(table.id)}.tex}}"


def _fragment(table: Table) -> Iterator[str]:
    yield f"% Made by msbench: {stem(table.id)}. Needs \\usepackage{{booktabs,graphicx}}."
    yield DEFINITION
    yield r"\begin{table}[tbp]"
    yield r"\centering"
    yield rf"\caption{{{escape(' '.join(table.caption.split()))}}}"
    yield rf"\label{{tab:{stem(table.id)}}}"
    yield r"\par\medskip"
    yield r"\sbox2{\begin{minipage}{\linewidth}\centering"
    yield r"\sbox0{%"
    yield from _tabular(table)
    yield "}%"
    yield FIT_WIDTH
    yield from _footnotes(table)
    yield r"\end{minipage}}%"
    yield FIT_HEIGHT
    yield r"\end{table}"


def _tabular(table: Table) -> Iterator[str]:
    ends = list(accumulate(map(len, table.kinds), initial=1))
    yield rf"\begin{{tabular}}{{{'l' * ends[-1]}}}"
    yield r"\toprule"
    heads = zip(table.kinds, table.columns, strict=True)
    yield (
        "".join(rf" & \multicolumn{{{len(k)}}}{{c}}{{{escape(column.label)}}}" for k, column in heads)
        + r" \\"
    )
    yield "".join(rf"\cmidrule(lr){{{first + 1}-{last}}}" for first, last in pairwise(ends))
    yield "Model" + "".join(f" & {kind}" for kinds in table.kinds for kind in kinds) + r" \\"
    group = None
    for row in table.rows:
        if row.group != group:
            group = row.group
            yield r"\midrule"
            if group:
                yield rf"\multicolumn{{{ends[-1]}}}{{l}}{{\textit{{{escape(group)}}}}} \\"
        yield from _row(table, row)
    yield r"\bottomrule"
    yield r"\end{tabular}%"


def _row(table: Table, row: Row) -> Iterator[str]:
    if row.run_ids:
        yield f"% run: {' '.join(row.run_ids)}"
    cells = [escape(row.name), *map(_number, words.numbers(table, row))]
    yield " & ".join(cells) + r" \\"


def _number(number: Words) -> str:
    """Return the LaTeX of a number; its math is generated here and never a user's text."""
    value = escape(number.value) if number.value != "--" else "--"
    text = rf"\textbf{{{value}}}" if number.best else value
    if number.sd:
        text += rf" $\pm$ {number.sd}"
    if number.count:
        text += f" {number.count}"
    if number.verdict:
        text += rf"~{VERDICT_SIGNS[number.verdict]}"
    return text + _superscript(number.marks)


def _superscript(marks: Sequence[str]) -> str:
    return rf"\textsuperscript{{{escape(','.join(marks))}}}" if marks else ""


def _footnotes(table: Table) -> Iterator[str]:
    """Yield marked notes in one paragraph and general notes in another: single lines would fill a page."""
    notes = [(mark, escape(" ".join(text.split()))) for mark, text in words.footnotes(table)]
    marked = [_superscript((mark,)) + text for mark, text in notes if mark]
    general = [text for mark, text in notes if not mark]
    general += [
        f"{VERDICT_SIGNS[verdict]} {verdict}: {meaning}" for verdict, meaning in words.verdicts(table)
    ]
    if notes or general:
        yield r"\par\medskip"
        yield r"\scriptsize\raggedright"
    for paragraph in filter(None, (marked, general)):
        yield ".\n".join(paragraph) + r".\par"
