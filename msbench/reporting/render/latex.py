r"""Tables as LaTeX: a fragment for ``\input``, and a standalone document.

Any text is escaped reversibly, without further packages than those of the table. Characters that pdflatex has
no glyph for become ``\unicodechar{4E00}{...}``, which a table defines: XeTeX and LuaTeX print the character,
pdflatex its number.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise

from msbench.reporting.render import formatting
from msbench.reporting.render.formatting import FormattedNumber, make_stem
from msbench.reporting.tables.cells import Row, Table

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
LONGEST_NAME = 100
WIDE_PAPER = "a3paper,landscape,"

# A table wider than the text is shrunk to its width, and one too tall for a page with its notes to a page.
FIT_WIDTH = r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi"
FIT_HEIGHT = (
    r"\ifdim\dimexpr\ht2+\dp2\relax>0.8\textheight\resizebox*{!}{0.8\textheight}{\usebox2}\else\usebox2\fi"
)


def render_fragment(table: Table) -> str:
    r"""Return the table float, for ``\input`` into a document that loads booktabs and graphicx."""
    return "\n".join(_list_lines(table)) + "\n"


def render_document(tables: Sequence[Table], name: str) -> str:
    """Return a document that inputs only the fragments of these tables; `name` is that of its file."""
    inputs = "\n\\clearpage\n".join(map(_write_input, tables))
    wide = any(sum(map(len, table.kinds)) > MANY for table in tables)
    return DOCUMENT.format(name=name, inputs=inputs, paper=WIDE_PAPER if wide else "")


def _write_input(table: Table) -> str:
    """Return the ``\\input`` of a fragment, with the paper's table number where there is one."""
    number = "" if table.number is None else rf"\setcounter{{table}}{{{table.number - 1}}}" "\n"
    return rf"{number}\input{{{make_stem(table.id)}.tex}}"


def _list_lines(table: Table) -> Iterator[str]:
    yield f"% Made by msbench: {make_stem(table.id)}. Needs \\usepackage{{booktabs,graphicx}}."
    yield DEFINITION
    yield r"\begin{table}[tbp]"
    yield r"\centering"
    yield rf"\caption{{{escape_latex(' '.join(table.caption.split()))}}}"
    yield rf"\label{{tab:{make_stem(table.id)}}}"
    yield r"\par\medskip"
    yield r"\sbox2{\begin{minipage}{\linewidth}\centering"
    yield r"\sbox0{%"
    yield from _write_tabular(table)
    yield "}%"
    yield FIT_WIDTH
    yield from _write_footnotes(table)
    yield r"\end{minipage}}%"
    yield FIT_HEIGHT
    yield r"\end{table}"


def _write_tabular(table: Table) -> Iterator[str]:
    ends = list(accumulate(map(len, table.kinds), initial=1))
    yield rf"\begin{{tabular}}{{{'l' * ends[-1]}}}"
    yield r"\toprule"
    heads = zip(table.kinds, table.columns, strict=True)
    yield (
        "".join(
            rf" & \multicolumn{{{len(k)}}}{{c}}{{{escape_latex(shorten_name(column.label))}}}"
            for k, column in heads
        )
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
                yield rf"\multicolumn{{{ends[-1]}}}{{l}}{{\textit{{{escape_latex(shorten_name(group))}}}}} \\"
        yield from _write_row(table, row)
    yield r"\bottomrule"
    yield r"\end{tabular}%"


def _write_row(table: Table, row: Row) -> Iterator[str]:
    if row.run_ids:
        yield f"% run: {' '.join(row.run_ids)}"
    numbers = chain.from_iterable(formatting.format_row(table, row))
    cells = [escape_latex(shorten_name(row.name)), *map(_format_number, numbers)]
    yield " & ".join(cells) + r" \\"


def shorten_name(name: str) -> str:
    """Return a name that fits into a table, its middle left out: TeX has no width beyond six metres."""
    return (
        name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME // 2]}…{name[-LONGEST_NAME // 2 + 1 :]}"
    )


def _format_number(number: FormattedNumber) -> str:
    """Return the LaTeX of a number; its math is generated here and never a user's text."""
    value = escape_latex(number.value) if number.value != "--" else "--"
    text = rf"\textbf{{{value}}}" if number.best else value
    if number.sd:
        text += rf" $\pm$ {number.sd}"
    if number.count:
        text += f" {number.count}"
    if number.verdict:
        text += rf"~{formatting.VERDICTS[number.verdict].sign}"
    return text + _format_marks(number.marks)


def _format_marks(marks: Sequence[str]) -> str:
    return rf"\textsuperscript{{{escape_latex(','.join(marks))}}}" if marks else ""


def _write_footnotes(table: Table) -> Iterator[str]:
    """Yield marked notes in one paragraph and general notes in another: single lines would fill a page."""
    notes = [(mark, escape_latex(" ".join(text.split()))) for mark, text in formatting.list_footnotes(table)]
    marked = [_format_marks((mark,)) + text for mark, text in notes if mark]
    general = [text for mark, text in notes if not mark]
    verdicts = formatting.list_verdicts(table)
    general += [f"{style.sign} {verdict}: {style.meaning}" for verdict, style in verdicts]
    if notes or general:
        yield r"\par\medskip"
        yield r"\scriptsize\raggedright"
    for paragraph in filter(None, (marked, general)):
        yield ".\n".join(paragraph) + r".\par"


DEFINITION = r"\providecommand{\unicodechar}[2]{\ifdefined\Umathcode#2\else\texttt{U+#1}\fi}"

# TeX would read brackets and stars as arguments of the preceding row's \\; babel makes quotes active.
MACROS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\char34{}",
    "`": r"\char96{}",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "\u00a0": "~",
    "±": r"$\pm$",
    "×": r"$\times$",
    "→": r"$\rightarrow$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "†": r"$\dagger$",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "δ": r"$\delta$",
    "ε": r"$\epsilon$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "σ": r"$\sigma$",
    "Δ": r"$\Delta$",
}
LIGATURES = "-',"
"""Characters that TeX joins into another character when doubled."""


def escape_latex(text: str) -> str:
    """Return `text` as LaTeX source, on one line."""
    parts: list[str] = []
    for index, character in enumerate(text):
        before = text[index - 1] if index else ""
        if character == before and character in LIGATURES:
            parts.append("{}" + character)
        elif character == " " and (before in ("", " ") or index == len(text) - 1):
            parts.append(r"\ ")
        else:
            parts.append(MACROS.get(character) or _encode(character))
    return "".join(parts)


def _encode(character: str) -> str:
    """Return ASCII and accented Latin letters unchanged, other characters by number."""
    if " " <= character <= "~" or _is_accented(character):
        return character
    # A control character or lone surrogate in the source would stop TeX, so only its number is written.
    visible = character if unicodedata.category(character)[0] not in "CZ" else ""
    return rf"\unicodechar{{{ord(character):04X}}}{{{visible}}}"


def _is_accented(character: str) -> bool:
    """Return True for a letter that TeX can compose from an ASCII letter and an accent above it."""
    if not "À" <= character <= "ž":
        return False
    parts = unicodedata.decomposition(character).split()
    return len(parts) == 2 and chr(int(parts[0], 16)).isascii() and parts[1] not in ("0328", "0327", "0326")
