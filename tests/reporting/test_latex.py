import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from report_runs import ODD_NAMES, RULES, PlannedRun, build, printed, run

from msbench.reporting.command import write_tables
from msbench.reporting.render.formatting import make_stem
from msbench.reporting.render.latex import (
    MACROS,
    escape_latex,
    render_document,
    render_fragment,
    render_legend,
    shorten_name,
    shorten_note,
)
from msbench.reporting.tables.cells import Cell, CellComparison, CellStatus, Column, Row, Table

GOLDEN = Path(__file__).parent / "golden"
AMPERSAND = re.compile(r"(?<!\\)&")
COMMENT = re.compile(r"(?<!\\)%")


HEADS = re.compile(r"( & \\multicolumn\{\d+\}\{c\}|\\multicolumn\{\d+\}\{l\}\{\\textit|Model & )")


def rows_of(source: str) -> list[str]:
    return [line for line in source.splitlines() if line.endswith(r" \\") and not HEADS.match(line)]


def odd_table() -> Table:
    """Every odd name in every place that a name can stand in, with every status."""
    columns = (Column("a_b", "50% & more"), Column("模型", "модель"))
    statuses: tuple[CellStatus, ...] = ("missing", "diverged", "out-of-memory", "interrupted", "failed")
    rows = [
        Row(name, f"group {name}", name, (Cell(reported="1.0"), Cell(status=statuses[index % 5])))
        for index, name in enumerate(ODD_NAMES)
    ]
    first, second = "50% of #1 & ~ ^ \\ {x}", " ".join(ODD_NAMES)
    best = Cell("63.04", "", 63.04, 0.2, 2, 3, "measured", (second,), (first,), ("0" * 12,), True)
    caption = f"Odd: {' '.join(ODD_NAMES)}"
    return Table(
        "odd_names", "Odd names", caption, columns, (*rows, Row("x", "", "", (best, best))), ("a note",)
    )


def golden_table() -> Table:
    specs = [
        PlannedRun("listops", name, seed) for name in ("mamba", "msssm-s6", "no_pe") for seed in range(3)
    ]
    values = {"mamba": (0.37, 0.36, None), "msssm-s6": (0.6304, 0.621, 0.6402), "no_pe": (None, None, None)}
    records = []
    for spec in specs:
        value = values[spec.model_name][spec.seed]
        status = "finished" if value is not None else "diverged"
        identity = f"{spec.model_name.encode().hex():0<11.11}{spec.seed}"
        records.append(run(spec, value, status=status, baselines=RULES, run_id=identity))
    cells = [
        printed("S4", "59.60", model="s4"),
        printed("Mamba", "38.02", model="mamba", note="not its own run"),
        printed("MS-SSM (S6)", "63.04", group="Convolutions + SSMs", model="msssm-s6"),
    ]
    return build(specs, records, cells)


def test_numbers_are_aligned_at_the_point() -> None:
    values = ("59.59", "8", "-0.5", "100.25")
    table = Table("t", "t", "", (Column("a", "a"),), tuple(Row(v, "", "", (Cell(v),)) for v in values))
    source = render_fragment(table)
    assert r"\begin{tabular}{lr@{}lr@{}l}" in source
    starts = ("59.59 & 59 & .59 & --", "8 & 8 &  & --", "-0.5 & $-$0 & .5 & --", "100.25 & 100 & .25 & --")
    for row, start in zip(rows_of(source), starts, strict=True):
        assert row.startswith(start)


def seeds_of(**values: tuple[float, ...]) -> Table:
    plan = [PlannedRun("listops", name, seed) for name, found in values.items() for seed in range(len(found))]
    return build(plan, [run(spec, values[spec.model_name][spec.seed]) for spec in plan])


def test_only_a_mean_that_is_distinguishable_from_all_others_is_bold() -> None:
    source = render_fragment(
        seeds_of(best=(0.9, 0.901, 0.902), near=(0.8, 0.801, 0.802), far=(0.5, 0.51, 0.52))
    )
    assert r"best & \textbf{90} & \textbf{.10} & $\pm$ 0.10 \\" in source
    assert r"\textbf{bold}: distinguishable from every other mean" in source
    assert r"\underline" not in source


def test_the_rest_of_the_leading_group_is_underlined() -> None:
    source = render_fragment(seeds_of(best=(0.9, 0.8, 0.7), near=(0.89, 0.78, 0.72), far=(0.1, 0.11, 0.12)))
    assert r"best & \underline{80} &  & $\pm$ 10 \\" in source
    assert r"near & \underline{79} & \underline{.7} & $\pm$ 8.6 \\" in source
    assert r"far & 11 & .0 & $\pm$ 1.0 \\" in source
    assert r"\underline{underlined}: the highest mean and those not distinguishable from it" in source
    assert r"\textbf" not in source


