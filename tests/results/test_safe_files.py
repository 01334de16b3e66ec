"""Safe reading of files, and the folders of an installed package."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from msbench.results import files, reported
from msbench.results.files import encode_csv, parse_json, read_bytes, require_regular

REPOSITORY = Path(__file__).resolve().parents[2]


def make(path: Path, kind: str) -> None:
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's list of open files")
@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_ordinary_file_is_refused_and_closed(tmp_path: Path, kind: str) -> None:
    make(tmp_path / "x", kind)
    before = len(os.listdir("/proc/self/fd"))
    for read in (read_bytes, require_regular):
        with pytest.raises(OSError, match="not a regular file"):
            read(tmp_path / "x")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    require_regular(tmp_path / "x")
    assert read_bytes(tmp_path / "x", 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_bytes(tmp_path / "x", 4)


def test_what_is_nested_too_deeply_is_an_error() -> None:
    assert parse_json(b'{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 10**5)
    for depth in (65, 400, 900):  # Python would read these, but not every function could follow them
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json("[" * depth + "]" * depth)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\r\nb\n\nc", ["a", "b", "", "c"]),
        ("a\x0bb\x0cc\x1cd\x85e\u2028f\rg\n", ["a\x0bb\x0cc\x1cd\x85e\u2028f\rg"]),
    ],
)
def test_lines_end_at_line_feeds_alone(text: str, lines: list[str]) -> None:
    assert files.list_lines(text) == lines


@pytest.mark.parametrize(
    ("name", "kept"),
    [("suites", "suites"), ("reported", "results/reported"), ("baseline", "results/baseline")],
)
def test_a_checkout_has_each_file_once(name: str, kept: str) -> None:
    assert files.find_own_folder(name) == REPOSITORY / kept


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the checkout, without the C++ kernels."""
    pytest.importorskip("setuptools", minversion="77")
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, copy)
    for name in ("msbench", "suites", "results/reported", "results/baseline"):
        shutil.copytree(
            REPOSITORY / name,
            copy / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("*.so", "__pycache__"),
        )
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, str(copy / "dist")],
        cwd=copy,
        env={**os.environ, "CC": "false", "CXX": "false"},
        check=True,
        capture_output=True,
    )
    (path,) = (copy / "dist").glob("*.whl")
    return path


def test_a_package_on_the_path_has_its_suites_and_numbers(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:  # as --prefix and --target do; only PYTHONPATH leads there
        archive.extractall(tmp_path / "site")
    code = (
        "import json; from pathlib import Path\n"
        "from msbench.results import reported; from msbench.runs import suite\n"
        "cells = reported.read_all_reported(reported.find_reported(Path('none')))\n"
        "print(json.dumps([suite.__file__, suite.list_suite_names(), len(cells)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=True,
    )
    file, names, count = json.loads(done.stdout)
    assert file == str(tmp_path / "site" / "msbench" / "runs" / "suite.py")
    assert names == sorted(path.stem for path in (REPOSITORY / "suites").glob("*.yaml"))
    assert count == len(reported.read_all_reported(REPOSITORY / "results" / "reported"))


@pytest.mark.parametrize(
    "text", ["=1", "+1", "@SUM(1)", "-cmd", "-1+cmd|' /C calc'!A0", "\t=1", "\r=1", "\uff1d1"]
)
def test_no_field_of_a_csv_is_a_formula(text: str) -> None:
    written = encode_csv((text,), [(text,)]).decode()
    assert written.splitlines()[0].strip('"') == f"\\u{ord(text[0]):04x}{text[1:]}"
    assert len(set(written.splitlines())) == 1


@pytest.mark.parametrize("value", ["-", "--", "-0.5", "-1.5e-7 2 -3", "a=b", "a-b", "1+1", -1, -0.5])
def test_other_fields_of_a_csv_are_verbatim(value: object) -> None:
    assert encode_csv(("x",), [(value,)]) == f"x\n{value}\n".encode()
