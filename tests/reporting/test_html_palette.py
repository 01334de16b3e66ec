import re
from importlib import resources

import pytest

TEMPLATES = resources.files("msbench.reporting.render.html") / "templates"
LIGHT, DARK = (
    dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", block))
    for block in (TEMPLATES / "colours.css").read_text(encoding="utf-8").split("@media")
)
"""The colours of the page by name; ``series-1`` and so on are those of figures."""
TEXT_ON: tuple[tuple[str, str], ...] = (
    *((text, ground) for text in ("text", "muted", "link") for ground in ("ground", "raised", "target")),
    *((tone, f"{tone}-ground") for tone in ("good", "bad", "unsure", "absent")),
)
"""Every pair of text and ground that the page sets one on the other."""
SHAPE_ON: tuple[tuple[str, str], ...] = (
    ("focus", "ground"),
    ("focus", "raised"),
    ("link", "raised"),
    ("unsure", "raised"),
)
"""Rings and lines of charts, and what they are drawn on."""


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours ``#rrggbb``, 1 to 21, as WCAG 2.2 defines it."""
    light, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    assert contrast("#ffffff", "#767676") == pytest.approx(4.54, abs=0.005)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXT_ON)
def test_text_can_be_read(colours: dict[str, str], text: str, ground: str) -> None:
    assert contrast(colours[text], colours[ground]) >= 4.5


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("shape", "ground"), SHAPE_ON)
def test_lines_can_be_seen(colours: dict[str, str], shape: str, ground: str) -> None:
    assert contrast(colours[shape], colours[ground]) >= 3


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_series_of_figures_can_be_seen_and_distinguished(colours: dict[str, str]) -> None:
    series = [colour for name, colour in colours.items() if name.startswith("series-")]
    assert all(contrast(colour, colours["ground"]) >= 3 for colour in series)
    assert len(set(series)) == len(series) == 7


def test_light_and_dark_have_every_colour_of_the_style_and_no_other() -> None:
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    used = set(re.findall(r"var\(--([a-z-]+)\)", style))
    assert LIGHT.keys() == DARK.keys()
    assert used == {name for name in LIGHT if not name.startswith("series-")}
    assert not re.search(r"#[0-9a-f]{3,6}\b", style)
