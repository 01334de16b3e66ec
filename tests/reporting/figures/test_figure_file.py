"""Files of figures: CSV of the rows, the same bytes always, whole or not at all, SVG that a page can hold."""

import os
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib
import pytest
from figure_values import NAMES
from matplotlib.figure import Figure

from msbench.errors import ConfigError
from msbench.reporting.figures import FigureFile, write_figures
from msbench.reporting.figures.style import COLOURS, assign_styles, make_panels, set_title

SUFFIXES = [".csv", ".pdf", ".png", ".svg"]


@dataclass(frozen=True)
class Row:
    name: str
    value: float
    sd: float | None = None
    runs: tuple[str, ...] = ()


def draw(rows: tuple[Row, ...]) -> Figure:
    seen = assign_styles(row.name for row in rows)
    figure, [axes] = make_panels(1, list(seen.values()))
    for number, row in enumerate(rows):
        look = seen[row.name]
        axes.plot(number, row.value, marker=look.marker, color=look.colour, clip_on=True)
    set_title(axes, rows[0].name)
    return figure


def made(*names: str, stem: str = "small-figure") -> FigureFile:
    rows = tuple(Row(name, 0.1 + number) for number, name in enumerate(names))
    return FigureFile(
        stem, "A title & <more>", "What is drawn.", ("one left out",), rows, partial(draw, rows)
    )


def test_the_csv_is_the_rows() -> None:
    rows = (Row('S4_D & "50%"', 0.1 + 0.2, 1.5, ("a", "b")), Row("two\nlines", 1e-9))
    text = FigureFile("x", "X", rows=rows).csv().decode()
    assert text == (
        'name,value,sd,runs\n"S4_D & ""50%""",0.30000000000000004,1.5,a b\n"two\nlines",1e-09,,\n'
    )


def test_a_figure_is_the_same_bytes_whenever_and_whatever_the_user_has_set() -> None:
    first = made("a", "b").pictures()
    assert list(first) == ["pdf", "png", "svg"]
    with matplotlib.rc_context({"font.size": 30.0, "axes.grid": False, "svg.hashsalt": "other"}):
        again = made("a", "b").pictures()
        assert matplotlib.rcParams["font.size"] == 30.0
    assert first == again
    assert made("a", "b").svg() == made("a", "b").svg()
    for data in first.values():
        assert not re.search(rb"CreationDate|<dc:date>|[Mm]atplotlib v", data)
    assert first["pdf"].startswith(b"%PDF")
    assert first["png"].startswith(b"\x89PNG")


def test_names_are_drawn_as_they_are() -> None:
    text = made(*NAMES).pictures()["svg"].decode()
    texts = [element.text for element in ElementTree.fromstring(text).iter() if element.tag.endswith("text")]
    assert {look.label for look in assign_styles(NAMES).values()} <= set(texts)


class Plain(FigureFile):
    """Of bytes that take no time to make."""

    def pictures(self) -> dict[str, bytes]:
        return {kind: f"{kind} of {self.rows[0].name}".encode() for kind in ("pdf", "png", "svg")}


def plain(name: str) -> Plain:
    return Plain("small-figure", "Plain", rows=(Row(name, 0.0),))


def test_files_are_named_after_the_figure(tmp_path: Path) -> None:
    nothing = FigureFile("empty", "Empty", reason="no data")
    paths = write_figures([plain("a"), nothing], tmp_path / "deep")
    assert [path.name for path in paths] == [f"small-figure{suffix}" for suffix in SUFFIXES]
    assert sorted((tmp_path / "deep").iterdir()) == sorted(paths)
    contents = {path.suffix[1:]: path.read_bytes() for path in paths}
    assert contents == {"csv": plain("a").csv(), **plain("a").pictures()}


@pytest.mark.parametrize("stop", range(4))
def test_a_write_that_is_stopped_leaves_no_half_file(
    stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in write_figures([plain("old")], tmp_path)}
    real, calls = os.replace, iter(range(9))

    def replace(source: str, target: Path) -> None:
        if next(calls) == stop:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        write_figures([plain("new")], tmp_path)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    new = [f"small-figure{suffix}" for suffix in SUFFIXES[:stop]]
    assert after.keys() == before.keys()
    assert [name for name in sorted(after) if after[name] != before[name]] == new


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "small-figure.pdf").mkdir()
    with pytest.raises(ConfigError, match=r"small-figure\.pdf: cannot be written: "):
        write_figures([plain("a")], tmp_path)


def test_an_svg_for_a_page() -> None:
    text = made("S4_D & 50%", "<tag>").svg()
    assert text.startswith("<svg ")
    root = ElementTree.fromstring(text)
    assert (root.get("role"), root.get("aria-labelledby")) == ("img", "title desc")
    assert [each.get("id") for each in list(root)[:2]] == ["title", "desc"]
    assert [(each.tag, each.text) for each in list(root)[:2]] == [
        ("title", "A title & <more>"),
        ("desc", "What is drawn. one left out."),
    ]
    tags = {element.tag for element in root.iter()}
    assert "text" in tags
    assert not tags & {"style", "metadata", "script", "image"}
    assert float(str(root.get("width"))) == pytest.approx(3.4 * 96, abs=1)
    assert root.get("height") is None
    assert root.get("viewBox")


def test_its_colours_are_those_of_the_page() -> None:
    text = made("a", "b").svg()
    left = set(re.findall(r"#[0-9a-f]{6}\b", re.sub(r"var\(--series-\d, #[0-9a-f]{6}\)", "", text)))
    assert left == set()
    assert f"var(--series-1, {COLOURS[0]})" in text
    assert "currentColor" in text
    assert "#ffffff" in made("a", "b").pictures()["svg"].decode(), "and print has a background"


def test_ids_of_two_figures_in_a_page_do_not_clash() -> None:
    texts = [made("a").svg(f"{prefix}-") for prefix in ("one", "other")]
    ids = [re.findall(r'\bid="([^"]*)"', text) for text in texts]
    assert len({*ids[0], *ids[1]}) == len(ids[0]) + len(ids[1])
    for text, known in zip(texts, ids, strict=True):
        used = re.findall(r'href="#([^"]*)"', text) + re.findall(r"url\(#([^)]*)\)", text)
        assert used
        assert set(used) <= set(known)
        root = ElementTree.fromstring(text)
        assert str(root.get("aria-labelledby")).split() == [each.get("id") for each in list(root)[:2]]


@pytest.mark.parametrize(
    "name",
    [
        "</text><script>alert(1)</script>",
        '"><rect onload="alert(1)"/>',
        "<image href='https://example.org/a.png'/>",
        "url(https://example.org/a)",
        "</style><style>@import 'https://example.org/a.css';</style>",
    ],
)
def test_nothing_in_it_runs_or_refers_outside(name: str) -> None:
    root = ElementTree.fromstring(made(name, "b").svg("a-"))
    refused = {"script", "foreignObject", "iframe", "animate", "set", "a", "style", "image"}
    assert not refused & {element.tag for element in root.iter()}
    attributes = [pair for element in root.iter() for pair in element.attrib.items()]
    assert not [key for key, _ in attributes if key.lower().startswith("on")]
    assert all(value.startswith("#a-") for key, value in attributes if key.endswith("href"))
    assert not [value for _, value in attributes if re.search(r"url\((?!#a-)|@import|://", value)]


def test_names_that_look_like_ids_are_left_alone() -> None:
    name = 'id="p1" url(#p1) #4477aa'
    root = ElementTree.fromstring(made(name).svg())
    assert name in [element.text for element in root.iter()]