def test_p_values_are_a_column_and_their_tests_are_in_the_legend() -> None:
    table = seeds_of(base=(0.5, 0.51, 0.52), other=(0.6, 0.61, 0.62), same=(0.5, 0.52, 0.53))
    tests = {
        "other": CellComparison("base", 0.1, 0.07, 0.13, 0.0004, True, "better than base"),
        "same": CellComparison("base", 0.01, -0.02, 0.03, 0.47, True, "not distinguishable from base"),
    }
    rows = []
    for row in table.rows:
        found = tests.get(row.name)
        notes = (found.note,) if found else ()
        rows.append(replace(row, cells=(replace(row.cells[0], comparison=found, notes=notes),)))
    compared = replace(table, rows=tuple(rows))
    lines = rows_of(render_fragment(compared))
    assert r"\multicolumn{2}{l}{$p$} \\" in render_fragment(compared)
    assert [line.split("&", 4)[4] for line in lines] == [r"  &  \\", r" $<$0 & .001 \\", r" 0 & .47 \\"]
    assert "not distinguishable" not in render_fragment(compared)
    assert r"\item[{$p$}] not distinguishable from base (same)" in render_legend(compared)


def test_long_notes_are_shortened_and_share_a_mark_and_the_legend_has_them_whole() -> None:
    long = (
        "reported: as in the other figure; the first source of this number, a page of the year before, has {}"
    )
    cells = [Cell("1.0", reported_notes=(long.format(number),)) for number in (11, 12)]
    rows = tuple(Row(name, "", "", (cell,)) for name, cell in zip("xy", cells, strict=True))
    table = Table("t", "Title", "Caption.", (Column("a", "a"),), rows, ("short", f"data: {'word ' * 40}"))
    source, legend = render_fragment(table), render_legend(table)
    assert r"\textsuperscript{a}reported: as in the other figure\ldots{}" in source
    assert r"\textsuperscript{b}" not in source
    assert "short.\ndata: word" in source
    assert "has 11" not in source
    for number, name in ((11, "x"), (12, "y")):
        assert rf"\item[{{\textsuperscript{{a}}}}] {long.format(number)} ({name})" in legend
    assert f"data: {'word ' * 40}".strip() in legend
    assert r"\caption[{Title}]{Title. Caption.}" in source


def test_a_shortened_note_is_a_clause_of_it() -> None:
    short = "learned no more than the trivial rule 'top 1 level' (60.40%): within two standard errors of it"
    assert shorten_note(short) == short
    assert shorten_note("x" * 300) == f"{'x' * 110}…"
    settings = "settings are ours, as the source of the row publishes none"
    assert shorten_note(f"{settings}: {'name, ' * 20}") == f"{settings}…"


@pytest.mark.parametrize(
    "name", ["small.tex", "small-legend.tex", "small-report.tex", "small.csv", "small-wide.csv"]
)
def test_files_are_the_golden_ones(name: str, tmp_path: Path) -> None:
    write_tables([golden_table()], tmp_path, csv=True, latex=True)
    assert (tmp_path / name).read_bytes() == (GOLDEN / name).read_bytes()


@given(st.lists(st.text(), min_size=1, max_size=4), st.text(), st.text())
def test_any_name_leaves_every_row_its_cells(names: list[str], label: str, group: str) -> None:
    columns = (Column("a", label), Column("b", label))
    table = Table(
        "t", "t", label, columns, tuple(Row(n, group, n, (Cell("2.0"), Cell("1.0"))) for n in names)
    )
    rows = rows_of(render_fragment(table))
    assert len(rows) == len(names)
    for line in rows:
        assert len(AMPERSAND.findall(line)) == 8  # each number is two cells, before the point and after it
        assert not COMMENT.search(line)


def test_no_group_and_a_group_of_one_lose_no_row() -> None:
    table = odd_table()
    plain = replace(table, rows=tuple(replace(row, group="") for row in table.rows))
    for each in (table, plain):
        assert len(rows_of(render_fragment(each))) == len(table.rows)


def test_a_cell_is_mean_plus_minus_deviation_with_its_marks() -> None:
    source = render_fragment(odd_table())
    assert r"63 & .04\textsuperscript{a} & 63 & .04 & $\pm$ 0.20 (2/3)\textsuperscript{b} &" in source
    assert "% run: 000000000000\nx &" in source


def test_one_seed_has_no_plus_minus_and_nothing_measured_is_a_dash() -> None:
    table = build([PlannedRun("listops", "mamba")], [run(PlannedRun("listops", "mamba"), 0.872)])
    assert r"Model & \multicolumn{2}{l}{measured} \\" in render_fragment(table)
    assert r"mamba & 87 & .20 \\" in render_fragment(table)


def test_states_are_explained_below_the_table() -> None:
    source = render_fragment(odd_table())
    for text in ("div.: diverged", "OOM: out of memory", "int.: interrupted", "fail: the run failed"):
        assert text in source


@pytest.mark.parametrize(
    ("name", "safe"),
    [("a/b c", "a-b-c"), ("../up", "up"), ("x_y.z", "x-y-z"), ("模型", "table"), ("lra", "lra")],
)
def test_file_names_are_safe(name: str, safe: str) -> None:
    table = replace(odd_table(), id=name)
    assert make_stem(table.id) == safe
    assert rf"\label{{tab:{safe}}}" in render_fragment(table)
    assert rf"\input{{{safe}.tex}}" in render_document([table], safe)


