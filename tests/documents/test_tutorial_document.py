"""`docs/tutorial.md`: what it says is done in order in an empty folder, with fewer examples."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import msbench
from msbench.cli import app

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
FEWER = {"train: 6000": "train: 200", "validation: 500": "validation: 40", "test: 1000": "test: 40"}


def give(command: str) -> str:
    """Give a command, and return what it prints."""
    words = shlex.split(command)
    assert words[0] == "msbench"
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code == 0, (command, done.stderr)
    return done.stdout


def test_it_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    suite, own = Path("mine.yaml"), Path("my_model.py")
    printed: dict[str, str] = {}
    for kind, block in BLOCKS:
        if kind == "yaml":
            text = suite.read_text(encoding="utf-8") + block if suite.exists() else block
            for given, fewer in FEWER.items():
                text = text.replace(given, fewer)
            suite.write_text(text, encoding="utf-8")
        elif kind == "python" and not own.exists():
            own.write_text(block, encoding="utf-8")
        elif kind == "python":
            exec(compile(block, "<tutorial>", "exec"), {})
        else:
            for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
                printed[command] = give(command)
    assert {path.name for path in tmp_path.iterdir()} >= {"mine.yaml", "my_model.py", "results", "reports"}
    table = printed["msbench report mine.yaml --versus mamba"]
    assert "my-gru" in table
    assert "mamba" in table
    frame = msbench.results()
    shown = frame[frame["train.lr"] == 3e-3]
    assert sorted(shown["model"]) == ["mamba", "mamba", "my-gru", "my-gru"]
    assert (frame["status"] == "finished").all()
    names = {path.name for path in Path("reports").iterdir()}
    assert {"report.html", "runs.csv", "mine.csv", "mine.tex"} <= names


def test_its_files_are_the_ones_that_it_names() -> None:
    assert [kind for kind, _ in BLOCKS] == [
        *("yaml", "console", "python", "yaml", "console", "console", "python")
    ]
