"""`docs/paper.md`: every open point has a line, and every option that it names is there."""

import re
from pathlib import Path

import pytest

from msbench.config import TrainConfig
from msbench.config.selective import MsSsmConfig

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "paper.md").read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if re.match(r"\| (?!question)", line)]
REQUIRED = {
    "learned_b": {"ssm": "s4"},
    "mixer_bias": {"mixer_init": "default"},
    "ssm_input": {"parameters_from": "stream"},
}
"""Other options that an option requires."""
SETTINGS = re.findall(r"`(?:(?:model|train)\.)?([a-z_]+)(?:: |=)([a-z0-9.-]+)`", TEXT)


def test_no_point_is_left_out() -> None:
    assert len(ROWS) >= 37
    assert all(len(re.split(r"(?<!\\)\|", row)) == 6 for row in ROWS)


@pytest.mark.parametrize(("key", "text"), sorted(set(SETTINGS)))
def test_a_setting_can_be_set(key: str, text: str) -> None:
    value = {"true": True, "false": False}.get(text, text)
    if isinstance(value, str) and re.fullmatch(r"[0-9.]+", value):
        value = float(value) if "." in value else int(value)  # type: ignore[assignment]
    owner = MsSsmConfig if key in MsSsmConfig.model_fields else TrainConfig
    assert getattr(owner.model_validate({**REQUIRED.get(key, {}), key: value}), key) == value


@pytest.mark.parametrize("name", sorted(MsSsmConfig.model_fields))
def test_every_option_of_the_layer_has_its_line(name: str) -> None:
    assert re.search(rf"`[^`]*\b{name}\b[^`]*`", TEXT), name


def test_our_reading_is_the_default() -> None:
    """Rows of the ablation and the settings of a task depart from it on purpose."""
    readings = [row.split(" | ")[1] for row in ROWS if not re.match(r"\| (row \d|norm|expansion)", row)]
    said = dict(re.findall(r"`([a-z_]+): ([a-z-]+)`", "\n".join(readings)))
    defaults = MsSsmConfig().model_dump()
    assert len(said) > 12
    assert {key: str(defaults[key]).lower() for key in said} == said
