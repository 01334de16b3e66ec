import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from report_runs import ODD_NAMES

from msbench.reporting.render.latex import MACROS, escape_latex

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
