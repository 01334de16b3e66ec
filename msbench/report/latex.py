r"""A table as LaTeX: a fragment for ``\input``, and a document that shows it alone."""

import re
from collections.abc import Iterator, Sequence

from msbench.report import words
from msbench.report.cells import Row, Table
from msbench.report.escape import DEFINITION, escape
from msbench.report.words import Words

DOCUMENT = r"""% Made by msbench. Compiles alone: pdflatex {stem}-report.tex
\documentclass{{article}}
\usepackage[utf8]{{inputenc}}
\usepackage[margin=2cm]{{geometry}}
\usepackage{{booktabs}}
\usepackage{{graphicx}}
\setlength{{\emergencystretch}}{{3em}}
\begin{{document}}
\input{{{stem}.tex}}
\end{{document}}
"""

# A table wider than the text is shrunk to it, and one that is too tall for a page with its notes to fit one.
FIT_WIDTH = r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi"
FIT_HEIGHT = (
    r"\ifdim\dimexpr\ht2+\dp2\relax>0.8\textheight\resizebox*{!}{0.8\textheight}{\usebox2}\else\usebox2\fi"
)


def fragment(table: Table) -> str:
    r"""The table float, for ``\input`` into a document that loads booktabs and graphicx."""
    return "\n".join(_fragment(table)) + "\n"


def document(table: Table) -> str:
    """A document that inputs the fragment and nothing else."""
    return DOCUMENT.format(stem=stem(table))


def stem(table: Table) -> str:
    """The name of the table's files, without a suffix: its id, safe for a file system and for TeX."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", table.id).strip("-") or "table"


def _fragment(table: Table) -> Iterator[str]:
    yield f"% Made by msbench: suite {stem(table)}. Needs \\usepackage{{booktabs,graphicx}}."
    yield DEFINITION
    yield r"\begin{table}[tbp]"
    yield r"\centering"
    yield rf"\caption{{{escape(' '.join(table.caption.split()))}}}"
    yield rf"\label{{tab:{stem(table)}}}"
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
    kinds, count = len(table.kinds), len(table.columns)
    yield rf"\begin{{tabular}}{{{'l' * (1 + kinds * count)}}}"
    yield r"\toprule"
    heads = (rf" & \multicolumn{{{kinds}}}{{c}}{{{escape(column.label)}}}" for column in table.columns)
    yield "".join(heads) + r" \\"
    spans = ((kinds * index + 2, kinds * index + 1 + kinds) for index in range(count))
    yield "".join(rf"\cmidrule(lr){{{first}-{last}}}" for first, last in spans)
    yield "Model" + "".join(f" & {kind}" for kind in table.kinds) * count + r" \\"
    group = None
    for row in table.rows:
        if row.group != group:
            group = row.group
            yield r"\midrule"
            if group:
                yield rf"\multicolumn{{{kinds * count + 1}}}{{l}}{{\textit{{{escape(group)}}}}} \\"
        yield from _row(table, row)
    yield r"\bottomrule"
    yield r"\end{tabular}%"


def _row(table: Table, row: Row) -> Iterator[str]:
    if row.run_ids:
        yield f"% run: {' '.join(row.run_ids)}"
    cells = [escape(row.name), *map(_number, words.numbers(table, row))]
    yield " & ".join(cells) + r" \\"


def _number(number: Words) -> str:
    """The parts of a number; what is mathematics here is ours, never a user's text."""
    value = escape(number.value) if number.value != "--" else "--"
    text = rf"\textbf{{{value}}}" if number.best else value
    if number.sd:
        text += rf" $\pm$ {number.sd}"
    if number.count:
        text += f" {number.count}"
    return text + _superscript(number.marks)


def _superscript(marks: Sequence[str]) -> str:
    return rf"\textsuperscript{{{escape(','.join(marks))}}}" if marks else ""


def _footnotes(table: Table) -> Iterator[str]:
    notes = words.footnotes(table)
    if not notes:
        return
    yield r"\par\medskip"
    yield r"\footnotesize\raggedright"
    for mark, text in notes:
        yield _superscript((mark,) if mark else ()) + escape(" ".join(text.split())) + r"\par"
