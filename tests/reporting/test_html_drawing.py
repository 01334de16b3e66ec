import io
import xml.etree.ElementTree as ET

import pytest

from msbench.reporting.render.html.drawing import inlined

HEAD = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'


def test_ids_and_what_refers_to_them_begin_with_the_prefix() -> None:
    text = inlined(
        f'<?xml version="1.0"?><!DOCTYPE svg>{HEAD}<style>.a {{ clip-path: url("#c") }}</style>'
        '<clipPath id="c"/><use xlink:href="#c"/><rect style="fill: url(#c)" clip-path="url(#c)"/></svg>',
        "figure-1-",
    )
    assert text.count("figure-1-c") == 5
    assert text.count("figure-1-root") == 2
    assert "xmlns" not in text
    assert "http" not in text
    assert [each.tag for each in ET.fromstring(text)] == ["style", "clipPath", "use", "rect"]


def test_what_names_a_figure_still_does() -> None:
    head = HEAD.replace("<svg ", '<svg aria-labelledby="t d" ')
    root = ET.fromstring(inlined(f'{head}<title id="t">T</title><desc id="d">D</desc></svg>', "a-"))
    assert root.get("aria-labelledby") == "a-t a-d"
    assert [each.get("id") for each in root] == ["a-t", "a-d"]


def test_a_figure_of_matplotlib_can_stand_twice_in_a_page() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 2))
    figure.subplots().plot([1, 2], [3, 4], label="</script>")
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg")
    first, second = (ET.fromstring(inlined(buffer.getvalue(), f"{name}-")) for name in "ab")
    ids = [[each.get("id") for each in root.iter() if each.get("id")] for root in (first, second)]
    assert len(ids[0]) > 10
    assert not set(ids[0]) & set(ids[1])
    links = {each.get("href", "")[1:] for each in first.iter() if each.get("href")}
    assert links
    assert links <= set(ids[0])


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        '<rect onload="alert(1)"/>',
        '<image href="https://example.org/a.png"/>',
        '<use xlink:href="//example.org/a.svg#b"/>',
        '<rect style="fill: url(https://example.org/a)"/>',
        "<style>@import 'https://example.org/a.css';</style>",
        '<a xlink:href="javascript:alert(1)"><rect/></a>',
        "<foreignObject/>",
    ],
)
def test_what_runs_or_refers_outside_is_refused(inside: str) -> None:
    with pytest.raises(ValueError, match="a figure may"):
        inlined(f"{HEAD}{inside}</svg>", "a-")
