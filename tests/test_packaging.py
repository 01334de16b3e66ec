"""The distribution: its name, what is in the sdist, and where its files are found."""

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from msbench.errors import DISTRIBUTION, explain_extra

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
INSTALLED = re.compile(r"pip install (?:-\S+ )*'?(msbench|msssm-bench)\b(?:\[([\w,]+)\])?")


def list_tracked() -> list[str]:
    """Return the files that git knows; skip the test where there is no checkout."""
    done = subprocess.run(["git", "-C", str(REPOSITORY), "ls-files", "-z"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("no git checkout")
    return [name for name in done.stdout.split("\0") if name and (REPOSITORY / name).exists()]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's folder without the compiled library, as a wheel has it: its links are files."""
    folder = tmp_path_factory.mktemp("tree")
    for name in (each for each in list_tracked() if each.startswith("msbench/")):
        path = REPOSITORY / name
        for source in path.iterdir() if path.is_dir() else [path]:
            place = folder / source.relative_to(REPOSITORY)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(source.read_bytes())
    return folder


def test_the_name_is_the_projects_own() -> None:
    assert PROJECT["name"] == DISTRIBUTION != "msbench"
    assert PROJECT["scripts"] == {"msbench": "msbench.cli:main"}
    for extra in ("hub", "slurm", "peers"):
        assert extra in PROJECT["optional-dependencies"]
        assert explain_extra(extra) == f"pip install '{DISTRIBUTION}[{extra}]'"


def test_no_text_installs_another_project() -> None:
    texts = [REPOSITORY / name for name in list_tracked() if name.endswith((".md", ".py", ".yaml", ".yml"))]
    found = [
        (path.name, match[1], match[2])
        for path in texts
        if path != Path(__file__)
        for match in INSTALLED.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found, "the docs name the distribution"
    for name, distribution, extras in found:
        assert distribution == DISTRIBUTION, name
        assert set((extras or "hub").split(",")) <= PROJECT["optional-dependencies"].keys(), name


def test_the_sdist_is_the_checkout(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", "77")
    tracked = list_tracked()
    checkout = tmp_path / "checkout"
    for name in tracked:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        if (REPOSITORY / name).is_symlink():
            (checkout / name).symlink_to(os.readlink(REPOSITORY / name))
        else:
            os.link(REPOSITORY / name, checkout / name)
    code = f"from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=checkout, check=True, capture_output=True)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {member.name.partition("/")[2] for member in sdist.getmembers() if not member.isdir()}
    links = {name for name in tracked if (checkout / name).is_symlink()}
    assert set(tracked) - links - names == set()
    assert {f"{link}/{path.name}" for link in links for path in (checkout / link).glob("*.[cy]*")} <= names


@pytest.mark.parametrize("zipped", [False, True])
def test_files_are_found_wherever_the_package_is(zipped: bool, package: Path, tmp_path: Path) -> None:
    place = package
    if zipped:
        place = tmp_path / "msbench.zip"
        with zipfile.ZipFile(place, "w") as archive:
            for path in sorted(package.rglob("*")):
                archive.write(path, path.relative_to(package))
    code = (
        "import msbench, msbench.runs.identity as identity\n"
        "from msbench.results.files import find_own_folder\n"
        "assert msbench.__file__.startswith(PLACE), msbench.__file__\n"
        "assert 'quick.yaml' in [path.name for path in find_own_folder('suites').iterdir()]\n"
        "assert all(any(find_own_folder(name).iterdir()) for name in ('reported', 'baseline'))\n"
        "print(identity.TREE.digest_definition(['msbench.models.mamba']).digest)\n"
    ).replace("PLACE", repr(str(place)))
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(place)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    from msbench.runs.identity import TREE

    assert found.stdout.strip() == TREE.digest_definition(["msbench.models.mamba"]).digest


def test_python_3_13_0_compiles_every_docstring() -> None:
    """Its compiler refuses one that cannot be encoded, such as with the escape of a byte that is no UTF-8."""
    for path in (REPOSITORY / "msbench").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                (ast.get_docstring(node, clean=False) or "").encode()
