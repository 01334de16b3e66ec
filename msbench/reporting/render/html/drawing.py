"""Embedding of an SVG document in a page: with unique ids, without scripts or external references."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass

REFERENCE = re.compile(r"url\(\s*['\"]?#([^'\")]+)['\"]?\s*\)")
OUTSIDE = re.compile(r"url\((?!\s*['\"]?(#|data:image/))|@import", re.IGNORECASE)
LISTS_OF_IDS = ("aria-labelledby", "aria-describedby")
REFUSED = ("script", "foreignObject", "iframe", "animate", "set", "a")


@dataclass(frozen=True)
class Figure:
    """A drawing as the text of an SVG document, whose text is best drawn in ``currentColor``."""

    title: str
    caption: str
    svg: str


def inlined(svg: str, prefix: str) -> str:
    """Return `svg` as an element of a page, its ids prefixed with `prefix` and its styles scoped to it.

    Raises ValueError where it contains a script, an event handler, or an external reference.
    """
    root = ET.fromstring(svg)
    for parent in root.iter():
        for child in [child for child in parent if _local(child.tag) == "metadata"]:
            parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        if element.tag in REFUSED:
            raise ValueError(f"a figure may hold no <{element.tag}>")
        element.attrib = dict(_attributes(element, prefix))
        if element.text and element.tag == "style":
            # Its rules would apply to the whole page; nested, they apply to this drawing only.
            element.text = f"#{prefix}root {{ {_own(element.text, prefix)} }}"
    root.attrib |= {"id": f"{prefix}root", "role": "img"}
    return ET.tostring(root, encoding="unicode")


def _attributes(element: ET.Element, prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in element.attrib.items():
        local = _local(name)
        if local.lower().startswith("on"):
            raise ValueError(f"a figure may hold no handler: {local}")
        if local == "id":
            yield local, prefix + value
        elif local in LISTS_OF_IDS:
            yield local, " ".join(prefix + identity for identity in value.split())
        elif local == "href":
            if not value.startswith(("#", "data:image/")):
                raise ValueError(f"a figure may refer to nothing outside itself: {value}")
            yield local, f"#{prefix}{value[1:]}" if value.startswith("#") else value
        else:
            yield local, _own(value, prefix)


def _own(text: str, prefix: str) -> str:
    """Return CSS or a presentation attribute with its references prefixed."""
    if OUTSIDE.search(text):
        raise ValueError(f"a figure may refer to nothing outside itself: {text[:60]}")
    return REFERENCE.sub(rf"url(#{prefix}\1)", text)


def _local(name: object) -> str:
    """Return the name without its namespace."""
    return str(name).rpartition("}")[2]
