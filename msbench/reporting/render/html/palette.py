"""The colours of the page, light and dark; tests check text against background by WCAG AA."""

from collections.abc import Mapping, Sequence

LIGHT: Mapping[str, str] = {
    "ground": "#ffffff",
    "raised": "#f5f6f8",
    "line": "#d5d9e0",
    "text": "#1b1f27",
    "muted": "#565d6b",
    "link": "#0b57a4",
    "focus": "#0b57a4",
    "target": "#fff3c9",
    "good": "#1b6b34",
    "good-ground": "#e2f4e7",
    "bad": "#a61b1b",
    "bad-ground": "#fdeaea",
    "unsure": "#7a4b00",
    "unsure-ground": "#fdf1d8",
    "absent": "#4f5665",
    "absent-ground": "#eceef2",
}
DARK: Mapping[str, str] = {
    "ground": "#14171c",
    "raised": "#1d2128",
    "line": "#3a414d",
    "text": "#e7eaef",
    "muted": "#a5adba",
    "link": "#86bdf7",
    "focus": "#86bdf7",
    "target": "#3d3512",
    "good": "#86d69c",
    "good-ground": "#14321d",
    "bad": "#ff9f9a",
    "bad-ground": "#421717",
    "unsure": "#f2c46d",
    "unsure-ground": "#3a2b0b",
    "absent": "#b9c0cc",
    "absent-ground": "#2a303a",
}
SERIES_LIGHT = ("#4477aa", "#dd5566", "#228833", "#8f7f12", "#1f88aa", "#aa3377", "#777777")
"""Colours of ``var(--series-1, ...)`` and so on in figures: those of print, dark enough to be visible."""
SERIES_DARK = ("#7aa6d9", "#ee6677", "#4fb463", "#ccbb44", "#66ccee", "#d965a6", "#bbbbbb")


def variables(colours: Mapping[str, str], series: Sequence[str]) -> str:
    """Return the colours as CSS custom properties."""
    named = {**colours, **{f"series-{number}": value for number, value in enumerate(series, 1)}}
    return " ".join(f"--{name}: {value};" for name, value in named.items())
