"""Page of a single run: the result first, then the command that reproduces it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msbench.config.differences import flatten, format_yaml
from msbench.config.run import SECTIONS
from msbench.errors import DataError
from msbench.reporting.compare.curve import Epoch, bar, read_curve, thinned
from msbench.reporting.compare.lookup import FoundRun, title
from msbench.reporting.compare.page import Facts, Grid, Part
from msbench.reporting.compare.paired import interval
from msbench.reporting.compare.standing import RunStanding, standing
from msbench.results.record import RunRecord, get_metric_key
from msbench.runs.reproduce import KEPT, Again, again
from msbench.stats import learned_rule

FILES = 12
"""The most changed source files that are named."""


@dataclass(frozen=True)
class Shown:
    """A run and all that is known of it here. `interval` is that of its result, with its method."""

    found: FoundRun
    again: Again
    standing: RunStanding
    curve: list[Epoch]
    files: list[tuple[str, int]]
    interval: str = ""
    curve_error: str = ""


def look_at(found: FoundRun, results: Path, data_root: Path, suite_file: Path | None = None) -> Shown:
    """Gather the contents of `pages`. Reads, never writes."""
    record, curve, error = found.record, list[Epoch](), ""
    try:
        curve = read_curve(found.folder, record.metric)
    except DataError as damaged:
        error = str(damaged)
    made, now = again(record, suite_file, results), standing(record, data_root)
    return Shown(found, made, now, curve, files_of(found.folder), interval(found), error)


def files_of(folder: Path) -> list[tuple[str, int]]:
    """Return name and size in bytes of the files of a run, including those of sub-folders."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "run.lock")
    return [(path.relative_to(folder).as_posix(), path.stat().st_size) for path in paths]


def pages(shown: Shown) -> Iterable[Part]:
    """Yield the parts to print, in order."""
    record = shown.found.record
    yield Facts(title(record), list(_result(record, shown.interval)))
    yield again_facts(shown.again, record)
    yield _now(shown)
    yield _departures(shown.again)
    yield from _curve(shown)
    yield Facts("time", list(_time(record)))
    yield Facts("ran on", environment_facts(record))
    if len(record.attempts) > 1:
        yield Grid("attempts", *_table(record.attempts))
    yield Facts("settings", _settings(record))
    yield Grid(f"files in {shown.found.folder}", ("file", "bytes"), [(n, f"{b:,}") for n, b in shown.files])


def _result(record: RunRecord, interval: str) -> Iterable[tuple[str, str]]:
    """Yield status, the metric on the test split with its interval, and values to compare it with."""
    yield "status", record.status
    if record.failure is not None:
        yield "failure", f"{record.failure.type}: {record.failure.message}"
    if record.result is not None:
        yield record.metric, f"{record.result:.2%}{f', {interval}' if interval else ''}"
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
    if rule := _explaining_rule(record):
        yield "learned", f"no more than the trivial rule {rule!r} explains"
    if record.parameters is not None:
        states = f", {record.states_per_channel:,} states a channel" if record.states_per_channel else ""
        yield "size", f"{record.parameters:,} parameters{states}"


def _explaining_rule(record: RunRecord) -> str | None:
    if record.metric != "accuracy" or record.result is None or not record.n_test:
        return None
    return learned_rule(record.result, None, 1, record.n_test, record.baselines)


def again_facts(found: Again, record: RunRecord) -> Facts:
    """Return the command that reproduces the run, or the reason why there is none."""
    if not found.command:
        return Facts("to make it again", [("", f"no command is known: {found.reason}")])
    kept = record.status in ("finished", "diverged")
    note = KEPT if kept else "where it is, this goes on or tries again"
    return Facts("to make it again", [("", found.line), ("", f"({note})")], frozenset({""}))


def _now(shown: Shown) -> Facts:
    """Return facts on the id that the command would give now, and on what has changed."""
    record, now = shown.found.record, shown.standing
    files = [change for change in now.changes if change.kind == "source"]
    others = [change for change in now.changes if change.kind != "source"]
    rows = [
        (change.name, f"{change.before_text} → {change.now_text}") for change in (*others, *files[:FILES])
    ]
    if len(files) > FILES:
        rows.append(("", f"and {len(files) - FILES} more files"))
    return Facts("with what is here now", [("id", verdict(record, now)), *rows])


def verdict(record: RunRecord, now: RunStanding) -> str:
    """Return a text on whether the same command would give the same id now."""
    if now.run_id == record.run_id:
        return "the same: settings, data and source are as they were"
    if now.run_id is not None:
        return f"another, {now.run_id}: " + (_counted(now) or "its record does not tell why")
    told = f"; another in any case: {_counted(now)}" if now.changes else ""
    return f"cannot be told: {now.reason}{told}"


