"""The locks of the images are complete, hashed, and of what pyproject.toml asks for now. Needs no network."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

REPOSITORY = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = ("build", "cpu", "cuda", "mamba")


def script() -> ModuleType:
    """``containers/lock.py``, which is no package's."""
    spec = importlib.util.spec_from_file_location("lock", REPOSITORY / "containers" / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOCK = script()


def text(name: str) -> str:
    return (REPOSITORY / "containers" / f"requirements-{name}.txt").read_text(encoding="utf-8")


def pins(name: str) -> dict[str, Version]:
    found = re.findall(r"(?m)^([A-Za-z0-9._-]+)==(\S+)", text(name))
    return {canonicalize_name(package): Version(version) for package, version in found}


def test_each_lock_is_used_and_there_are_no_others() -> None:
    assert {path.name for path in (REPOSITORY / "containers").glob("*.txt")} == {
        f"requirements-{name}.txt" for name in LOCKS
    }


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_is_pinned_and_hashed(name: str) -> None:
    logical = re.sub(r"\\\n", " ", text(name)).splitlines()
    lines = [line for line in logical if line and not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(r"[a-z0-9.-]+==[A-Za-z0-9.+]+(\s+--hash=sha256:[0-9a-f]{64})+\s*", line), line[
            :80
        ]
    assert len(lines) == len(pins(name))


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_of_what_is_asked_for_now(name: str) -> None:
    made_from = re.search(r"(?m)^# inputs: sha256:([0-9a-f]{64})$", text(name))
    assert made_from is not None
    assert made_from[1] == LOCK.digest(LOCK.asked(PROJECT, name)), (
        "pyproject.toml has changed: run `make lock`"
    )


@pytest.mark.parametrize("name", LOCKS)
def test_what_is_asked_for_is_satisfied(name: str) -> None:
    found = pins(name)
    for requirement in map(Requirement, LOCK.asked(PROJECT, name)):
        version = found[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement}: {version}"


def test_a_changed_requirement_makes_a_lock_stale() -> None:
    asked = LOCK.asked(PROJECT, "cuda")
    assert LOCK.digest([*asked[1:], asked[0] + ",!=2.14.0"]) != LOCK.digest(asked)
    assert LOCK.digest(asked[::-1]) == LOCK.digest(asked)  # their order says nothing


OF_THE_HOST = ("hub", "tensorboard", "wandb")
"""Extras that no image has: data are set up outside, and its network may be off."""


def test_every_extra_is_in_an_image_but_the_developers_and_the_hosts() -> None:
    extras = {
        name: set(map(canonicalize_name, (Requirement(each).name for each in found)))
        for name, found in PROJECT["project"]["optional-dependencies"].items()
    }
    for name in ("cpu", "cuda", "mamba"):
        assert all(extras[extra] <= set(pins(name)) for extra in LOCK.EXTRAS)
    assert extras["mamba"] <= set(pins("mamba"))
    assert set(extras) == {*LOCK.EXTRAS, "mamba", "dev", *OF_THE_HOST}


def test_the_image_with_mamba_ssm_is_the_cuda_image_and_more() -> None:
    assert pins("cuda").items() <= pins("mamba").items()


def test_cuda_is_of_one_version_and_the_cpu_image_has_none() -> None:
    found = pins("mamba")
    runtime, compiler = found["nvidia-cuda-runtime"], found["nvidia-cuda-nvcc"]
    assert runtime.release[:2] == compiler.release[:2] == found["cuda-toolkit"].release[:2]
    readme = (REPOSITORY / "containers" / "README.md").read_text(encoding="utf-8")
    assert f"CUDA {runtime.major}.{runtime.minor}" in readme
    assert pins("cpu")["torch"].local == "cpu"
    assert not any(package.startswith(("nvidia-", "cuda-", "triton")) for package in pins("cpu"))


@pytest.mark.parametrize("name", LOCKS)
def test_no_index_or_folder_of_whoever_made_a_lock_is_in_it(name: str) -> None:
    assert not re.search(r"(?m)^\s*-|://|file:|/opt/", re.sub(r"\s--hash=\S+", "", text(name)))


def test_a_lock_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "requirements-build.txt"
    old.write_text("old\n", encoding="utf-8")
    monkeypatch.setattr(LOCK, "HERE", tmp_path)
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(LOCK.subprocess.CalledProcessError):
        LOCK.resolve("build", PROJECT, [])
    assert old.read_text(encoding="utf-8") == "old\n"
