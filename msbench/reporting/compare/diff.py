"""Differences between two runs (``diff``), and between planned runs and stored ones (``explain``)."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from msbench.config.differences import Change, compare_data, compare_settings, compare_sources
from msbench.errors import DataError
from msbench.reporting.compare.lookup import format_run_title
from msbench.reporting.compare.page import Facts, Grid, Part, select_rows
from msbench.reporting.outcomes import Epoch, FoundRun, PairedTest, read_curve, run_paired_test
from msbench.results.record import RunRecord
from msbench.runs.plan import PlannedRun, describe_run

LABELS = ("suite", "task")
"""Settings that only place a run in the results folder, and are not compared."""
KINDS = {"settings": "settings", "data": "data", "sources": "source files", "environment": "machine"}
"""The kinds of differences, and their names on a page."""
SIDES = ("first", "second")


@dataclass(frozen=True)
class RunDifference:
    """Two runs and the differences between them."""

    first: FoundRun
    second: FoundRun
    changes: dict[str, tuple[Change, ...]]
    """The differences of each of `KINDS`."""
    test: PairedTest | None
    no_test: str
    """The reason why there is no paired test."""
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
        first, second = self.first.record, self.second.record
        same_inputs = not any(self.changes[kind] for kind in ("settings", "data", "sources"))
        same_answers = self.test is None or self.test.bootstrap.low == self.test.bootstrap.high == 0
        same_curves = self.curves[0] == self.curves[1] and not self.unreadable
        same_outcome = (first.status, first.metrics) == (second.status, second.metrics)
        return same_inputs and same_answers and same_curves and same_outcome


def compare_runs(first: FoundRun, second: FoundRun) -> RunDifference:
    """Compare two runs. Reads, never writes."""
    ours, theirs = first.record, second.record
    (curve, problem), (other, other_problem) = (
        read_curve(each.folder, each.record.metric) for each in (first, second)
    )
    changes = {
        "settings": compare_settings(_select_settings(ours), _select_settings(theirs)),
        "data": compare_data(ours.data_digest, theirs.data_digest),
        "sources": compare_sources(ours.sources, theirs.sources, (ours.source_digest, theirs.source_digest)),
        "environment": compare_settings(
            {"kernel": ours.kernel, **ours.environment},
            {"kernel": theirs.kernel, **theirs.environment},
            kind="environment",
        ),
    }
    test, no_test = None, ""
    try:
        test = run_paired_test(first, second)
    except DataError as error:
        no_test = str(error)
    unreadable = tuple(dict.fromkeys(filter(None, (problem, other_problem))))
    return RunDifference(first, second, changes, test, no_test, (curve, other), unreadable)


def _select_settings(record: RunRecord) -> dict[str, Any]:
    return {key: value for key, value in record.spec.items() if key not in LABELS}


def build_document(found: RunDifference) -> dict[str, Any]:
    """Return plain values for JSON: results and differences are fractions, and always second - first."""
    names = ("run_id", "suite", "task", "model", "seed", "status", "metric", "result", "n_test", "ended")
    document: dict[str, Any] = {
        side: {name: getattr(each.record, name) for name in names} | {"folder": str(each.folder)}
        for side, each in zip(SIDES, (found.first, found.second), strict=True)
    }
    for kind in KINDS:
        document[kind] = [change.as_dict(*SIDES) for change in found.changes[kind]]
    return document | {
        "same_run": found.same_run,
        "identical": found.identical,
        "difference": found.gain,
        "paired": None if found.test is None else asdict(found.test),
        "no_paired_test": found.no_test or None,
        "curve": [
            {"epoch": epoch, **{side: _as_values(each) for side, each in zip(SIDES, pair, strict=True)}}
            for epoch, *pair in _pair_epochs(found.curves)
        ],
        "unreadable": list(found.unreadable),
    }


def _as_values(epoch: Epoch | None) -> dict[str, Any] | None:
    return None if epoch is None else {key: value for key, value in asdict(epoch).items() if key != "epoch"}


def build_page(found: RunDifference) -> Iterable[Part]:
    """Yield the parts to print, in order."""
    ours, theirs = found.first.record, found.second.record
    runs = [("first", format_run_title(ours)), ("second", format_run_title(theirs)), ("", _summarise(found))]
    yield Facts("two runs", runs)
    yield Facts("result", list(_list_results(found)))
    yield from _lay_out_tests(found)
    yield _make_grid("settings", found.changes["settings"])
    yield _make_grid("data", found.changes["data"])
    sources = found.changes["sources"]
    yield _make_grid("source files", [change for change in sources if all(change.sides)])
    yield Facts("source files that only one uses", list(_list_one_sided(sources)))
    yield _make_grid("machine", found.changes["environment"])
    yield from _lay_out_curves(found)


def _summarise(found: RunDifference) -> str:
    if found.same_run:
        return "these are one and the same run"
    if found.identical:
        return "identical: settings, data, source, learning curve and result are the same"
    differing = [words for kind, words in KINDS.items() if found.changes[kind]]
    return f"what differs: {', '.join(differing) or 'only the outcome'}"


def _list_results(found: RunDifference) -> Iterable[tuple[str, str]]:
    for name, each in zip(SIDES, (found.first.record, found.second.record), strict=True):
        value = "--" if each.result is None else f"{each.result:.2%}"
        yield name, value if each.finished else f"{value} ({each.status})"
    if found.gain is not None:
        yield "difference", f"{_format_points(found.gain)} in {found.first.record.metric}"


def _lay_out_tests(found: RunDifference) -> Iterable[Part]:
    test = found.test
    if test is None:
        yield Facts("paired test", [("", f"none: {found.no_test}")])
        return
    inside = f"{_format_points(test.bootstrap.low)} to {_format_points(test.bootstrap.high)}"
    how = f"paired bootstrap of {test.n:,} test examples, {test.draws:,} draws"
    rows = [("95 % interval", f"{inside} ({how})"), ("bootstrap", f"p = {test.bootstrap.p:.2g}")]
    if test.mcnemar is not None:
        rows.append(("McNemar, exact", f"p = {test.mcnemar:.2g}"))
    yield Facts("paired test, second - first", rows)
    if test.counts is not None:
        header = ("both right", "only the first", "only the second", "both wrong")
        yield Grid("test examples", header, [[f"{count:,}" for count in asdict(test.counts).values()]])


def _make_grid(name: str, found: Sequence[Change]) -> Grid:
    rows = [(change.name, change.before_text, change.now_text) for change in found]
    return Grid(f"{name} that differ", (name, *SIDES), rows)


def _list_one_sided(sources: Sequence[Change]) -> Iterable[tuple[str, str]]:
    """Yield the files that only one run uses: another model imports other files, which is no change."""
    for name, sides in zip(SIDES, ((True, False), (False, True)), strict=True):
        if files := [change.name for change in sources if change.sides == sides]:
            yield name, ", ".join(files)


def _lay_out_curves(found: RunDifference) -> Iterable[Part]:
    yield Facts("learning curves that cannot be read", [("", text) for text in found.unreadable])
    epochs = list(_pair_epochs(found.curves))
    rows = [_make_row(*epochs[index]) for index in select_rows(len(epochs))]
    some = "" if len(rows) == len(epochs) else f", {len(rows)} of {len(epochs)} epochs"
    metric = found.first.record.metric
    header = ("epoch", "loss 1", "loss 2", f"{metric} 1", f"{metric} 2", "difference")
    yield Grid(f"learning curves (training loss, validation {metric}{some})", header, rows)


def _pair_epochs(curves: Iterable[list[Epoch]]) -> Iterable[tuple[int, Epoch | None, Epoch | None]]:
    first, second = ({row.epoch: row for row in curve} for curve in curves)
    for epoch in sorted(first.keys() | second.keys()):
        yield epoch, first.get(epoch), second.get(epoch)


def _make_row(epoch: int, first: Epoch | None, second: Epoch | None) -> tuple[str, ...]:
    losses = ["--" if row is None else f"{row.train_loss:.4f}" for row in (first, second)]
    scores = ["--" if row is None else f"{row.score:.2%}" for row in (first, second)]
    gain = "--" if first is None or second is None else _format_points(second.score - first.score)
    return (str(epoch), *losses, *scores, gain)


def _format_points(fraction: float) -> str:
    """Return a difference of two fractions as text in percentage points."""
    return f"{100 * fraction:+.2f} pp"


def build_plan_document(entries: Iterable[PlannedRun]) -> list[dict[str, Any]]:
    """Return the rows of the plan for JSON, each with its nearest stored run and the changes since."""
    return [
        {"suite": entry.spec.suite}
        | describe_run(entry)
        | {
            "unlike": entry.nearest.run_id if entry.nearest else None,
            "changes": [change.as_dict() for change in entry.changes],
        }
        for entry in entries
    ]


def build_plan_page(entries: Iterable[PlannedRun]) -> Iterable[Part]:
    """Yield a table for each group of planned runs with the same changes since the nearest stored run."""
    groups: dict[str, list[PlannedRun]] = {}
    for entry in entries:
        if entry.changes:
            groups.setdefault(repr(entry.changes), []).append(entry)
    for group in groups.values():
        rows = [(change.name, change.before_text, change.now_text) for change in group[0].changes]
        yield Grid(_make_group_title(group), ("what", "stored", "now"), rows)


def _make_group_title(group: Sequence[PlannedRun]) -> str:
    """Return a title with the runs by task and model, their seeds, and the stored runs they differ from."""
    seeds: dict[tuple[str, str], list[str]] = {}
    for entry in group:
        seeds.setdefault((entry.spec.task, entry.spec.model_name), []).append(str(entry.spec.seed))
    runs = [f"{task} {model} seed {', '.join(listed)}" for (task, model), listed in seeds.items()]
    stored = dict.fromkeys(entry.nearest.run_id for entry in group if entry.nearest)
    return f"{'; '.join(runs)}: since {', '.join(stored)}"
