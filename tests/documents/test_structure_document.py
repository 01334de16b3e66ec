"""`docs/structure.md`: a map is of use if every folder is on it and every file that it names is there."""

import re
from pathlib import Path

import pytest

import msbench

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(msbench.__file__).parent
TEXT = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
PARAGRAPHS = [text for text in TEXT.split("\n\n") if text.strip()]


def find_paragraph(room: str) -> str:
    """The paragraph of a room begins with its name in bold."""
    found = [text for text in PARAGRAPHS if text.startswith(f"**`{room}/`**")]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_has_a_row_and_a_paragraph_whose_files_exist(room: str) -> None:
    assert f"| `{room}/` |" in TEXT
    for name in re.findall(r"`([\w/]+\.py|\w+/)`", find_paragraph(room)):
        places = [PACKAGE / name, PACKAGE / room / name, *(PACKAGE / room).rglob(name)]
        assert any(place.exists() for place in places), name


def test_every_path_elsewhere_exists() -> None:
    rooms = set(map(find_paragraph, ROOMS))
    text = "\n\n".join(text for text in PARAGRAPHS if text not in rooms)
    launchers = PACKAGE / "runs" / "launchers"
    for name in re.findall(r"`([\w/]+\.(?:py|json|yaml)|\w+/(?:\w+/)*)`", text):
        places = [PACKAGE / name, launchers / name, ROOT / name, PACKAGE / "config" / name]
        assert any(place.exists() for place in places) or name in ("run.json", "msbench/"), name


def test_names_of_the_code_exist() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    for name in re.findall(r"`([A-Z][A-Za-z]+)`", TEXT):
        assert re.search(rf"\b(class {name}\b|{name}\b.* = )", source), name