def latin() -> Table:
    letters = [
        chr(code) for code in (*range(0x20, 0x7F), *range(0xA0, 0x180), *range(0x370, 0x400), 0x2013, 0x1F600)
    ]
    rows = tuple(Row(letter * 2, "", "", (Cell(),)) for letter in letters)
    return Table("letters", "Letters", "Every letter.", (Column("a", "a"),), rows)


def empty() -> Table:
    return Table("empty", "Empty", "", (Column("a", "a"),), ())


def endless() -> Table:
    """Names that are wider than the six metres which TeX can measure."""
    rows = (Row("W" * 3000, "G" * 3000, "", (Cell(),)),)
    return Table("endless", "Endless", "", (Column("a", "C" * 3000),), rows)


def test_endless_names_are_shortened_in_the_middle() -> None:
    source = render_fragment(endless())
    assert max(len(line) for line in source.splitlines()) < 400
    assert shorten_name("x" * 100) == "x" * 100
    assert shorten_name(f"first{'x' * 3000}last") == f"first{'x' * 45}…{'x' * 45}last"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("make", [golden_table, odd_table, latin, empty, endless])
def test_the_document_compiles_without_a_warning(make, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    table = make()
    write_tables([table], tmp_path, latex=True)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{make_stem(table.id)}-report.tex"]
    for _ in range(2):  # labels settle in the second run
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    log = (tmp_path / f"{make_stem(table.id)}-report.log").read_text(errors="replace")
    assert not re.findall(r".*(?:Warning|Overfull|Underfull|Missing character).*", log)


@pytest.mark.parametrize(("tasks", "wide"), [(4, False), (5, True)])
def test_a_page_is_wide_where_a_table_is(tasks: int, wide: bool) -> None:
    columns = tuple(Column(f"t{task}", f"Task {task}") for task in range(tasks))
    row = Row("m", "", "m", tuple(Cell(reported="1.0", measured=1.0, status="measured") for _ in columns))
    source = render_document([Table("small", "Small", "Caption.", columns, (row,))], "small")
    assert (r"\begin{landscape}" in source) == wide
    assert "a4paper" in source


TOKENS = re.compile(
    r"\\unicodechar\{(?P<code>[0-9A-F]+)\}\{[^{}]?\}"
    r"|(?P<macro>\\[a-z]+(?:[0-9]+)?\{\}|\$\\[a-zA-Z]+\$|\{[\[\]*]\}|\\[{}&%$#_]|~)"
    r"|(?P<space>\\ )|(?P<empty>\{\})|(?P<plain>[^\\{}&%$#_~^\[\]*<>|\"`])"
)
NAMES = {macro: character for character, macro in MACROS.items()}


def unescape(source: str) -> str:
    """What TeX prints for the source; fails on anything that TeX would not read as text."""
    parts, at = [], 0
    while at < len(source):
        match = TOKENS.match(source, at)
        assert match, f"not text to TeX: {source[at : at + 20]!r}"
        if match["code"]:
            parts.append(chr(int(match["code"], 16)))
        elif match["macro"]:
            parts.append(NAMES[match["macro"]])
        elif match["space"]:
            parts.append(" ")
        else:
            parts.append(match["plain"] or "")
        at = match.end()
    return "".join(parts)


@given(st.text() | st.text(alphabet="\\{}&%$#_~^[]*<>|\"`-', ab±ä模"))
@example("\\textbackslash{}")
@example("a--b '' ,,  c ")
def test_every_text_survives(text: str) -> None:
    assert unescape(escape_latex(text)) == text


@given(st.text())
def test_the_source_is_one_line_without_control_characters(text: str) -> None:
    assert all(character.isprintable() for character in escape_latex(text))


@given(st.text())
def test_ligatures_and_lost_spaces_cannot_happen(text: str) -> None:
    source = escape_latex(text)
    for pair in ("--", "''", ",,", "``", "  ", "<<", ">>", "!`", "?`"):
        assert pair not in source


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("S4_D & 50%", r"S4\_D \& 50\%"),
        ("C:\\runs\\a", r"C:\textbackslash{}runs\textbackslash{}a"),
        ("a~b", r"a\textasciitilde{}b"),
        ("x^2", r"x\textasciicircum{}2"),
        ("ends\\", r"ends\textbackslash{}"),
        ("a_b$c", r"a\_b\$c"),
        ("#1 {x}", r"\#1 \{x\}"),
        ("[s4]_base", r"{[}s4{]}\_base"),
        ("0.85 ± 0.01", r"0.85 $\pm$ 0.01"),
        ("MS-SSM→δ", r"MS-SSM$\rightarrow$$\delta$"),
        ("Schrödinger", "Schrödinger"),
        ("模", r"\unicodechar{6A21}{模}"),
        ("a\nb", r"a\unicodechar{000A}{}b"),
        (" a  b ", r"\ a \ b\ "),
    ],
)
def test_known_texts(text: str, source: str) -> None:
    assert escape_latex(text) == source


def test_odd_names_survive() -> None:
    assert [unescape(escape_latex(name)) for name in ODD_NAMES] == ODD_NAMES
