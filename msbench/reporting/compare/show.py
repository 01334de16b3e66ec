"""Page of a single run (``show``): the result first, then the command that reproduces it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msbench.config.differences import Change, flatten, format_yaml
from msbench.config.run import SECTIONS
from msbench.errors import ConfigError
from msbench.reporting.compare.lookup import format_run_title
from msbench.reporting.compare.page import Facts, Grid, Part, draw_bar, select_rows
from msbench.reporting.outcomes import FoundRun, describe_interval, read_curve
from msbench.results.record import RunRecord, describe_scored_classes, get_metric_key, list_rules
from msbench.runs.identity import identify
from msbench.runs.plan import list_changes, open_dataset
from msbench.runs.reproduce import KEPT, Reproduction, build_reproduction, resolve_record
from msbench.stats.proportion import find_unbeaten_rule

FILES = 12
"""The most changed source files that are named."""


@dataclass(frozen=True)
class RunStanding:
    """The run that the same settings would give now.

    `run_id` is its id, None where unknown, for the `reason` given. `changes` are the known differences from
    the stored run.
    """

    run_id: str | None
    reason: str = ""
    changes: tuple[Change, ...] = ()


def compare_with_present(record: RunRecord, data_root: Path) -> RunStanding:
    """Compare a run with the present source and, where set up, the present data. Writes nothing."""
    try:
        spec = resolve_record(record)
    except ConfigError as error:
        return RunStanding(None, f"its settings are invalid now: {error}")
    dataset = open_dataset(spec, data_root)
    reason = dataset if isinstance(dataset, str) else ""
    identity = identify(spec, record.data_digest if isinstance(dataset, str) else dataset.digest)
    changes = list_changes(record, spec, identity)
    return RunStanding(None if reason else identity.run_id, reason, changes)


def describe_standing(record: RunRecord, now: RunStanding) -> str:
    """Return a text on whether the same command would give the same id now."""
    words = {"setting": "settings", "data": "data", "source": "source"}
    kinds = {change.kind for change in now.changes}
    changed = ", ".join(text for kind, text in words.items() if kind in kinds)
    if now.run_id == record.run_id:
        return "the same: settings, data and source are as they were"
    if now.run_id is not None:
        return f"another, {now.run_id}: {f'{changed} changed' if changed else 'its record does not show why'}"
    return f"unknown: {now.reason}{f'; another in any case: {changed} changed' if changed else ''}"


def build_page(
    found: FoundRun, results: Path, data_root: Path, suite_file: Path | None = None
) -> Iterable[Part]:
    """Yield the parts to print, in order. Reads, never writes."""
    record, folder = found.record, found.folder
    reproduction = build_reproduction(record, suite_file, results)
    yield Facts(format_run_title(record), list(_list_results(record, describe_interval(found))))
    yield _lay_out_command(reproduction, record)
    yield _lay_out_standing(record, compare_with_present(record, data_root))
    departures = [
        (change.name, f"{change.now_text} (planned: {change.before_text})")
        for change in reproduction.departures
    ]
    yield Facts("different from its suite", departures)
    yield from _lay_out_curve(found)
    yield Facts("time", list(_list_times(record)))
    yield Facts("ran on", _list_environment(record))
    header = tuple(dict.fromkeys(key for attempt in record.attempts for key in attempt))
    attempts = record.attempts if len(record.attempts) > 1 else ()
    yield Grid("attempts", header, [tuple(map(each.get, header)) for each in attempts])
    yield Facts("settings", _list_settings(record))
    yield Grid(f"files in {folder}", ("file", "bytes"), _list_files(folder))


def _list_results(record: RunRecord, interval: str) -> Iterable[tuple[str, str]]:
    """Yield status, the metric on the test split with its interval, and values to compare it with."""
    yield "status", record.status
    if record.failure is not None:
        yield "failure", f"{record.failure.type}: {record.failure.message}"
    if record.result is not None:
        parts = (f"{record.result:.2%}", describe_scored_classes(record), interval)
        yield record.metric, ", ".join(filter(None, parts))
    validation = record.metrics.get(get_metric_key("validation", record.metric))
    if validation is not None:
        epoch = record.metrics.get("best_epoch")
        kept = "" if epoch is None else f" in epoch {epoch:.0f}, which was kept"
        yield "validation", f"{validation:.2%}{kept}"
    if record.metric != "accuracy" and "test_accuracy" in record.metrics:
        yield "accuracy", f"{record.metrics['test_accuracy']:.2%} of all decisions"
    if "test_loss" in record.metrics:
        yield "loss", f"{record.metrics['test_loss']:.4f} nats"
    if record.chance is not None:
        yield "chance", f"{record.chance:.2%}"
    if record.baselines:
        yield "trivial rules", ", ".join(f"{name} {value:.2%}" for name, value in record.baselines.items())
    if record.result is not None and record.n_test:
        rule = find_unbeaten_rule(record.result, None, 1, record.n_test, list_rules(record))
        if rule is not None:
            yield "learned", f"no more than the trivial rule {rule!r} explains"
    if record.parameters is not None:
        states = record.states_per_channel
        shown = f", {states:,} state{'' if states == 1 else 's'} a channel" if states else ""
        yield "size", f"{record.parameters:,} parameters{shown}"


def _lay_out_command(found: Reproduction, record: RunRecord) -> Facts:
    """Return the command that reproduces the run, or the reason why there is none."""
    if not found.command:
        return Facts("to reproduce it", [("", f"no command: {found.reason}")])
    kept = record.status in ("finished", "diverged")
    note = KEPT if kept else "in its own folder this resumes it or tries again"
    return Facts("to reproduce it", [("", found.line), ("", f"({note})")], frozenset({""}))


def _lay_out_standing(record: RunRecord, now: RunStanding) -> Facts:
    """Return the id that the command would give now, and what has changed, source files last."""
    files = [change for change in now.changes if change.kind == "source"]
    others = [change for change in now.changes if change.kind != "source"]
    rows = [
        (change.name, f"{change.before_text} → {change.now_text}") for change in (*others, *files[:FILES])
    ]
    if len(files) > FILES:
        rows.append(("", f"and {len(files) - FILES} more files"))
    return Facts("with the present code and data", [("id", describe_standing(record, now)), *rows])


def _lay_out_curve(found: FoundRun) -> Iterable[Part]:
    metric = found.record.metric
    curve, problem = read_curve(found.folder, metric)
    if problem:
        yield Facts("learning curve", [("", problem)])
    if not curve:
        return
    scores = [row.score for row in curve]
    low, high, best = min(scores), max(scores), scores.index(max(scores))
    rows = [
        (
            f"{row.epoch}{'*' if row is curve[best] else ''}",
            f"{row.train_loss:.4f}",
            f"{row.validation_loss:.4f}",
            f"{row.score:.2%}",
            draw_bar(row.score, low, high),
        )
        for row in (curve[index] for index in select_rows(len(curve), [best]))
    ]
    some = "" if len(rows) == len(curve) else f", {len(rows)} of {len(curve)} epochs"
    title = f"learning curve (validation {metric}; * best{some})"
    yield Grid(title, ("epoch", "train loss", "validation loss", metric, f"{low:.2%} to {high:.2%}"), rows)


def _list_times(record: RunRecord) -> Iterable[tuple[str, str]]:
    timing = record.timing
    yield from ((name, text) for name in ("started", "ended") if (text := getattr(record, name)))
    if "train_seconds" in timing:
        speed = f", {timing['tokens_per_second']:,.0f} tokens/s" if "tokens_per_second" in timing else ""
        yield "training", f"{timing['train_seconds']:,.1f} s, {record.steps:,} steps{speed}"
    if "test_seconds" in timing:
        yield "test", f"{timing['test_seconds']:,.1f} s"
    if record.resumed:
        yield "resumed", f"{record.resumed} times"


def _list_environment(record: RunRecord) -> list[tuple[str, str]]:
    """Return hardware, kernel and the recorded environment; a group of values is one line."""
    found = {"hardware": record.hardware, "kernel": record.kernel, **record.environment}
    return [(name, _spell(value)) for name, value in found.items() if value not in (None, "", [], {})]


def _list_settings(record: RunRecord) -> list[tuple[str, str]]:
    rows = [(section, _spell(record.spec.get(section) or {})) for section in SECTIONS]
    rows += [("data digest", record.data_digest), ("source digest", record.source_digest)]
    rows += [("note on data", text) for text in (*record.data_notes, *record.data_remarks)]
    return [(name, text) for name, text in rows if text]


def _spell(value: Any) -> str:
    """Return a text unchanged, a mapping as its keys and values on one line, another value as YAML."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {format_yaml(leaf)}" for key, leaf in flatten(value).items())
    return value if isinstance(value, str) else format_yaml(value)


def _list_files(folder: Path) -> list[tuple[str, str]]:
    """Return name and size in bytes of the files of a run, including those of sub-folders."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "run.lock")
    return [(path.relative_to(folder).as_posix(), f"{path.stat().st_size:,}") for path in paths]
