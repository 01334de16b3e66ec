"""`docs/datasets.md`: every dataset has its section, and there every option that it has."""

import re
from pathlib import Path
from typing import Any

import pytest

from msbench.config import DATASETS

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "datasets.md").read_text(encoding="utf-8")
SECTIONS: dict[tuple[str, ...], str] = {
    tuple(re.findall(r"\(`(\w+)`\)", title)): body
    for title, body in re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", TEXT, re.MULTILINE)
}
"""What is said under a heading, by the datasets that it names."""
SETTING = re.compile(r"`data\.(\w+): ([\w.-]+)`")
REQUIRED: dict[tuple[str, str], dict[str, Any]] = {
    ("documented_distractors", "true"): {"size": 128},
    ("crop_step", "125"): {"crop": 250},
    ("pixels", "tokens"): {"colour": "grey"},
    ("standardisation", "mega"): {"colour": "grey"},
}
"""Other options that an option requires."""


def section(name: str) -> str:
    (found,) = [body for names, body in SECTIONS.items() if name in names]
    return found


def fields(name: str) -> list[str]:
    return [field for field in DATASETS[name].model_fields if field != "dataset"]


def test_every_dataset_has_one_section_and_no_other_has() -> None:
    assert sorted(name for names in SECTIONS for name in names) == sorted(DATASETS)


@pytest.mark.parametrize(("name", "option"), [(name, option) for name in DATASETS for option in fields(name)])
def test_every_option_has_its_line(name: str, option: str) -> None:
    assert re.search(rf"`data\.{option}\b", section(name)), f"docs/datasets.md, {name}: data.{option}"


@pytest.mark.parametrize("names", [names for names in SECTIONS if names], ids="-".join)
def test_a_setting_can_be_set(names: tuple[str, ...]) -> None:
    """In the section of two datasets, of one of them."""
    for option, text in SETTING.findall(section(names[0])):
        owner = next(DATASETS[name] for name in names if option in DATASETS[name].model_fields)
        required = REQUIRED.get((option, text), {})
        assert getattr(owner.model_validate({**required, option: value(text)}), option) == value(text)


def value(text: str) -> bool | float | str:
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"[0-9.]+", text):
        return float(text) if "." in text else int(text)
    return text


@pytest.mark.parametrize("names", [names for names in SECTIONS if names], ids="-".join)
def test_our_protocol_is_the_default(names: tuple[str, ...]) -> None:
    """In the second column; a setting that goes with another one is not looked at."""
    rows = [line.split(" | ") for line in section(names[0]).splitlines() if line.startswith("| ")]
    assert all(len(row) == 4 for row in rows), names
    said = [found for row in rows[1:] if " under `" not in row[1] for found in SETTING.findall(row[1])]
    assert said
    for option, text in said:
        defaults = [
            DATASETS[name].model_fields[option].default
            for name in names
            if option in DATASETS[name].model_fields
        ]
        assert any(default in (value(text), None) for default in defaults), (names, option, text)
