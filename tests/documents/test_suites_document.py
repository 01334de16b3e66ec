"""`docs/suites.md`: its suite can be loaded, and has the settings that the page says."""

import re
from pathlib import Path

import pytest

from msbench.config import MODELS
from msbench.config.base import ClassifierConfig
from msbench.errors import ConfigError
from msbench.runs.suite import Suite, list_paths, load_suite, resolve_specs

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "suites.md").read_text(encoding="utf-8")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    [suite] = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    path = tmp_path / "my-scifar.yaml"
    path.write_text(suite, encoding="utf-8")
    return path


@pytest.fixture
def suite(file: Path) -> Suite:
    return load_suite(file)


def test_its_runs_have_the_settings_that_the_page_says(suite: Suite) -> None:
    specs = {(spec.task, spec.model_name): spec for spec in resolve_specs(suite)}
    assert set(specs) == {(t, m) for t in ("colour", "grey") for m in ("s4d-lin", "mamba")} | {
        ("colour", "s4d-inv")
    }
    linear, mamba = specs["grey", "s4d-lin"], specs["grey", "mamba"]
    assert (linear.train.epochs, linear.train.ssm_lr) == (5, 5e-4)
    assert (mamba.train.epochs, mamba.train.ssm_lr, mamba.train.lr) == (5, None, 1e-3)
    assert specs["colour", "s4d-inv"].train.ssm_lr == 1e-3
    assert suite.own_settings == {("colour", "mamba"), ("grey", "mamba")}


def test_its_places_are_in_the_order_of_the_code() -> None:
    said = re.findall(r"`((?:families|models|tasks)\.<[^`]*)`", TEXT.partition("What is set nowhere")[0])
    paths = list_paths("<task>", "s4d-lin")[1:]
    named = [".".join(path).replace("s4d-lin", "<model>").replace("s4d", "<family>") for path in paths]
    assert said == named


def test_a_setting_of_some_models_is_refused_for_all(file: Path) -> None:
    named = re.findall(r"setting of some models \(([^)]*)\)", TEXT)[0]
    keys = re.findall(r"`(\w+)`", named)
    assert len(keys) > 2
    assert set(keys).isdisjoint(ClassifierConfig.model_fields)
    assert all(any(key in entry.config.model_fields for entry in MODELS.values()) for key in keys)
    text = file.read_text(encoding="utf-8")
    for key in keys:
        file.write_text(text.replace("{d_model: 64,", f"{{{key}: 4,"), encoding="utf-8")
        with pytest.raises(ConfigError, match=rf"my-scifar\.yaml:8: model\.{key}: is not a setting of every"):
            load_suite(file)