def _counted(now: RunStanding) -> str:
    words = {"setting": "settings", "data": "data", "source": "source"}
    return ", ".join(text for kind, text in words.items() if any(c.kind == kind for c in now.changes)) + (
        " changed" if now.changes else ""
    )


def _departures(found: Again) -> Facts:
    rows = [
        (change.name, f"{change.now_text} (planned: {change.before_text})") for change in found.departures
    ]
    return Facts("not as its suite plans it", rows)


def _curve(shown: Shown) -> Iterable[Part]:
    record, curve = shown.found.record, shown.curve
    if shown.curve_error:
        yield Facts("learning curve", [("", shown.curve_error)])
    if not curve:
        return
    best = max(range(len(curve)), key=lambda index: curve[index].score)
    low, high = min(row.score for row in curve), max(row.score for row in curve)
    rows = [
        (
            f"{row.epoch}{'*' if index == best else ''}",
            f"{row.train_loss:.4f}",
            f"{row.validation_loss:.4f}",
            f"{row.score:.2%}",
            bar(row.score, low, high),
        )
        for index, row in enumerate(curve)
        if index in thinned(len(curve), [best])
    ]
    some = "" if len(rows) == len(curve) else f", {len(rows)} of {len(curve)} epochs"
    yield Grid(
        f"learning curve (validation {record.metric}; * best{some})",
        ("epoch", "train loss", "validation loss", record.metric, f"{low:.2%} to {high:.2%}"),
        rows,
    )


def _time(record: RunRecord) -> Iterable[tuple[str, str]]:
    timing = record.timing
    yield from ((name, text) for name in ("started", "ended") if (text := getattr(record, name)))
    if "train_seconds" in timing:
        speed = f", {timing['tokens_per_second']:,.0f} tokens/s" if "tokens_per_second" in timing else ""
        yield "training", f"{timing['train_seconds']:,.1f} s, {record.steps:,} steps{speed}"
    if "test_seconds" in timing:
        yield "test", f"{timing['test_seconds']:,.1f} s"
    if record.resumed:
        yield "resumed", f"{record.resumed} times"


def environment_facts(record: RunRecord) -> list[tuple[str, str]]:
    """Return machine, versions and state of the checkout; values missing in an older record are left out."""
    found = record.environment
    git, packages = found.get("git") or {}, found.get("packages") or {}
    versions = {"python": found.get("python"), **packages, "cuda": found.get("cuda")}
    dirty = ", with uncommitted changes" if git.get("dirty") else ""
    rows = [
        ("device", ", ".join(filter(None, (record.hardware, _text(found.get("cpu")))))),
        ("kernel", _text(record.kernel)),
        ("threads", f"{found['threads']} of {found.get('cores')} cores" if "threads" in found else ""),
        ("numerics", numerics_text(found)),
        ("host", ", ".join(filter(None, (_text(found.get("host")), _text(found.get("platform")))))),
        ("versions", ", ".join(f"{name} {value}" for name, value in versions.items() if value)),
        ("commit", f"{git['commit']}{dirty}" if "commit" in git else ""),
        ("container", ", ".join(f"{key} {value}" for key, value in (found.get("container") or {}).items())),
    ]
    return [(name, text) for name, text in rows if text]


def numerics_text(found: Mapping[str, Any]) -> str:
    """Return the numerical settings in the environment of a record; older records have fewer of them."""
    precision, cudnn = found.get("matmul_precision"), found.get("cudnn") or {}
    places = [
        name for name, on in (("products", found.get("tf32")), ("cuDNN", cudnn.get("tf32"))) if on is True
    ]
    parts = [
        "deterministic" if found.get("deterministic") is True else "",
        f"matrix products {precision}" if precision else "",
        f"TF32 allowed in {' and '.join(places)}" if places else "",
    ]
    return ", ".join(filter(None, parts))


def _settings(record: RunRecord) -> list[tuple[str, str]]:
    rows = [(section, _listed(record.spec.get(section) or {})) for section in SECTIONS]
    rows += [("data digest", record.data_digest), ("source digest", record.source_digest)]
    rows += [("note on data", text) for text in record.data_notes]
    return [(name, text) for name, text in rows if text]


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {format_yaml(value)}" for key, value in flatten(settings).items())


def _table(rows: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    listed = list(rows)
    header = tuple(dict.fromkeys(key for row in listed for key in row))
    return header, [tuple(row.get(key) for key in header) for row in listed]


def _text(value: object) -> str:
    return "" if value is None else str(value)
