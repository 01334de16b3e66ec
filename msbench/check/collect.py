"""Runs -> a baseline: every seed's result under the suite's protocol, for each class of hardware."""

import datetime
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from msbench import __version__
from msbench.gate.baseline_file import ANY, Baseline, Cells, Seen
from msbench.gate.rules import learned_rule
from msbench.report.collect import newest, outcome
from msbench.stats import spread
from msbench.store import RunRecord
from msbench.suite import Suite, plan
from msbench.suite_gate import DEFAULT_MARGIN, DEFAULT_REASON

Place = tuple[str, str, str]
"""Task, model and class of hardware."""
UNCOMPARED = {"date", "msbench"}
"""What a second writing of the same numbers leaves as it was."""


@dataclass
class Collected:
    """New entries by place, why some places have none, and which are of models that learned too little."""

    entries: dict[Place, Seen] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    unlearned: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Change:
    """One entry before and after; `old` is None where it is new."""

    place: Place
    old: Seen | None
    new: Seen


def collect(suite: Suite, records: Iterable[RunRecord], *, any_hardware: bool = False) -> Collected:
    """What the runs say of every task and model: those under the suite's protocol, whatever their seed.

    With `any_hardware` an entry speaks for all classes; it is made from runs on one. Places with a seed that
    diverged, or without the number of test examples, have no entry: the seeds that are left prove nothing.
    """
    collected = Collected()
    for (task, model), runs in _by_place(suite, records).items():
        kinds = dict.fromkeys(record.hardware for record in runs)
        if any_hardware and len(kinds) > 1:
            collected.left_out.append(f"{task} · {model}: runs on {', '.join(kinds)} are no one class")
            continue
        for kind in kinds:
            place = (task, model, ANY if any_hardware else kind)
            seen = _seen(suite, place, [record for record in runs if record.hardware == kind])
            if isinstance(seen, str):
                collected.left_out.append(f"{task} · {model} · {kind or 'unknown hardware'}: {seen}")
            else:
                collected.entries[place] = seen
                collected.unlearned += _unlearned(place, seen, runs)
    return collected


def _unlearned(place: Place, seen: Seen, runs: Sequence[RunRecord]) -> Iterator[str]:
    """That later results at this level will pass, though they are what a trivial rule or chance gives."""
    rules = {**runs[0].baselines, **({} if runs[0].chance is None else {"chance": runs[0].chance})}
    rule = learned_rule(seen.mean, seen.sd, seen.n, seen.n_test, rules)
    if rule is not None:
        told = f"{seen.mean:.2%} is what {rule!r} gives ({rules[rule]:.2%})"
        yield f"{' · '.join(place)}: {told}; this entry asks for no more"


def _by_place(suite: Suite, records: Iterable[RunRecord]) -> dict[tuple[str, str], list[RunRecord]]:
    """The runs that follow the protocol, by task and model, in the suite's order."""
    pool = list(records)
    specs = plan(suite, seeds=sorted({record.seed for record in pool})) if pool else []
    places = {spec.digest: (spec.task, spec.model_name) for spec in specs}
    found: dict[tuple[str, str], list[RunRecord]] = {place: [] for place in places.values()}
    for record in pool:
        if record.spec_digest in places:
            found[places[record.spec_digest]].append(record)
    return found


def _seen(suite: Suite, place: Place, runs: Sequence[RunRecord]) -> Seen | str:
    """The entry of these runs on one class of hardware, or why there is none."""
    task, model, kind = place
    last = newest(runs)
    found = outcome(runs, last.data_digest)
    broken = sorted(record.seed for record in found.unfinished if record.status == "diverged")
    done = [record for record in found.finished if record.result is not None]
    if broken:
        return f"seed {', '.join(map(str, broken))} diverged"
    if found.newer:
        listed = ", ".join(f"{record.run_id} {record.status}" for record in found.newer)
        return (
            f"newer runs, from other source code, have no result ({listed}); train them again, or delete them"
        )
    if not kind:
        return "the records do not say on what they ran"
    if not done:
        return "no run has a result"
    sizes = {record.n_test for record in done}
    if len(sizes) > 1 or None in sizes:
        return "the records do not agree on the number of test examples"
    try:
        return _entry(suite, task, model, done)
    except ValidationError as error:
        wrong = error.errors()[0]
        said = wrong["msg"].removeprefix("Value error, ")
        return f"the records cannot be meant: {wrong['loc'][0]}: {said}; train these runs again"


def _entry(suite: Suite, task: str, model: str, runs: Sequence[RunRecord]) -> Seen:
    values = tuple(record.result for record in runs if record.result is not None)
    layer = suite.gate.of(task, model)
    return Seen.model_validate(
        {
            "metric": runs[0].metric,
            "values": values,
            "seeds": tuple(record.seed for record in runs),
            "n": len(values),
            "mean": statistics.fmean(values),
            "sd": spread(values),
            "n_test": runs[0].n_test,
            "data": runs[0].data_digest,
            "source": runs[0].source_digest,
            "margin": layer.margin or DEFAULT_MARGIN,
            "reason": layer.reason or DEFAULT_REASON,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "msbench": __version__,
        }
    )


def merged(suite: Suite, old: Baseline | None, new: Collected) -> tuple[Baseline, list[Change]]:
    """The old baseline with the new entries in it, and what that changes.

    Entries that say the same keep their date; those of other hardware, tasks or models are kept.
    """
    before = dict(_places(old.cells)) if old else {}
    changes = [
        Change(place, before.get(place), seen)
        for place, seen in new.entries.items()
        if place not in before or _differs(before[place], seen)
    ]
    after = before | {change.place: change.new for change in changes}
    cells: dict[str, dict[str, dict[str, Seen]]] = defaultdict(lambda: defaultdict(dict))
    order = {name: index for index, name in enumerate((*suite.tasks, *suite.models))}
    for task, model, kind in sorted(after, key=lambda place: (order[place[0]], order[place[1]], place[2])):
        cells[task][model][kind] = after[task, model, kind]
    return Baseline(suite=suite.name, cells={task: dict(models) for task, models in cells.items()}), changes


def _places(cells: Cells) -> Iterator[tuple[Place, Seen]]:
    for task, models in cells.items():
        for model, classes in models.items():
            for kind, seen in classes.items():
                yield (task, model, kind), seen


def _differs(old: Seen, new: Seen) -> bool:
    return old.model_dump(exclude=UNCOMPARED) != new.model_dump(exclude=UNCOMPARED)
