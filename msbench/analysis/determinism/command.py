"""The command ``msbench doctor --determinism``: one row per model."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from msbench import console, models
from msbench.analysis.determinism.check import PROMISED, Comparison, Finding, check, other_threads
from msbench.analysis.determinism.problem import DeterminismProblem, spec_of
from msbench.config import MODELS
from msbench.environment import describe_environment
from msbench.errors import NotDeterministic, UnknownName


@dataclass(frozen=True)
class DeterminismReport:
    """Findings on a device; `threads` is the number here and, on the CPU, the other one tried."""

    device: str
    threads: tuple[int, ...]
    problem: DeterminismProblem
    findings: tuple[Finding, ...]


def chosen(names: Iterable[str] | None) -> tuple[str, ...]:
    """Return the requested models, each once, or all; UnknownName for an unknown one."""
    found = tuple(dict.fromkeys(names or MODELS))
    for name in found:
        if name not in MODELS:
            raise UnknownName("model", name, MODELS, "--model")
    return found


def refuse(names: Iterable[str], device: str) -> None:
    """Apply `models.check_fixed_order` to models in the sizes that are trained here."""
    models.check_fixed_order([spec_of(DeterminismProblem(), name) for name in names], device)


def carry_out(names: Sequence[str], device: str, *, quiet: bool = False) -> DeterminismReport:
    """Check these models one after the other, and report each when done unless `quiet`."""
    problem = DeterminismProblem()
    findings = []
    for number, name in enumerate(names, 1):
        findings.append(check(name, device, problem))
        if not quiet:
            console.say(f"{number}/{len(names)} {name}: {findings[-1].word}")
    threads = (torch.get_num_threads(), *([other_threads()] if device == "cpu" else []))
    return DeterminismReport(device, threads, problem, tuple(findings))


def document(report: DeterminismReport) -> dict[str, Any]:
    """Return plain values for JSON: the problem, the environment, and each model's first differences."""
    return {
        "device": report.device,
        "threads": list(report.threads),
        "problem": asdict(report.problem),
        "environment": describe_environment(),
        "equal": all(finding.equal for finding in report.findings),
        "models": [finding.as_dict() for finding in report.findings],
    }


def print_table(report: DeterminismReport) -> None:
    """Print a row per model; the first difference is in the last column, or below its row."""
    threads = [in_words(report.threads[1])] if len(report.threads) > 1 else []
    header = ("model", "kernel", "twice", "resumed", *threads, "first difference")
    console.out_rows(header, [_row(finding, len(threads)) for finding in report.findings], below=1)
    console.say(_words(report))


def _row(finding: Finding, threads: int) -> tuple[str, ...]:
    names: list[Comparison] = [*PROMISED, *(["threads"] if threads else [])]  # type: ignore[list-item]
    if finding.failure:
        return (finding.model, finding.kernel, *("failed" for _ in names), finding.failure)
    found = {name: finding.compared.get(name) for name in names}
    words = ("differs" if found[name] else "equal" for name in names)
    told = "; ".join(f"{name}: {found[name]}" for name in names if found[name])
    return (finding.model, finding.kernel, *words, told)


def _words(report: DeterminismReport) -> str:
    problem, equal = report.problem, sum(finding.equal for finding in report.findings)
    here = f"{report.device}, {in_words(report.threads[0])}"
    text = (
        f"{equal} of {len(report.findings)} models equal in every bit on {here}: {problem.steps} steps twice,"
        f" and with a stop and resume at step {problem.stop}"
    )
    if report.device != "cpu":
        return text
    other = in_words(report.threads[1])
    return f"{text}; {problem.threads_steps} steps with {other}, where nothing is promised"


def in_words(threads: int) -> str:
    """Format as ``1 thread``, ``2 threads``."""
    return f"{threads} thread{'' if threads == 1 else 's'}"


def settle(report: DeterminismReport) -> None:
    """Raise NotDeterministic, naming the models, if a promised comparison was not equal."""
    models = {
        word: ", ".join(finding.model for finding in report.findings if finding.word == word)
        for word in ("differs", "failed")
    }
    told = []
    if models["differs"]:
        told.append(
            f"not the same twice, or not after a resume: {models['differs']}; runs of them cannot be made"
            " again bit for bit here"
        )
    if models["failed"]:
        told.append(f"could not be trained, so nothing is known of them: {models['failed']}")
    if told:
        raise NotDeterministic("\n".join(told))
