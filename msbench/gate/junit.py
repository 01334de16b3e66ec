"""Verdicts as JUnit XML: one testsuite per suite, one testcase per cell."""

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence

from msbench.errors import MsbenchError
from msbench.gate.check import Checked
from msbench.gate.judged import Judged
from msbench.gate.words import outcome

NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, escaped or not."""
COUNTED = {"tests": None, "failures": "failure", "errors": "error", "skipped": "skipped"}


def document(checked: Sequence[Checked], *, strict: bool = False) -> bytes:
    """Return the whole file in UTF-8.

    A cell that fails is a ``failure``, one that is undecided, missing or expected to fail is ``skipped``, and
    one whose runs broke is an ``error``, as is a suite that could not be checked. With `strict`, whatever
    then fails the gate is a failure here, too.
    """
    root = ElementTree.Element("testsuites", _counts(checked, strict))
    root.set("name", "msbench check")
    for one in checked:
        suite = ElementTree.SubElement(root, "testsuite", _counts([one], strict))
        suite.set("name", _legal(one.suite))
        for cell in one.cells:
            suite.append(_case(cell, strict))
        if one.problem is not None:
            suite.append(_unchecked(one.suite, one.problem))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _counts(checked: Sequence[Checked], strict: bool) -> dict[str, str]:
    found: Counter[str] = Counter(outcome(cell, strict=strict) for one in checked for cell in one.cells)
    found["error"] += sum(one.problem is not None for one in checked)
    return {name: str(found.total() if which is None else found[which]) for name, which in COUNTED.items()}


def _unchecked(suite: str, problem: MsbenchError) -> ElementTree.Element:
    case = ElementTree.Element("testcase", {"classname": _legal(suite), "name": "suite", "time": "0"})
    ElementTree.SubElement(case, "error", {"message": _legal(str(problem)), "type": type(problem).__name__})
    return case


def _case(cell: Judged, strict: bool) -> ElementTree.Element:
    names = {"classname": _legal(f"{cell.suite}.{cell.task}"), "name": _legal(cell.model), "time": "0"}
    case = ElementTree.Element("testcase", names)
    verdict, reason = cell.judgement.verdict, _legal(cell.judgement.reason)
    if (which := outcome(cell, strict=strict)) == "passed":
        ElementTree.SubElement(case, "system-out").text = f"{verdict}: {reason}"
    else:
        told = {"message": f"{verdict}: {reason}"}
        ElementTree.SubElement(case, which, told if which == "skipped" else {**told, "type": verdict})
    return case


def _legal(text: str) -> str:
    return NO_XML.sub("\ufffd", text)
