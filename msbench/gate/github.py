"""Verdicts for GitHub Actions: one annotation per suite, and the table for the step's summary.

GitHub shows ten annotations of a kind per step, and up to 1 MiB of summary.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from msbench.errors import ConfigError
from msbench.gate.check import Checked
from msbench.gate.words import HEADER, counts, outcome, row, worst_first

SUMMARY_BYTES = 1024 * 1024
NAMED = 5
"""Most cells that an annotation names; the summary has them all."""
MARKED = {each: f"\\{each}" for each in "\\`*_[]|~#$"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def annotation(checked: Checked, *, strict: bool = False) -> str | None:
    """Return the workflow command for one suite; None if all its cells simply pass.

    An error if a cell fails or a run broke, a warning if something is undecided or missing, and a notice if
    something is better than expected.
    """
    title = f"msbench check: {checked.suite}"
    if checked.problem is not None:
        return f"::error title={property_value(title)}::{message_value(f'not checked: {checked.problem}')}"
    told = [cell for cell in worst_first(checked.cells) if cell.judgement.verdict not in ("pass", "xfail")]
    told += [cell for cell in checked.cells if cell.crashed and cell not in told]
    if checked.cells and not told:
        return None
    found = {outcome(cell, strict=strict) for cell in told}
    bad = found & {"failure", "error"} or (strict and not checked.cells)
    level = "error" if bad else "warning" if "skipped" in found or not checked.cells else "notice"
    lines = [f"{checked.suite} against {checked.against}: {counts(checked.cells)}"]
    lines += [" · ".join(row(cell)[1:4]) + f": {cell.judgement.reason}" for cell in told[:NAMED]]
    lines += [f"and {len(told) - NAMED} more: see the summary"] if len(told) > NAMED else []
    return f"::{level} title={property_value(title)}::{message_value(chr(10).join(lines))}"


def message_value(text: str) -> str:
    """Escape text as the message of a workflow command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def property_value(text: str) -> str:
    """Escape text as a property of a workflow command."""
    return message_value(text).replace(":", "%3A").replace(",", "%2C")


def markdown(checked: Sequence[Checked], room: int = SUMMARY_BYTES) -> str:
    """Return a heading and a table per suite, the worst cells first, in at most `room` bytes of UTF-8.

    Rows that do not fit are counted; the result is empty if not even the count fits.
    """
    lines: list[str] = []
    rows = 0
    left = room - 200  # for the line that counts omitted rows
    total = sum(len(one.cells) for one in checked)
    if left < 0:
        return ""
    for one in checked:
        head = f"### msbench check: {escaped(one.suite)}\n\n"
        if one.problem is None:
            head += f"Against {escaped(one.against)}: {counts(one.cells)}.\n\n"
            head += f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}\n"
        else:
            head += f"Not checked: {escaped(str(one.problem))}\n"
        body = [f"| {' | '.join(map(escaped, row(cell)))} |\n" for cell in worst_first(one.cells)]
        for number, line in enumerate([head, *body, "\n"]):
            left -= len(line.encode(errors="replace"))
            if left < 0:
                return "".join(lines) + f"\n{total - rows} more cells: no room for them here.\n"
            lines.append(line)
            rows += 0 < number <= len(body)
    return "".join(lines)


def escaped(text: str) -> str:
    """Escape text for a cell of a Markdown table: one line, without markup."""
    return "".join(MARKED.get(character, character) for character in " ".join(text.split()))


def append_summary(checked: Sequence[Checked]) -> None:
    """Add the tables to the file that ``GITHUB_STEP_SUMMARY`` names, if it is set."""
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    path = Path(name)
    try:
        used = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8", errors="replace") as stream:
            stream.write(markdown(checked, SUMMARY_BYTES - used))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror} (GITHUB_STEP_SUMMARY)") from None
