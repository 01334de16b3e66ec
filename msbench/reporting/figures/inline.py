"""A figure as SVG for an HTML page: no background, text in the page's colour, unique ids.

Black in print becomes ``currentColor``. A series has the colour ``var(--series-1, #4477aa)`` and so on, so
that a page can set other colours for its dark mode; the defaults are those of print.
"""

import re
import xml.etree.ElementTree as ElementTree

from matplotlib.figure import Figure

from msbench.reporting.figures.style import COLOURS, INK, picture

NAMESPACE = "http://www.w3.org/2000/svg"
LINK = "{http://www.w3.org/1999/xlink}href"
PAINT = {INK: "currentColor"} | {
    colour: f"var(--series-{number}, {colour})" for number, colour in enumerate(COLOURS, 1)
}
ROOT = {
    "role": "img",
    "fill": "currentColor",
    "stroke-linejoin": "round",
    "stroke-linecap": "butt",
    "style": "max-width: 100%; height: auto",
}


def svg(figure: Figure, *, prefix: str, title: str, description: str) -> str:
    """Return the element ``<svg>`` with a title and a description for screen readers.

    `prefix` goes before every id and must be unique on the page.
    """
    root = ElementTree.fromstring(picture(figure, "svg", transparent=True))
    for parent in list(root.iter()):
        for child in list(parent):
            # matplotlib's style rule is for `*`: inside a page it would apply to the whole page.
            if child.tag in (f"{{{NAMESPACE}}}metadata", f"{{{NAMESPACE}}}style"):
                parent.remove(child)
    for element in root.iter():
        _adapt(element, prefix)
    _head(root, prefix, title, description)
    return ElementTree.tostring(root, encoding="unicode")


def _adapt(element: ElementTree.Element, prefix: str) -> None:
    element.tag = element.tag.removeprefix(f"{{{NAMESPACE}}}")
    for key, value in list(element.attrib.items()):
        if key == "id":
            element.set(key, f"{prefix}-{value}")
        elif key == LINK:
            del element.attrib[key]
            element.set("href", value.replace("#", f"#{prefix}-", 1))
        else:
            element.set(key, _painted(value.replace("url(#", f"url(#{prefix}-")))


def _painted(value: str) -> str:
    return re.sub(r"#[0-9a-f]{6}\b", lambda found: PAINT.get(found[0], found[0]), value)


def _head(root: ElementTree.Element, prefix: str, title: str, description: str) -> None:
    points = root.get("width", "").removesuffix("pt")
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    # A point in print is 4/3 CSS pixels.
    root.attrib |= {"xmlns": NAMESPACE, "width": f"{float(points) * 4 / 3:.0f}", **ROOT}
    root.set("aria-labelledby", f"{prefix}-title {prefix}-description")
    for place, (tag, identity, words) in enumerate(
        (("title", "title", title), ("desc", "description", description))
    ):
        element = ElementTree.Element(tag, {"id": f"{prefix}-{identity}"})
        element.text = words
        root.insert(place, element)
