"""Verdicts for CI: JUnit XML, and GitHub's annotations and step summary.

JUnit has one testsuite per suite and one testcase per cell. GitHub shows ten annotations of a kind per step,
and up to 1 MiB of summary.
"""

import os
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from msbench.errors import ConfigError, MsbenchError
from msbench.gate.check import GateResult, SuiteVerdicts
from msbench.gate.verdicts import HEADER, JudgedCell, count_verdicts, sort_worst_first

NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain, escaped or not."""
COUNTED = {"tests": None, "failures": "failure", "errors": "error", "skipped": "skipped"}
SUMMARY_BYTES = 1024 * 1024
NAMED = 5
"""Most cells that an annotation names; the summary has them all."""
ESCAPES = {each: f"\\{each}" for each in "\\`*_[]|~#$"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def format_junit(result: GateResult) -> bytes:
    """Return the whole JUnit file in UTF-8; a cell's time is that of its runs, in seconds.

    A cell that fails is a ``failure``, one that is undecided, missing or expected to fail is ``skipped``, and
    one whose runs broke is an ``error``, as is a suite that could not be checked. With `strict`, whatever
    then fails the gate is a failure here, too.
    """
    root = ElementTree.Element("testsuites", _count_outcomes(result.suites, result.strict))
    root.set("name", "msbench check")
    for each in result.suites:
        suite = ElementTree.SubElement(root, "testsuite", _count_outcomes([each], result.strict))
        suite.set("name", _to_xml(each.suite))
        suite.set("time", f"{sum(cell.seconds for cell in each.cells):.3f}")
        for cell in each.cells:
            _add_case(suite, cell, result.strict)
        if each.problem is not None:
            _add_problem(suite, each.suite, each.problem)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _count_outcomes(suites: Sequence[SuiteVerdicts], strict: bool) -> dict[str, str]:
    found: Counter[str] = Counter(cell.find_outcome(strict=strict) for each in suites for cell in each.cells)
    found["error"] += sum(each.problem is not None for each in suites)
    return {name: str(found.total() if which is None else found[which]) for name, which in COUNTED.items()}


def _add_problem(parent: ElementTree.Element, suite: str, problem: MsbenchError) -> None:
    names = {"classname": _to_xml(suite), "name": "suite", "time": "0"}
    case = ElementTree.SubElement(parent, "testcase", names)
    ElementTree.SubElement(case, "error", {"message": _to_xml(str(problem)), "type": type(problem).__name__})


def _add_case(parent: ElementTree.Element, cell: JudgedCell, strict: bool) -> None:
    names = {"classname": _to_xml(f"{cell.suite}.{cell.task}"), "name": _to_xml(cell.model)}
    case = ElementTree.SubElement(parent, "testcase", {**names, "time": f"{cell.seconds:.3f}"})
    message = f"{cell.verdict}: {_to_xml(cell.judgement.reason)}"
    outcome = cell.find_outcome(strict=strict)
    if outcome == "passed":
        ElementTree.SubElement(case, "system-out").text = message
    else:
        kind = {} if outcome == "skipped" else {"type": cell.verdict}
        ElementTree.SubElement(case, outcome, {"message": message, **kind})


def _to_xml(text: str) -> str:
    return NO_XML.sub("\ufffd", text)


def format_annotation(verdicts: SuiteVerdicts, *, strict: bool = False) -> str | None:
    """Return GitHub's workflow command for one suite; None if all its cells simply pass.

    An error if a cell fails or a run broke, a warning if something is undecided or missing, and a notice if
    something is better than expected.
    """
    title = escape_property(f"msbench check: {verdicts.suite}")
    if verdicts.problem is not None:
        return f"::error title={title}::{escape_message(f'not checked: {verdicts.problem}')}"
    cells = sort_worst_first(verdicts.cells)
    named = [cell for cell in cells if cell.verdict not in ("pass", "xfail")]
    named += [cell for cell in verdicts.cells if cell.crashed and cell not in named]
    if cells and not named:
        return None
    found = {cell.find_outcome(strict=strict) for cell in named}
    bad = found & {"failure", "error"} or (strict and not cells)
    level = "error" if bad else "warning" if "skipped" in found or not cells else "notice"
    lines = [f"{verdicts.suite} against {verdicts.against}: {count_verdicts(cells)}"]
    lines += [" · ".join(cell.row[1:4]) + f": {cell.judgement.reason}" for cell in named[:NAMED]]
    lines += [f"and {len(named) - NAMED} more: see the summary"] if len(named) > NAMED else []
    return f"::{level} title={title}::{escape_message(chr(10).join(lines))}"


def escape_message(text: str) -> str:
    """Escape text as the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """Escape text as a property of a workflow command."""
    return escape_message(text).replace(":", "%3A").replace(",", "%2C")


def format_markdown(suites: Sequence[SuiteVerdicts], room: int = SUMMARY_BYTES) -> str:
    """Return a heading and a table per suite, the worst cells first, in at most `room` bytes of UTF-8.

    Rows that do not fit are counted; the result is empty if not even the count fits.
    """
    lines: list[str] = []
    rows = 0
    left = room - 200  # for the line that counts omitted rows
    total = sum(len(each.cells) for each in suites)
    if left < 0:
        return ""
    for each in suites:
        head = f"### msbench check: {escape_markdown(each.suite)}\n\n"
        if each.problem is None:
            head += f"Against {escape_markdown(each.against)}: {count_verdicts(each.cells)}.\n\n"
            head += f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}\n"
        else:
            head += f"Not checked: {escape_markdown(str(each.problem))}\n"
        body = [
            f"| {' | '.join(map(escape_markdown, cell.row))} |\n" for cell in sort_worst_first(each.cells)
        ]
        for number, line in enumerate([head, *body, "\n"]):
            left -= len(line.encode(errors="replace"))
            if left < 0:
                return "".join(lines) + f"\n{total - rows} more cells do not fit here.\n"
            lines.append(line)
            rows += 0 < number <= len(body)
    return "".join(lines)


def escape_markdown(text: str) -> str:
    """Escape text for a cell of a Markdown table: one line, without markup."""
    return "".join(ESCAPES.get(character, character) for character in " ".join(text.split()))


def append_summary(suites: Sequence[SuiteVerdicts]) -> None:
    """Add the tables to the file that ``GITHUB_STEP_SUMMARY`` names, if it is set."""
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    path = Path(name)
    try:
        used = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8", errors="replace") as stream:
            stream.write(format_markdown(suites, SUMMARY_BYTES - used))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror} (GITHUB_STEP_SUMMARY)") from None
