import xml.etree.ElementTree as ElementTree

import pytest
from verdict_cases import ODD_TEXTS, cell, checked

from msbench.gate import ci
from msbench.gate.check import GateResult


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
