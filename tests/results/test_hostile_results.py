"""Results that somebody prepared: what they say is shown, never obeyed, and leads nowhere."""

import csv
import io
import json
import os
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import TINY_SUITE
from typer.testing import CliRunner, Result

from msbench.cli import app

TITLE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202e"
TEXTS = (
    TITLE,
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    r"\input{/etc/passwd}\write18{rm -rf /}%$&#_^~{}\csname end\endcsname",
    "=cmd|' /C calc'!A0",
    "@SUM(1)\t+1-1",
    "::error::owned\n::add-mask::1\n  ::error::owned ##[add-mask]1",
    "$(touch owned) `touch owned` ; touch owned",
)


def campaign(value: Any) -> Any:
    """A parameter of the campaign alone: all of them take a minute."""
    return pytest.param(value, marks=pytest.mark.campaign)


def msbench(*words: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a suite and its two runs."""
    root = tmp_path_factory.mktemp("trained")
    (root / "tiny.yaml").write_text(TINY_SUITE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MSBENCH_DATA", str(root / "data"))
        done = msbench("run", root / "tiny.yaml", "--quiet", "--results", root / "results")
    assert done.exit_code == 0, done.stderr
    return root


@pytest.fixture
def place(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which is the current folder."""
    shutil.copytree(trained, tmp_path / "place")
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path / "place" / "data"))
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


