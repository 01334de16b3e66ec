"""Suites with a user's own models: the id follows their source, wherever that is; other processes find it."""

import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from msbench.cli import app
from msbench.config import RunSpec
from msbench.errors import ConfigError
from msbench.results.store import read_records
from msbench.runs.identity import identify
from msbench.runs.reproduce import dump_spec, resolve_record
from msbench.runs.suite import load_suite, resolve_specs

GRU = '''
"""A GRU."""

import torch
from torch import nn
from parts_of_gru import scale
from msbench.config import ClassifierConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import build_classifier


class GruConfig(ClassifierConfig):
    """Options."""

    gain: float = 1.0

    @property
    def doubled(self):
        return 2 * self.gain


class Gru(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gru, self.gain = nn.GRU(config.d_model, config.d_model, batch_first=True), config.doubled

    def forward(self, x, lengths):
        return scale(self.gru(x)[0], self.gain)


def build(config: GruConfig, info: TaskInfo):
    return build_classifier(config, info, lambda: Gru(config))


def unused():
    return 1
'''
PARTS = "def scale(x, gain):\n    return gain * x\n"


@pytest.fixture
def own(tiny_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite with a model of the user's, in a file that imports another one."""
    forget_modules(monkeypatch)
    text = tiny_file.read_text(encoding="utf-8")
    tiny_file.write_text(text + '  gru: {use: "./gru.py:build", model: {gain: 0.5}}\n', encoding="utf-8")
    (tiny_file.parent / "gru.py").write_text(GRU, encoding="utf-8")
    (tiny_file.parent / "parts_of_gru.py").write_text(PARTS, encoding="utf-8")
    return tiny_file


def spec(file: Path) -> RunSpec:
    return resolve_specs(load_suite(file), ["gru"])[0]


def copy(own: Path, name: str, *edits: tuple[str, str, str]) -> Path:
    """The same suite in another folder, as another user would have it, after edits of its files."""
    folder = own.parent / name
    folder.mkdir()
    for file in ("tiny.yaml", "gru.py", "parts_of_gru.py"):
        shutil.copy(own.parent / file, folder)
    for file, old, new in edits:
        text = (folder / file).read_text(encoding="utf-8")
        assert text.count(old) == 1
        (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    return folder / "tiny.yaml"


def forget_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave this process as one that has loaded none of these files."""
    monkeypatch.delitem(sys.modules, "parts_of_gru", raising=False)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if "pytest-of" not in each])


def own_id(file: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id that another process would give: no module of another folder is loaded."""
    forget_modules(monkeypatch)
    return identify(spec(file), "").run_id


def test_the_id_is_of_the_source_and_not_of_its_place(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = own_id(own, monkeypatch)
    assert own_id(copy(own, "same"), monkeypatch) == known
    renamed = copy(own, "renamed", ("tiny.yaml", "./gru.py", "./my_gru.py"))
    (renamed.parent / "gru.py").rename(renamed.parent / "my_gru.py")
    assert own_id(renamed, monkeypatch) == known
    found = identify(spec(own), "")
    assert {"own/gru.py", "own/parts_of_gru.py", "models/classifier.py", "training/loop.py"} <= set(
        found.files
    )
    assert str(own.parent) not in f"{found}{dump_spec(spec(own))}"


@pytest.mark.parametrize(
    ("edit", "same"),
    [
        (("gru.py", '"""A GRU."""', '"""Words."""'), True),
        (("gru.py", "    return 1\n", "    return 2\n"), True),
        (("gru.py", "self.gru(x)[0]", "-self.gru(x)[0]"), False),
        (("gru.py", "return 2 * self.gain", "return 3 * self.gain"), False),
        (("parts_of_gru.py", "gain * x", "gain * x + 1"), False),
        (("tiny.yaml", "gain: 0.5", "gain: 0.25"), False),
    ],
)
def test_a_change_of_what_the_model_reaches_changes_the_id(
    own: Path, edit: tuple[str, str, str], same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = own_id(own, monkeypatch)
    assert (own_id(copy(own, "edited", edit), monkeypatch) == known) == same


def test_source_that_cannot_be_followed_is_one_error(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edited = copy(own, "star", ("gru.py", "import scale", "import *"))
    with pytest.raises(
        ConfigError, match=r"tiny.yaml:\d+: model.use: .*the run's id needs all of its source"
    ):
        own_id(edited, monkeypatch)


def test_a_faulty_suite_names_file_line_and_key(own: Path) -> None:
    text = own.read_text(encoding="utf-8")
    own.write_text(text.replace("./gru.py:build", "../gru.py:build"), encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"tiny.yaml:\d+: models.gru.use: .*is not next to the suite.*give its whole path"
    ):
        load_suite(own)
    own.write_text(text.replace("mamba: {}", 'mamba: {use: "./gru.py:build"}'), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tiny.yaml:\d+: model.use: mamba is a model of msbench"):
        load_suite(own)
    own.write_text(text.replace('use: "./gru.py:build", ', ""), encoding="utf-8")
    with pytest.raises(ConfigError, match="unknown model 'gru'"):
        load_suite(own)


def test_other_processes_train_it_and_its_record_finds_it_again(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = own.parent / "results"
    words = ["run", str(own), "--model", "gru", "--jobs", "2", "--results", str(results), "--quiet"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    (record,), warnings = read_records(results)
    assert warnings == []
    assert record.run_id == identify(spec(own), record.data_digest).run_id
    assert record.spec["model"]["use"] == "gru.py:build"
    monkeypatch.chdir(results)
    assert resolve_record(record).digest == record.spec_digest
    (own.parent / "gru.py").unlink()
    with pytest.raises(ConfigError, match=rf"run {record.run_id}: model.use: gru.py:build: there is no file"):
        resolve_record(record)
    for verb in (["show", "tiny:listops-tiny:gru", "--suite", str(own)], ["list", "runs"]):
        shown = CliRunner().invoke(app, [*verb, "--results", str(results)])
        assert shown.exit_code == 0, shown.stderr
        assert "gru" in shown.stdout
