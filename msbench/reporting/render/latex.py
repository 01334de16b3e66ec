r"""Tables as LaTeX: a fragment for ``\input``, a legend with its notes in full, and a standalone document.

Any text is escaped reversibly, without further packages than those of the table. Characters that pdflatex has
no glyph for become ``\unicodechar{4E00}{...}``, which a table defines: XeTeX and LuaTeX print the character,
pdflatex its number.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from msbench.reporting.render import formatting
from msbench.reporting.render.formatting import FormattedNumber, make_stem
from msbench.reporting.tables.cells import Cell, Row, Table, count_in_letters
from msbench.reporting.tables.versus import LEVEL, find_leaders, format_p

DOCUMENT = r"""% Made by msbench. Compiles alone: pdflatex {name}-report.tex
\documentclass[a4paper]{{article}}
\usepackage[utf8]{{inputenc}}
\usepackage[margin=2cm]{{geometry}}
\usepackage{{booktabs}}
\usepackage[justification=raggedright]{{caption}}
\usepackage{{graphicx}}
\usepackage{{pdflscape}}
\setlength{{\emergencystretch}}{{3em}}
\begin{{document}}
{inputs}
\clearpage
{legends}
\end{{document}}
"""

MANY = 8
"""Columns of numbers beyond which a table is put on a page in landscape."""
LONGEST_NAME = 100
LONG_NOTE, SHORTEST_CLAUSE, LONGEST_CLAUSE = 80, 25, 110
"""Characters: of a longer note the table has the first clause, of a length between these, the legend has all.

The shortest is longer than what a note begins with, such as ``reported:``.
"""

# A table wider than the text is shrunk to its width, and one too tall for a page with its notes to a page.
FIT_WIDTH = r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi"
FIT_HEIGHT = (
    r"\ifdim\dimexpr\ht2+\dp2\relax>0.8\textheight\resizebox*{!}{0.8\textheight}{\usebox2}\else\usebox2\fi"
)


class _Part(NamedTuple):
    """A column of numbers, in parts: before the point, point and decimals, and with `spread` what follows."""

    kind: str
    spread: bool

    @property
    def width(self) -> int:
        return 3 if self.spread else 2

    @property
    def layout(self) -> str:
        return "r@{}l@{ }l" if self.spread else "r@{}l"

    def fill(self, before: str, decimals: str = "", after: str = "") -> str:
        """Return the cells of a number; without a spread what follows is next to the decimals."""
        cells = [before, decimals, after] if self.spread else [before, rf"{decimals}\,{after}".rstrip(r"\,")]
        return " & ".join(cells)


def render_fragment(table: Table) -> str:
    r"""Return the table float, for ``\input`` into a document that loads booktabs and graphicx."""
    return "\n".join(_Renderer(table).list_lines()) + "\n"


def render_legend(table: Table) -> str:
    r"""Return the notes of the table in full, for ``\input`` into a document that has the table."""
    return "\n".join(_Renderer(table).list_legend()) + "\n"


def render_document(tables: Sequence[Table], name: str) -> str:
    """Return a document that inputs only the files of these tables; `name` is that of its file."""
    inputs = "\n\\clearpage\n".join(map(_write_input, tables))
    legends = "\n".join(rf"\input{{{make_stem(table.id)}-legend.tex}}" for table in tables)
    return DOCUMENT.format(name=name, inputs=inputs, legends=legends)


def _write_input(table: Table) -> str:
    """Return the ``\\input`` of a fragment, with the paper's table number where there is one."""
    number = "" if table.number is None else rf"\setcounter{{table}}{{{table.number - 1}}}" "\n"
    text = rf"{number}\input{{{make_stem(table.id)}.tex}}"
    wide = sum(map(len, _Renderer(table).parts)) > MANY
    return f"\\begin{{landscape}}\n{text}\n\\end{{landscape}}" if wide else text


@dataclass
class _Notes:
    """The notes of a table's cells: equal ones share a letter, once they are shortened.

    `texts` has by letter the full texts, each with the rows and columns that it is on.
    """

    letters: dict[str, str] = field(default_factory=dict)
    texts: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def add(self, text: str, place: str) -> str:
        """Return the letter of a note."""
        letter = self.letters.setdefault(shorten_note(text), count_in_letters(len(self.letters) + 1))
        self.texts.setdefault(letter, {}).setdefault(text, []).append(place)
        return letter


