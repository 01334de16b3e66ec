"""Texts from files, through a real verb: no line that is printed is a command to GitHub Actions."""

import io
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TINY_SUITE
from typer.testing import CliRunner

from msbench.cli import app
from msbench.datasets import manifest

HOSTILE = "x\n::error::owned\n  ::add-mask::1 ##[error]owned"
OBEYED = re.compile(r"^\s*::|##\[", re.MULTILINE)
"""What its runner obeys."""


def write_suite(text: str) -> Path:
    path = Path("hostile.yaml")
    path.write_text(text, encoding="utf-8")
    return path


def name_a_key() -> list[str]:
    return ["run", str(write_suite(f"{TINY_SUITE}{json.dumps(HOSTILE)}: 1\n")), "--dry-run"]


def name_a_setting() -> list[str]:
    text = TINY_SUITE.replace("{d_model: 8", f"{{{json.dumps(HOSTILE)}: 8")
    return ["run", str(write_suite(text)), "--dry-run"]


def name_a_model() -> list[str]:
    return ["explain", str(write_suite(TINY_SUITE.replace("mamba:", f"{json.dumps(HOSTILE)}:")))]


def name_a_member(name: str) -> list[str]:
    with tarfile.open("hostile.tar", "w") as archive:
        member = tarfile.TarInfo(name)
        member.size = 1
        archive.addfile(member, io.BytesIO(b"x"))
    return ["setup", "cifar10", "--from", "hostile.tar"]


def note_in_a_manifest() -> list[str]:
    words = ["setup", str(write_suite(TINY_SUITE))]
    assert CliRunner().invoke(app, words).exit_code == 0
    (path,) = Path("data").rglob(manifest.MANIFEST)
    facts = json.loads(path.read_bytes()) | {"notes": [HOSTILE]}
    path.write_text(json.dumps(facts | {"checksum": manifest._compute_checksum(facts)}), encoding="utf-8")
    return words


@pytest.mark.parametrize(
    "make",
    [
        *(name_a_key, name_a_setting, name_a_model, note_in_a_manifest),
        lambda: name_a_member(f"{HOSTILE}/test_batch.bin"),
        lambda: name_a_member(f"../{HOSTILE}"),
    ],
    ids=["key", "setting", "model", "notes", "member", "member elsewhere"],
)
def test_no_text_of_a_file_is_a_command(
    make: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MSBENCH_DATA", "data")
    done = CliRunner().invoke(app, make())
    shown = done.stdout + done.stderr
    assert "owned" in shown
    assert not OBEYED.search(shown)
