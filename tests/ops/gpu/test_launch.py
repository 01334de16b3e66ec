"""What a Triton kernel needs: named where it is missing."""

import os
import shutil
import sysconfig
from pathlib import Path

import pytest

from msbench.ops.gpu.launch import find_lacking


@pytest.fixture(autouse=True)
def complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with all of it."""
    (tmp_path / "Python.h").touch()
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name == "gcc" else None)
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))


def test_nothing_is_missing() -> None:
    assert find_lacking() == ""


def test_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert find_lacking().startswith("no C compiler is installed: install gcc")
    monkeypatch.setenv("CC", "nowhere/cc")
    assert find_lacking().startswith("CC is nowhere/cc, which cannot be run")


def test_headers(tmp_path: Path) -> None:
    (tmp_path / "Python.h").unlink()
    assert find_lacking().startswith(f"there is no {tmp_path}/Python.h: install Python's headers")


def test_a_folder_for_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (tmp_path, os.W_OK))
    assert find_lacking().startswith(f"kernels cannot be stored in {tmp_path}/cache: set TRITON_CACHE_DIR")
