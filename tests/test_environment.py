"""The record of a machine, and the report of doctor."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from msbench import environment
from msbench.cli.measure import describe_machine
from msbench.environment import choose_accelerator, describe_environment, measure_free_memory, read_git_state
from msbench.errors import ConfigError


def test_the_record_is_plain_json_and_names_versions() -> None:
    found = json.loads(json.dumps(describe_environment(), allow_nan=False))
    assert {"python", "platform", "cpu", "threads", "gpus", "packages", "git"} <= set(found)
    assert {"torch", "lightning-fabric", "numpy"} <= set(found["packages"])


def test_the_state_of_the_checkout_is_known_or_absent() -> None:
    state = read_git_state()
    assert state is None or (len(state["commit"]) == 40 and isinstance(state["dirty"], bool))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of somebody's, below which the package lies untracked."""
    run_git(tmp_path, "init", "-q")
    package = tmp_path / "lib" / "msbench"
    package.mkdir(parents=True)
    (package / "environment.py").touch()
    (tmp_path / "notes").touch()
    run_git(tmp_path, "add", "notes")
    run_git(tmp_path, "commit", "-qm", "notes")
    monkeypatch.setattr(environment, "__file__", str(package / "environment.py"))
    return tmp_path


def run_git(folder: Path, *words: str) -> str:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(folder), *names, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=own).stdout.strip()


def test_a_repository_around_the_package_is_not_its_own(repository: Path) -> None:
    assert read_git_state() is None
    run_git(repository, "add", "lib")
    run_git(repository, "commit", "-qm", "package")
    assert read_git_state() == {"commit": run_git(repository, "rev-parse", "HEAD"), "dirty": False}
    (repository / "lib" / "msbench" / "environment.py").write_text("changed")
    assert read_git_state() == {"commit": run_git(repository, "rev-parse", "HEAD"), "dirty": True}


def test_variables_of_git_name_no_other_repository(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_git(repository, "add", "lib")
    run_git(repository, "commit", "-qm", "package")
    expected = read_git_state()
    other = tmp_path_factory.mktemp("other")
    run_git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / "index"))
    assert expected is not None
    assert read_git_state() == expected


def test_doctor_says_which_kernel_runs() -> None:
    found = dict(describe_machine())
    assert found["scan on cpu"]
    assert "threads" in found["cpu"]
    assert found["data"].endswith("free")


def test_an_impossible_device_is_refused() -> None:
    assert choose_accelerator("cpu") == "cpu"
    with pytest.raises(ConfigError, match="did you mean 'cuda'"):
        choose_accelerator("cudo")
    if not torch.cuda.is_available():
        assert choose_accelerator("auto") == "cpu"
        with pytest.raises(ConfigError, match="no CUDA device"):
            choose_accelerator("cuda")


def test_free_memory_is_a_plausible_number_of_bytes() -> None:
    assert 2**20 < measure_free_memory("cpu") < 2**50
