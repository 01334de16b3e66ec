import re
from importlib import resources

import pytest

from msbench.report.html.palette import DARK, LIGHT, SERIES_DARK, SERIES_LIGHT, SHAPE_ON, TEXT_ON, contrast


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


@pytest.mark.parametrize(("series", "ground"), [(SERIES_LIGHT, LIGHT), (SERIES_DARK, DARK)])
def test_series_of_figures_can_be_seen_and_told_apart(series: list[str], ground: dict[str, str]) -> None:
    assert all(contrast(colour, ground["ground"]) >= 3 for colour in series)
    assert len(set(series)) == len(series) == 7


def test_light_and_dark_have_every_colour_of_the_style_and_no_other() -> None:
    style = (resources.files("msbench.report.html") / "templates" / "style.css").read_text(encoding="utf-8")
    used = set(re.findall(r"var\(--([a-z-]+)\)", style))
    assert used == set(LIGHT) == set(DARK)
    assert not re.search(r"#[0-9a-f]{3,6}\b", style)
