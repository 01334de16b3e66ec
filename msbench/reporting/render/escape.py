"""Reversible escaping of any text as LaTeX, without further packages than those of the table.

Characters that pdflatex has no glyph for become ``\\unicodechar{4E00}{...}``, which a table defines: XeTeX
and LuaTeX print the character, pdflatex its number.
"""

import unicodedata

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


def escape(text: str) -> str:
    """Return `text` as LaTeX source, on one line."""
    parts: list[str] = []
    for index, character in enumerate(text):
        before = text[index - 1] if index else ""
        if character == before and character in LIGATURES:
            parts.append("{}" + character)
        elif character == " " and (before in ("", " ") or index == len(text) - 1):
            parts.append(r"\ ")
        else:
            parts.append(MACROS.get(character) or _plain(character))
    return "".join(parts)


def _plain(character: str) -> str:
    """Return ASCII and accented Latin letters unchanged, other characters by number."""
    if " " <= character <= "~" or _accented(character):
        return character
    # A control character or lone surrogate in the source would stop TeX, so only its number is written.
    visible = character if unicodedata.category(character)[0] not in "CZ" else ""
    return rf"\unicodechar{{{ord(character):04X}}}{{{visible}}}"


def _accented(character: str) -> bool:
    """Return True for a letter that TeX can compose from an ASCII letter and an accent above it."""
    if not "À" <= character <= "ž":
        return False
    parts = unicodedata.decomposition(character).split()
    return len(parts) == 2 and chr(int(parts[0], 16)).isascii() and parts[1] not in ("0328", "0327", "0326")