def records(place: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(place.glob("results/tiny/*/*/*/run.json")):
        yield path, json.loads(path.read_bytes())


def spoil(place: Path) -> None:
    """Every text of every record that may be any text is all of `TEXTS`."""
    hostile = "".join(TEXTS)
    for path, record in records(place):
        record |= {
            "data_notes": TEXTS,
            "classes": TEXTS,
            "kernel": hostile,
            "environment": {
                **record["environment"],
                **{text: text for text in TEXTS},
                "host": hostile,
                "device": hostile,
            },
            "sources": {**record["sources"], hostile: hostile},
            "attempts": [dict.fromkeys(TEXTS, hostile)],
            "started": hostile,
            "ended": hostile,
        }
        path.write_text(json.dumps(record), encoding="utf-8")
    path.write_text(
        json.dumps({**record, "status": "failed", "failure": {"type": hostile, "message": hostile}}),
        encoding="utf-8",
    )


def every_verb(place: Path) -> Iterator[Result]:
    suite = place / "tiny.yaml"
    identities = [path.parent.name for path, _ in records(place)]
    yield msbench("list", "runs")
    yield msbench("list", "runs", "--json")
    yield from (msbench("show", identity, "--suite", suite) for identity in identities)
    yield msbench("show", identities[0], "--json")
    yield msbench("diff", *identities)
    yield msbench("explain", suite)
    yield msbench("report", suite, "--csv", "--latex", "--html")
    yield msbench("trace", f"{suite}:msssm-s6:listops-tiny")
    yield msbench("baseline", suite)
    yield msbench("check", suite, "--junit", "junit.xml", "--github")


@pytest.fixture
def outputs(place: Path) -> list[Result]:
    spoil(place)
    return list(every_verb(place))


def test_no_verb_breaks_and_no_terminal_obeys(outputs: list[Result]) -> None:
    for done in outputs:
        assert done.exit_code in (0, 3, 5), (done.stdout, done.stderr, done.exception)
        for text in (done.stdout, done.stderr):
            assert not [c for c in text if c != "\n" and not c.isprintable()]
            assert not re.search(r"^\s*::(error::owned|add-mask)|##\[", text, re.MULTILINE)


def test_files_that_are_written_obey_nothing(place: Path, outputs: list[Result]) -> None:
    assert outputs
    page = (place / "reports" / "report.html").read_text(encoding="utf-8")
    ET.fromstring(page)
    assert page.count("<script") == 1
    assert "<img" not in page
    for path in (place / "reports").glob("*.tex"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"\\(input\{/|write|csname)", source)
        assert "touch owned" not in source or "\\$(touch owned)" in source
    ET.parse(place / "junit.xml")
    assert not (place / "owned").exists()


def test_no_field_of_a_csv_begins_as_a_formula(place: Path, outputs: list[Result]) -> None:
    assert outputs
    for path in (place / "reports").glob("*.csv"):
        for row in csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")):
            assert not [each for each in row if re.match(r"[=@+\t\r]|-(?![\d.]|-?$)", each)]


@pytest.mark.parametrize("key", ["suite", "task", "model", "run_id"])
@pytest.mark.parametrize(
    "name", ["../../../outside", "=cmd", *map(campaign, ("/etc", "..", "a/b", "x\0", "\x1b[2J", "CON "))]
)
def test_a_name_that_leads_elsewhere_is_no_record(place: Path, key: str, name: str) -> None:
    for path, record in records(place):
        path.write_text(json.dumps({**record, key: name}), encoding="utf-8")
    done = msbench("report", place / "tiny.yaml")
    assert done.exit_code == 5
    assert f"run.json: not a run record: {key}: " in done.stderr
    assert msbench("run", place / "tiny.yaml", "--quiet").exit_code == 3


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-1", "@x", "\t=1", "a\n=1", "", "x" * 65])
def test_the_name_of_a_trivial_rule_is_plain(place: Path, name: str) -> None:
    for path, record in records(place):
        path.write_text(json.dumps({**record, "baselines": {name: 0.5}}), encoding="utf-8")
    listed = msbench("list", "runs")
    assert listed.stderr.count("run.json: not a run record: baselines.") == 2


def deep(_record: dict[str, Any]) -> bytes:
    return b'{"spec": ' + b"[" * 10**6 + b"]" * 10**6 + b"}"


def large(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b" " * 2**26


def long_number(record: dict[str, Any]) -> bytes:
    return json.dumps(record).replace('"seed": 0', '"seed": ' + "9" * 10**6).encode()


@pytest.mark.parametrize("content", [deep, large, long_number])
def test_a_record_of_giant_size_or_depth_is_an_error(place: Path, content: Any) -> None:
    for path, record in records(place):
        path.write_bytes(content(record))
    listed = msbench("list", "runs")
    assert listed.exit_code == 0
    assert listed.stderr.count("run.json") == 2
    assert len(listed.stderr) < 2000
    assert msbench("report", place / "tiny.yaml").exit_code == 5


@pytest.mark.parametrize("name", ["run.json", "metrics.csv", "predictions.parquet", "mixing/trained-x.json"])
@pytest.mark.parametrize("kind", ["pipe", *(campaign(kind) for kind in ("folder", "endless", "loop"))])
def test_what_is_no_ordinary_file_is_not_waited_for(place: Path, name: str, kind: str) -> None:
    for folder in place.glob("results/tiny/*/*/*"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case "endless":
                path.symlink_to("/dev/zero")
            case "loop":
                path.symlink_to(path)
    suite = place / "tiny.yaml"
    done = [
        msbench("list", "runs"),
        msbench("report", suite, "--html"),
        msbench("report", suite, "--versus", "mamba"),
        msbench("show", next(place.glob("results/tiny/*/*/*"))),
        msbench("diff", *place.glob("results/tiny/*/*/*")),
        msbench("explain", suite),
    ]
    for each in done:
        assert each.exit_code in (0, 2, 3, 5, 6), (each.stdout, each.stderr, each.exception)
        assert each.exception is None or isinstance(each.exception, SystemExit)


def test_answers_without_end_are_an_error(place: Path) -> None:
    """Some kilobytes of Parquet are as many rows as they like."""
    for path in place.glob("results/tiny/*/*/*/predictions.parquet"):
        pd.DataFrame({"label": [0], "correct": [True]}).loc[[0] * (2**24 + 1)].to_parquet(path, index=False)
        assert path.stat().st_size < 10**6
    done = msbench("report", place / "tiny.yaml", "--versus", "mamba")
    assert done.exit_code == 0
    assert "predictions.parquet: has 16,777,217 rows" in done.stdout


def test_a_folder_of_runs_may_be_a_link_and_a_link_to_itself_ends(place: Path) -> None:
    """Scratch disks are linked in."""
    (place / "results").rename(place / "scratch")
    (place / "results").symlink_to("scratch")
    (place / "results" / "tiny" / "loop").symlink_to(place / "results")
    listed = msbench("list", "runs", "--json")
    assert listed.exit_code == 0
    assert len({row["run"] for row in json.loads(listed.stdout)}) == 2


@pytest.mark.parametrize("name", ["../x", "x/../../y", "/tmp/x", "A", "=1", "-1", "", ".", "x" * 65, "x\\y"])
@pytest.mark.parametrize("key", ["suite", "task", "model"])
def test_names_of_a_suite_cannot_leave_the_results(place: Path, key: str, name: str) -> None:
    text = TINY_SUITE
    shown = json.dumps(name)
    match key:
        case "suite":
            text = text.replace("name: tiny", f"name: {shown}")
        case "task":
            text = text.replace("  listops-tiny:", f"  {shown}:")
        case "model":
            text = text.replace("  mamba:", f"  {shown}:")
    (place / "bad.yaml").write_text(text, encoding="utf-8")
    done = msbench("run", place / "bad.yaml", "--quiet", "--results", "new")
    assert done.exit_code == 2
    assert not (place / "new").exists()


def test_a_settings_file_without_end_is_an_error(place: Path) -> None:
    (place / "large.yaml").write_bytes(TINY_SUITE.encode() + b"# more\n" * 200_000)
    for path in (place / "large.yaml", "/dev/zero"):
        done = msbench("run", path)
        assert done.exit_code == 2
        assert len(done.stderr) < 500
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    (place / "bomb.yaml").write_text(bomb)
    done = msbench("run", place / "bomb.yaml")
    assert (done.exit_code, "anchors and aliases are refused" in done.stderr) == (2, True)


def test_files_have_the_modes_that_the_user_chose(place: Path) -> None:
    old = os.umask(0o077)
    try:
        assert msbench("report", place / "tiny.yaml", "--csv").exit_code == 0
    finally:
        os.umask(old)
    assert {path.stat().st_mode & 0o777 for path in (place / "reports").iterdir()} == {0o600}


def test_a_link_that_was_laid_under_a_name_is_replaced_and_not_followed(place: Path) -> None:
    (place / "precious").write_text("precious")
    (place / "reports").mkdir()
    (place / "reports" / "tiny.csv").symlink_to(place / "precious")
    assert msbench("report", place / "tiny.yaml", "--csv").exit_code == 0
    assert (place / "precious").read_text() == "precious"
    assert not (place / "reports" / "tiny.csv").is_symlink()
