"""The gate for CI: ``msbench check`` and ``msbench baseline``, around the pure verdicts of `msbench.gate`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msbench import console
from msbench.errors import ExitCode
from msbench.gate import github, junit, words
from msbench.gate.check import Checked, check, expectations_of
from msbench.gate.verdicts import exit_code, most_fundamental
from msbench.results.files import write_file

__all__ = ["Checked", "as_dict", "check", "code", "expectations_of", "print_checked", "publish"]


def code(checked: Sequence[Checked], *, strict: bool = False) -> ExitCode:
    """Return the most fundamental exit code of the suites; a suite without a cell is undecided."""
    codes = [_code_of(one, strict) for one in checked]
    return most_fundamental(codes) if codes else exit_code([], strict=strict)


def _code_of(one: Checked, strict: bool) -> ExitCode:
    if one.problem is not None:
        undecided = strict and one.problem.exit_code is ExitCode.UNDECIDED
        return ExitCode.GATE_FAILED if undecided else one.problem.exit_code
    return exit_code(
        [cell.judgement.verdict for cell in one.cells],
        crashed=any(cell.crashed for cell in one.cells),
        stale=any(cell.stale for cell in one.cells),
        strict=strict,
    )


def print_checked(checked: Sequence[Checked]) -> None:
    """Print the table to stdout, and a line of counts per suite to stderr."""
    rows = [words.row(cell) for one in checked for cell in one.cells]
    if rows:
        console.out_rows(words.HEADER, rows, below=1)
    for one in checked:
        for line in (*one.warnings, *one.stale):
            console.say(f"msbench: {one.suite}: {line}")
        if one.problem is not None:
            console.say(f"msbench: {one.suite}: not checked: {one.problem}")
        else:
            console.say(f"msbench: {one.suite} against {one.against}: {words.counts(one.cells)}")


def as_dict(checked: Sequence[Checked], *, strict: bool = False) -> dict[str, Any]:
    """Return everything as plain values for JSON."""
    return {
        "exit_code": int(code(checked, strict=strict)),
        "strict": strict,
        "suites": [
            {
                "suite": one.suite,
                "against": one.against,
                "stale": list(one.stale),
                "warnings": list(one.warnings),
                "problem": None if one.problem is None else str(one.problem),
                "cells": [
                    {
                        "task": cell.task,
                        "model": cell.model,
                        "crashed": cell.crashed,
                        "stale": cell.stale,
                        "outcome": words.outcome(cell, strict=strict),
                        **asdict(cell.judgement),
                    }
                    for cell in one.cells
                ],
            }
            for one in checked
        ],
    }


def publish(
    checked: Sequence[Checked], *, to_junit: Path | None = None, to_github: bool = False, strict: bool = False
) -> None:
    """Write the JUnit file, and GitHub's annotations (on stderr, which it reads too) and summary."""
    if to_junit is not None:
        write_file(to_junit, junit.document(checked, strict=strict), "--junit")
    if to_github:
        for one in checked:
            if (command := github.annotation(one, strict=strict)) is not None:
                console.say(command)
        github.append_summary(checked)