class _Renderer:
    """The lines of one table; its notes are collected while its rows are written."""

    def __init__(self, table: Table) -> None:
        self.table, self.stem, self.notes = table, make_stem(table.id), _Notes()
        self.leaders = find_leaders(table)
        self.compared: dict[str, list[str]] = {}
        numbers = [formatting.format_row(table, row) for row in table.rows]
        self.parts = [
            [_Part(kind, any(_follow(row[at][index]) for row in numbers)) for index, kind in enumerate(kinds)]
            + [_Part("$p$", False)] * any(row.cells[at].comparison for row in table.rows)
            for at, kinds in enumerate(table.kinds)
        ]
        self.rows = [self._write_row(at, row, numbers[at]) for at, row in enumerate(table.rows)]

    def list_lines(self) -> Iterator[str]:
        """Yield the lines of the float."""
        title, caption = (
            escape_latex(" ".join(text.split())) for text in (self.table.title, self.table.caption)
        )
        yield f"% Made by msbench: {self.stem}. Needs \\usepackage{{booktabs,graphicx}}."
        yield f"% Its notes in full: {self.stem}-legend.tex."
        yield DEFINITION
        yield r"\begin{table}[tbp]"
        yield r"\centering"
        yield rf"\caption[{{{title}}}]{{{'. '.join(filter(None, (title, caption)))}}}"
        yield rf"\label{{tab:{self.stem}}}"
        yield r"\par\medskip"
        yield r"\sbox2{\begin{minipage}{\linewidth}\centering"
        yield r"\sbox0{%"
        yield from self._list_tabular()
        yield "}%"
        yield FIT_WIDTH
        yield from self._list_footnotes()
        yield r"\end{minipage}}%"
        yield FIT_HEIGHT
        yield r"\end{table}"

    def _list_tabular(self) -> Iterator[str]:
        widths = [sum(part.width for part in parts) for parts in self.parts]
        ends = list(accumulate(widths, initial=1))
        labels = [escape_latex(shorten_name(column.label)) for column in self.table.columns]
        yield rf"\begin{{tabular}}{{l{''.join(part.layout for part in chain.from_iterable(self.parts))}}}"
        yield r"\toprule"
        heads = zip(widths, labels, strict=True)
        yield "".join(rf" & \multicolumn{{{width}}}{{c}}{{{label}}}" for width, label in heads) + r" \\"
        yield "".join(rf"\cmidrule(lr){{{first + 1}-{last}}}" for first, last in pairwise(ends))
        kinds = chain.from_iterable(self.parts)
        yield (
            "Model"
            + "".join(rf" & \multicolumn{{{part.width}}}{{l}}{{{part.kind}}}" for part in kinds)
            + r" \\"
        )
        group = None
        for row, line in zip(self.table.rows, self.rows, strict=True):
            if row.group != group:
                group = row.group
                yield r"\midrule"
                if group:
                    name = escape_latex(shorten_name(group))
                    yield rf"\multicolumn{{{ends[-1]}}}{{l}}{{\textit{{{name}}}}} \\"
            if row.run_ids:
                yield f"% run: {' '.join(row.run_ids)}"
            yield line
        yield r"\bottomrule"
        yield r"\end{tabular}%"

    def _write_row(self, at: int, row: Row, numbers: Sequence[Sequence[FormattedNumber]]) -> str:
        cells = [escape_latex(shorten_name(row.name))]
        for index, cell in enumerate(row.cells):
            place = ", ".join([row.name, *[self.table.columns[index].label] * (len(row.cells) > 1)])
            for part, number in zip(self.parts[index], numbers[index], strict=False):
                is_measured = part.kind == "measured"
                found = self._list_notes(cell) if is_measured else cell.reported_notes
                marks = sorted(
                    {self.notes.add(text, place) for text in found}, key=lambda mark: (len(mark), mark)
                )
                leads = self.leaders.get((at, index)) if is_measured else None
                cells.append(_write_number(part, number, marks, leads))
            if self.parts[index][-1].kind == "$p$":
                cells.append(self._write_p(self.parts[index][-1], cell, place))
        return " & ".join(cells) + r" \\"

    def _list_notes(self, cell: Cell) -> Sequence[str]:
        """Return the notes on the measured number, without that on the test, which has a column."""
        return [text for text in cell.notes if cell.comparison is None or text != cell.comparison.note]

    def _write_p(self, part: _Part, cell: Cell, place: str) -> str:
        if cell.comparison is None:
            return part.fill("")
        self.compared.setdefault(cell.comparison.note, []).append(place)
        before, point, decimals = format_p(cell.comparison.p).partition(".")
        return part.fill(before.replace("< ", "$<$"), point + decimals)

    def _list_footnotes(self) -> Iterator[str]:
        """Yield marked notes as a paragraph, general notes as another: single lines would fill a page."""
        letters = self.notes.letters.items()
        marked = [_format_marks((letter,)) + escape_latex(text) for text, letter in letters]
        listed = [text for mark, text in formatting.list_footnotes(self.table) if not mark]
        general = list(dict.fromkeys(escape_latex(shorten_note(text)) for text in listed))
        general += [
            f"{style.sign} {verdict}: {style.meaning}"
            for verdict, style in formatting.list_verdicts(self.table)
        ]
        general += self._explain_leaders()
        if marked or general:
            yield r"\par\medskip"
            yield r"\scriptsize\raggedright"
        for paragraph in filter(None, (marked, general)):
            yield (
                "\n".join(text if text.endswith(MACROS["…"]) else f"{text}." for text in paragraph) + r"\par"
            )

    def _explain_leaders(self) -> Iterator[str]:
        test = rf"Welch's test over seeds at {LEVEL:.0%}, Holm over the column".replace("%", r"\%")
        if True in self.leaders.values():
            yield rf"\textbf{{bold}}: distinguishable from every other mean ({test})"
        if False in self.leaders.values():
            group = "the highest mean and those not distinguishable from it"
            yield rf"\underline{{underlined}}: {group} ({test})"

    def list_legend(self) -> Iterator[str]:
        """Yield every note of the table, with the rows and columns that it is on."""
        general: dict[str, list[str]] = {
            text: [] for mark, text in formatting.list_footnotes(self.table) if not mark
        }
        marked = {rf"\textsuperscript{{{letter}}}": texts for letter, texts in self.notes.texts.items()}
        yield f"% Made by msbench: the notes of {self.stem}.tex in full."
        groups = [
            (mark, texts) for mark, texts in (*marked.items(), ("$p$", self.compared), ("", general)) if texts
        ]
        if not groups:
            return
        yield DEFINITION
        yield rf"\subsection*{{Notes on Table~\ref{{tab:{self.stem}}}}}"
        yield r"\begin{description}\small\raggedright"
        for mark, texts in groups:
            for text, places in texts.items():
                where = f" ({'; '.join(dict.fromkeys(places))})" if places else ""
                yield rf"\item[{{{mark}}}] {escape_latex(' '.join(text.split()) + where)}"
        yield r"\end{description}"


