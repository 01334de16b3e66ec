"""A user's own model is found by its place, and what is wrong with it is one error that names the line."""

import sys
from pathlib import Path

import pytest

from msbench.config import ClassifierConfig
from msbench.config.layers import LocatedValues
from msbench.config.own import derive_config, find_own
from msbench.config.run import resolve_model
from msbench.config.strict_yaml import KeyPath
from msbench.errors import ConfigError

MODEL = '''
from __future__ import annotations
from msbench.config import ClassifierConfig

class Options(ClassifierConfig):
    """Options."""

    width: int = 3

def build(config: Options, info: object) -> object:
    return config.width

def three(config: Options, info: object, more: int) -> None: ...
def bare(config, info) -> None: ...
def later(config: Unknown, info: object) -> None: ...

CONSTANT = 3
'''


def resolve(folder: Path, use: object, **values: object) -> ClassifierConfig:
    found = f"{folder}/{use}" if isinstance(use, str) and use.startswith("model") else use
    origins: dict[KeyPath, str] = {("use",): "suite.yaml:7", ("width",): "suite.yaml:8"}
    return resolve_model("mine", LocatedValues({"use": found, **values}, origins, "suite.yaml", ("model",)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    return tmp_path


def test_the_settings_are_the_class_that_the_function_takes(folder: Path) -> None:
    config = resolve(folder, "model.py:build", width=5, d_model=8)
    assert config.model_dump()["width"] == 5
    assert config.model_dump()["use"] == "model.py:build"
    code = find_own(config)
    assert code is not None
    assert code.function(config, None) == 5
    assert code.location == f"{folder}/model.py:build"


def test_a_file_is_imported_once_and_its_folder_is_in_its_name(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "model.py").write_text(MODEL.replace("= 3", "= 4"), encoding="utf-8")
    first, again = (type(resolve(folder, "model.py:build")) for _ in range(2))
    assert first is again
    assert type(resolve(other, "model.py:build")) is not first
    assert [resolve(each, "model.py:build").model_dump()["width"] for each in (folder, other)] == [3, 4]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ("model.py:biuld", "there is no 'biuld' in it; did you mean 'build'?"),
        ("model.py:three", "must take (config, info), where config is annotated with ClassifierConfig"),
        ("model.py:bare", "must take (config, info), where config is annotated with ClassifierConfig"),
        ("model.py:later", "name 'Unknown' is not defined"),
        ("model.py:CONSTANT", "must take (config, info)"),
        ("model_b.py:build", "there is no file"),
        ("no_such_package.models:build", "there is no module no_such_package, neither installed nor here"),
        ("json.no_such_module:build", "there is no module json.no_such_module"),
        ("./model:build", "./model is no module; a file ends in .py: ./model.py"),
        ("models/model:build", "models/model is no module; a file ends in .py"),
        ("nothing", 'must have the form "PACKAGE.MODULE:NAME" or "./FILE.py:NAME"'),
        (3, "must be text (in quotes), not 3"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(folder: Path, use: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(folder, use)
    assert str(caught.value).startswith("suite.yaml:7: model.use: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import math\nimport no_such_thing\n", "No module named 'no_such_thing' (model.py, line 2)"),
        ("x = 1 / 0\n", "ZeroDivisionError: division by zero (model.py, line 1)"),
        ("def build(:\n", "SyntaxError: invalid syntax (model.py, line 1)"),
        ("raise SystemExit(0)\n", "SystemExit: 0 (model.py, line 1)"),
    ],
)
def test_a_file_that_cannot_be_imported_names_its_line(folder: Path, text: str, message: str) -> None:
    (folder / "model.py").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        resolve(folder, "model.py:build")
    assert message in str(caught.value)
    assert str(caught.value).count("line ") == 1
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    assert resolve(folder, "model.py:build").model_dump()["width"] == 3


def test_options_are_strict(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"^suite.yaml:8: model.width: must be a whole number, not '5'$"):
        resolve(folder, "model.py:build", width="5")
    with pytest.raises(ConfigError, match="unknown key of model 'mine'; did you mean 'width'"):
        resolve(folder, "model.py:build", widht=5)


def test_a_name_of_msbench_is_refused(folder: Path) -> None:
    part = LocatedValues({"use": f"{folder}/model.py:build"}, {("use",): "suite.yaml:7"}, "suite.yaml")
    with pytest.raises(ConfigError, match=r"suite.yaml:7: use: mamba is a model of msbench"):
        resolve_model("mamba", part)


def test_a_module_next_to_the_file_is_not_mixed_up_with_another_of_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import helpers_of_mine\n" + MODEL.replace("from __future__ import annotations\n", "").replace(
        "Unknown", "Options"
    )
    places = [folder / "a", folder / "b"]
    for place in places:
        place.mkdir()
        (place / "model.py").write_text(text, encoding="utf-8")
        (place / "helpers_of_mine.py").write_text("WIDTH = 3\n", encoding="utf-8")
    monkeypatch.delitem(sys.modules, "helpers_of_mine", raising=False)
    assert resolve(places[0], "model.py:build")
    assert resolve(places[1], "model.py:build")  # a copy
    (places[1] / "helpers_of_mine.py").write_text("WIDTH = 4\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"imports helpers_of_mine from .*/a/helpers_of_mine.py, not from"):
        resolve(places[1], "model.py:three")


def test_a_package_is_found_in_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "my_package_here").mkdir()
    (folder / "my_package_here" / "__init__.py").write_text("", encoding="utf-8")
    (folder / "my_package_here" / "model.py").write_text(MODEL, encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    config = resolve(folder, "my_package_here.model:build")
    code = find_own(config)
    assert code is not None
    assert code.reference == code.location == "my_package_here.model:build"
    assert dict(code.sources) == {"my_package_here": folder / "my_package_here"}


def test_msbenchs_own_settings_have_no_code() -> None:
    assert find_own(ClassifierConfig()) is None


def test_a_dataset_is_an_object_with_a_name_and_fill(folder: Path) -> None:
    part = LocatedValues({"use": "x"}, {("use",): "suite.yaml:4"}, "suite.yaml", ("data",))
    with pytest.raises(ConfigError, match=r"suite.yaml:4: data.use: .*must be an ArchiveDataset, not int"):
        derive_config(part, f"{folder}/model.py:CONSTANT", "dataset")
