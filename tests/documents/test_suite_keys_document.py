"""`docs/suite-keys.md` is what the classes of the settings give now, and has every key."""

import re
from pathlib import Path

from pydantic import BaseModel
from suite_keys import MEANINGS, make_page

from msbench.config import DATASETS, MODELS
from msbench.config.run import TrainConfig
from msbench.runs import suite_file

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "suite-keys.md").read_text(encoding="utf-8")


def test_the_page_is_up_to_date() -> None:
    assert make_page() == TEXT, "python tests/suite_keys.py > docs/suite-keys.md"


def test_every_key_is_on_it() -> None:
    classes: list[type[BaseModel]] = [
        suite_file.SuiteFile,
        suite_file.GateSettings,
        suite_file.ModelLayer,
        TrainConfig,
    ]
    keys = set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE))
    classes += [*DATASETS.values(), *(entry.config for entry in MODELS.values())]
    for cls in classes:
        assert set(cls.model_fields) <= keys
    assert all(f"`{name}`" in TEXT for name in (*DATASETS, *MODELS))


def test_meanings_are_of_keys_that_have_no_other() -> None:
    assert all(f"| {meaning} |" in TEXT for meaning in MEANINGS.values())