def shorten_name(name: str) -> str:
    """Return a name that fits into a table, its middle left out: TeX has no width beyond six metres."""
    return (
        name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME // 2]}…{name[-LONGEST_NAME // 2 + 1 :]}"
    )


def shorten_note(text: str) -> str:
    """Return a short note as it is, of a longer one its first clause with an ellipsis."""
    text = " ".join(text.split())
    clause = text.partition("; ")[0] if len(text) > LONG_NOTE else text
    if len(clause) > LONGEST_CLAUSE:
        start = clause[SHORTEST_CLAUSE:LONGEST_CLAUSE]
        ends = (start.rfind(mark) for mark in (". ", ": ", ", ", " (", " "))
        clause = clause[: SHORTEST_CLAUSE + next((end for end in ends if end >= 0), len(start))]
    return clause if clause == text else f"{clause}…"


def _follow(number: FormattedNumber) -> bool:
    """Return True for a number that is followed by more than marks."""
    return bool(number.sd or number.interval or number.count or number.verdict)


def _write_number(part: _Part, number: FormattedNumber, marks: Sequence[str], leads: bool | None) -> str:
    """Return the cells of a number; its math is generated here and never a user's text."""
    interval = number.interval and f"({escape_latex(number.interval).replace('-', '$-$')})"
    after = " ".join(filter(None, (number.sd and rf"$\pm$ {number.sd}", interval, number.count)))
    if number.verdict:
        after += rf"~{formatting.VERDICTS[number.verdict].sign}"
    superscript = _format_marks(marks)
    found = re.fullmatch(r"([-+]?\d+)(\.\d+)?", number.value)
    if found is None and number.value != formatting.STATUS["missing"]:
        text = escape_latex(number.value) + superscript + (rf"\,{after}" if after else "")
        return rf"\multicolumn{{{part.width}}}{{l}}{{{text}}}"
    before, decimals = (found[1].replace("-", "$-$"), found[2] or "") if found else ("--", "")
    style = {None: "{}", True: r"\textbf{{{}}}", False: r"\underline{{{}}}"}[leads]
    before, decimals = (style.format(text) if text else "" for text in (before, decimals))
    if after:
        return part.fill(before, decimals, after + superscript)
    return part.fill(before, decimals + superscript)


def _format_marks(marks: Sequence[str]) -> str:
    return rf"\textsuperscript{{{','.join(marks)}}}" if marks else ""


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
    "…": r"\ldots{}",
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
