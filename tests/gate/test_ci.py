"""What CI reads: JUnit XML, annotations and the summary of GitHub."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from verdict_cases import ODD_TEXTS, cell, checked

from msbench.errors import ConfigError
from msbench.gate import ci
from msbench.gate.check import GateResult, SuiteVerdicts

COMMAND = re.compile(r"::(error|warning|notice) title=([^:,\r\n]*)::([^\r\n]*)")


@pytest.mark.parametrize(
    ("verdicts", "level"),
    [
        (("pass", "fail"), "error"),
        (("diverged", "inconclusive"), "error"),
        (("pass", "inconclusive"), "warning"),
        (("missing",), "warning"),
        (("improved", "inconclusive"), "warning"),
        (("pass", "improved"), "notice"),
        ((), "warning"),
    ],
)
def test_one_annotation_a_suite(verdicts: tuple[str, ...], level: str) -> None:
    command = ci.format_annotation(checked(*map(cell, verdicts)))
    assert command is not None
    found = COMMAND.fullmatch(command)
    assert found is not None
    assert found[1] == level


def test_what_simply_holds_needs_none() -> None:
    assert ci.format_annotation(checked(cell("pass"), cell("xfail"))) is None


@pytest.mark.parametrize("verdicts", [("inconclusive",), ("missing",), ("improved",), ()])
def test_strict_makes_errors(verdicts: tuple[str, ...]) -> None:
    command = ci.format_annotation(checked(*map(cell, verdicts)), strict=True)
    assert command is not None
    assert command.startswith("::error ")


def test_a_run_that_broke_is_an_error() -> None:
    command = ci.format_annotation(checked(cell("missing", crashed=1)))
    assert command is not None
    assert command.startswith("::error ")


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_a_command_is_one_line_and_gives_its_text_back(text: str) -> None:
    command = ci.format_annotation(checked(cell("fail", model=text, reason=text), suite=text))
    assert command is not None
    found = COMMAND.fullmatch(command)
    assert found is not None
    assert unescaped(found[2]) == f"msbench check: {text}"
    assert unescaped(found[3]) == f"{text} against baseline.yaml: 1 fail\nlistops · {text} · fail: {text}"


def unescaped(text: str) -> str:
    """As the runner does it."""
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, character)
    return text


def test_many_cells_are_counted_not_named() -> None:
    command = ci.format_annotation(checked(*[cell("fail", model=f"m{number}") for number in range(9)]))
    assert command is not None
    assert command.count("· fail") == ci.NAMED
    assert command.endswith("%0Aand 4 more: see the summary")


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_a_table_keeps_its_columns(text: str) -> None:
    lines = ci.format_markdown(
        [checked(cell("fail", task=text, model=text, reason=text), suite=text)]
    ).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 3
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in table} == {6}
    assert not re.search(r"<|(?<!\\)\$", lines[0] + table[2])


def test_the_worst_stands_first() -> None:
    text = ci.format_markdown(
        [checked(cell("pass", model="a"), cell("inconclusive", model="b"), cell("fail", model="c"))]
    )
    assert re.findall(r"\| listops \| (.) \|", text) == ["c", "b", "a"]
    assert "1 fail, 1 inconclusive, 1 pass" in text


def test_what_has_no_room_is_counted() -> None:
    cells = [cell("pass", model=f"модель {number}", reason="я" * 200) for number in range(5000)]
    text = ci.format_markdown([checked(*cells)])
    assert len(text.encode()) <= ci.SUMMARY_BYTES
    shown = text.count("| small |")
    assert 2000 < shown < 5000
    assert text.endswith(f"\n{5000 - shown} more cells do not fit here.\n")


def test_the_summary_is_added_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.md"
    path.write_text("x" * (ci.SUMMARY_BYTES - 1000), encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    ci.append_summary([checked(*[cell("pass", model=str(number)) for number in range(100)])])
    assert ci.SUMMARY_BYTES - 1000 < path.stat().st_size <= ci.SUMMARY_BYTES
    assert "more cells" in path.read_text()


def test_without_a_summary_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(tmp_path)
    ci.append_summary([checked(cell("pass"))])
    assert list(tmp_path.iterdir()) == []


def test_a_summary_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    with pytest.raises(ConfigError, match="GITHUB_STEP_SUMMARY"):
        ci.append_summary([checked(cell("pass"))])


def test_a_full_summary_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GitHub drops one that is too large as a whole."""
    path = tmp_path / "summary.md"
    path.write_text("x" * ci.SUMMARY_BYTES, encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    ci.append_summary([checked(cell("fail"))])
    assert path.stat().st_size == ci.SUMMARY_BYTES


def test_a_path_of_any_bytes_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    ci.append_summary([checked(cell("fail", reason="in a\udcff.yaml"))])
    assert "in a?.yaml" in path.read_text(encoding="utf-8")


def test_a_testcase_a_cell() -> None:
    one = checked(cell("pass"), cell("fail"), cell("inconclusive"), cell("xfail"), cell("improved"))
    two = checked(cell("missing", crashed=1), suite="lra")
    root = ElementTree.fromstring(ci.format_junit(GateResult((one, two))))
    assert [root.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["6", "1", "1", "2"]
    suites = list(root)
    assert [each.get("name") for each in suites] == ["small", "lra"]
    cases = list(root.iter("testcase"))
    assert (cases[0].get("classname"), cases[0].get("name")) == ("small.listops", "mamba")
    assert [case[0].tag for case in cases] == [
        "system-out",
        "failure",
        "skipped",
        "skipped",
        "system-out",
        "error",
    ]
    assert (cases[1][0].get("type"), cases[1][0].get("message")) == ("fail", "fail: because")


def test_the_time_of_a_testcase_is_that_of_its_runs() -> None:
    cells = (replace(cell("pass"), seconds=12.25), replace(cell("missing"), seconds=0.5))
    root = ElementTree.fromstring(ci.format_junit(GateResult((SuiteVerdicts("small", "b.yaml", cells),))))
    assert [case.get("time") for case in root.iter("testcase")] == ["12.250", "0.500"]
    assert [each.get("time") for each in root] == ["12.750"]


@pytest.mark.parametrize(
    "verdict", ["fail", "chance-level", "trivial-rule", "diverged", "invalid", "other-data"]
)
def test_what_is_below_is_a_failure_even_where_a_run_broke(verdict: str) -> None:
    (case,) = ElementTree.fromstring(ci.format_junit(GateResult((checked(cell(verdict, crashed=1)),)))).iter(
        "testcase"
    )
    assert case[0].tag == "failure"


@pytest.mark.parametrize(
    ("verdict", "tag"),
    [("inconclusive", "failure"), ("missing", "failure"), ("improved", "failure"), ("xfail", "skipped")],
)
def test_strict_fails_what_ends_the_command(verdict: str, tag: str) -> None:
    text = ci.format_junit(GateResult((checked(cell(verdict)),), strict=True))
    (case,) = ElementTree.fromstring(text).iter("testcase")
    assert case[0].tag == tag


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_any_name_and_reason_can_be_parsed(text: str) -> None:
    one = checked(cell("fail", task=text, model=text, reason=text), suite=text)
    (case,) = ElementTree.fromstring(ci.format_junit(GateResult((one,)))).iter("testcase")
    kept = ci.NO_XML.sub("\ufffd", text)
    assert case.get("name") == kept
    assert case.get("classname") == f"{kept}.{kept}"
    assert case[0].get("message") == f"fail: {kept}"


def test_nothing_checked_is_a_document_without_cases() -> None:
    root = ElementTree.fromstring(ci.format_junit(GateResult(())))
    assert (root.get("tests"), len(root)) == ("0", 0)
