"""Comparison of two runs: their settings, data, sources, environments and results."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from msbench.config.differences import (
    Change,
    compare_data,
    compare_environments,
    compare_settings,
    compare_sources,
)
from msbench.errors import DataError
from msbench.reporting.compare.curve import Epoch, read_curve, thinned
from msbench.reporting.compare.lookup import FoundRun, title
from msbench.reporting.compare.page import Facts, Grid, Part
from msbench.reporting.compare.paired import NoPairedTest, PairedTest, paired_test
from msbench.results.record import RunRecord

LABELS = ("suite", "task")
"""Settings that only place a run in the results folder, and are not compared."""
KINDS = {"settings": "settings", "data": "data", "sources": "source files", "environment": "machine"}
"""Names of the compared fields in words."""


@dataclass(frozen=True)
class RunDifference:
    """Two runs and the differences between them."""

    first: FoundRun
    second: FoundRun
    settings: tuple[Change, ...]
    data: tuple[Change, ...]
    sources: tuple[Change, ...]
    environment: tuple[Change, ...]
    test: PairedTest | NoPairedTest
    curves: tuple[list[Epoch], list[Epoch]]
    unreadable: tuple[str, ...] = ()
    """Errors for learning curves that cannot be read, which are empty here."""

    @property
    def gain(self) -> float | None:
        """Second - first, a fraction; None where either has no result or their metrics differ."""
        ours, theirs = self.first.record, self.second.record
        if ours.result is None or theirs.result is None or ours.metric != theirs.metric:
            return None
        return theirs.result - ours.result

    @property
    def same_run(self) -> bool:
        """True where both are the same run in the same folder."""
        return self.first.folder.resolve() == self.second.folder.resolve()

    @property
    def identical(self) -> bool:
        """True where inputs and outcome are the same, wherever and whenever the runs were executed."""
        outcome = [(each.record.status, each.record.metrics) for each in (self.first, self.second)]
        drawn = None if isinstance(self.test, NoPairedTest) else self.test.bootstrap
        same_answers = drawn is None or drawn.low == drawn.high == 0
        same_curves = self.curves[0] == self.curves[1] and not self.unreadable
        same_outcome = outcome[0] == outcome[1] and same_curves
        return not (self.settings or self.data or self.sources) and same_outcome and same_answers


def difference(first: FoundRun, second: FoundRun) -> RunDifference:
    """Compare two runs. Reads, never writes."""
    ours, theirs = first.record, second.record
    (curve, wrong), (other, other_wrong) = _curve(first), _curve(second)
    return RunDifference(
        first,
        second,
        compare_settings(_settings(ours), _settings(theirs)),
        compare_data(ours.data_digest, theirs.data_digest),
        compare_sources(ours.sources, theirs.sources, (ours.source_digest, theirs.source_digest)),
        compare_environments(_environment(ours), _environment(theirs)),
        paired_test(first, second),
        (curve, other),
        tuple(dict.fromkeys(filter(None, (wrong, other_wrong)))),
    )


def _settings(record: RunRecord) -> dict[str, Any]:
    return {key: value for key, value in record.spec.items() if key not in LABELS}


def _environment(record: RunRecord) -> dict[str, Any]:
    return {"kernel": record.kernel, **record.environment}


def _curve(found: FoundRun) -> tuple[list[Epoch], str]:
    """Return the epochs of a run, and an error message where they cannot be read."""
    try:
        return read_curve(found.folder, found.record.metric), ""
    except DataError as error:
        return [], str(error)


def as_dict(found: RunDifference) -> dict[str, Any]:
    """Return plain values for JSON: results and differences are fractions, and always second - first."""
    sides = ("first", "second")
    refused = isinstance(found.test, NoPairedTest)
    document: dict[str, Any] = {
        side: _head(each) for side, each in zip(sides, (found.first, found.second), strict=True)
    }
    for kind in KINDS:
        document[kind] = [change.as_dict(*sides) for change in getattr(found, kind)]
    return document | {
        "same_run": found.same_run,
        "identical": found.identical,
        "difference": found.gain,
        "paired": None if refused else asdict(found.test),
        "no_paired_test": found.test.reason if isinstance(found.test, NoPairedTest) else None,
        "curve": [
            {"epoch": epoch, **{side: _plain(each) for side, each in zip(sides, pair, strict=True)}}
            for epoch, *pair in _beside(found.curves)
        ],
        "unreadable": list(found.unreadable),
    }


def _head(found: FoundRun) -> dict[str, Any]:
    record = found.record
    names = ("run_id", "suite", "task", "model", "seed", "status", "metric", "result", "n_test", "ended")
    return {name: getattr(record, name) for name in names} | {"folder": str(found.folder)}


def _plain(epoch: Epoch | None) -> dict[str, Any] | None:
    return None if epoch is None else {key: value for key, value in asdict(epoch).items() if key != "epoch"}


def pages(found: RunDifference) -> Iterable[Part]:
    """Yield the parts to print, in order."""
    ours, theirs = found.first.record, found.second.record
    yield Facts("two runs", [("first", title(ours)), ("second", title(theirs)), ("", _verdict(found))])
    yield Facts("result", list(_result(found)))
    yield from _tests(found.test)
    yield _grid("settings", found.settings)
    yield _grid("data", found.data)
    yield _grid("source files", [change for change in found.sources if all(change.sides)])
    yield Facts("source files that only one uses", list(_one_sided(found.sources)))
    yield _grid("machine", found.environment)
    yield from _curves(found)


def _verdict(found: RunDifference) -> str:
    if found.same_run:
        return "these are one and the same run"
    if found.identical:
        return "identical: settings, data, source, learning curve and result are the same"
    differing = [words for kind, words in KINDS.items() if getattr(found, kind)]
    return f"what differs: {', '.join(differing) or 'what came of it, and nothing that was asked'}"


def _result(found: RunDifference) -> Iterable[tuple[str, str]]:
    for name, each in (("first", found.first.record), ("second", found.second.record)):
        value = "--" if each.result is None else f"{each.result:.2%}"
        yield name, value if each.finished else f"{value} ({each.status})"
    if found.gain is not None:
        yield "difference", f"{_points(found.gain)} in {found.first.record.metric}"


def _tests(test: PairedTest | NoPairedTest) -> Iterable[Part]:
    if isinstance(test, NoPairedTest):
        yield Facts("paired test", [("", f"none: {test.reason}")])
        return
    drawn, counts = test.bootstrap, test.counts
    inside = f"{_points(drawn.low)} to {_points(drawn.high)}"
    how = f"paired bootstrap of {test.n:,} test examples, {test.draws:,} draws"
    rows = [("95 % interval", f"{inside} ({how})"), ("bootstrap", f"p = {drawn.p:.2g}")]
    if test.mcnemar is not None:
        rows.append(("McNemar, exact", f"p = {test.mcnemar:.2g}"))
    yield Facts("paired test, second less first", rows)
    if counts is None:
        return
    listed = {
        "both right": counts.both,
        "only the first": counts.only_first,
        "only the second": counts.only_second,
        "both wrong": counts.neither,
    }
    yield Grid("test examples", tuple(listed), [[f"{count:,}" for count in listed.values()]])


def _grid(name: str, found: Sequence[Change]) -> Grid:
    rows = [(change.name, change.before_text, change.now_text) for change in found]
    return Grid(f"{name} that differ", (name, "first", "second"), rows)


def _one_sided(sources: Sequence[Change]) -> Iterable[tuple[str, str]]:
    """Yield the files that only one run uses: another model imports other files, which is no change."""
    for name, sides in (("first", (True, False)), ("second", (False, True))):
        if files := [change.name for change in sources if change.sides == sides]:
            yield name, ", ".join(files)


def _curves(found: RunDifference) -> Iterable[Part]:
    yield Facts("learning curves that cannot be read", [("", text) for text in found.unreadable])
    beside = list(_beside(found.curves))
    chosen = set(thinned(len(beside)))
    rows = [_curve_row(*row) for index, row in enumerate(beside) if index in chosen]
    some = "" if len(rows) == len(beside) else f", {len(rows)} of {len(beside)} epochs"
    metric = found.first.record.metric
    header = ("epoch", "loss 1", "loss 2", f"{metric} 1", f"{metric} 2", "difference")
    yield Grid(f"learning curves (training loss, validation {metric}{some})", header, rows)


Beside = tuple[int, Epoch | None, Epoch | None]


def _beside(curves: tuple[list[Epoch], list[Epoch]]) -> Iterable[Beside]:
    first, second = ({row.epoch: row for row in curve} for curve in curves)
    for epoch in sorted(first.keys() | second.keys()):
        yield epoch, first.get(epoch), second.get(epoch)


def _curve_row(epoch: int, first: Epoch | None, second: Epoch | None) -> tuple[str, ...]:
    losses = ["--" if row is None else f"{row.train_loss:.4f}" for row in (first, second)]
    scores = ["--" if row is None else f"{row.score:.2%}" for row in (first, second)]
    gain = "--" if first is None or second is None else _points(second.score - first.score)
    return (str(epoch), *losses, *scores, gain)


def _points(fraction: float) -> str:
    """Return a difference of two fractions as text in percentage points."""
    return f"{100 * fraction:+.2f} pp"
