"""Which runs speak for a cell: the planned ones, from the newest data and source, one a seed."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeGuard

from msbench import changes
from msbench.report.contracts import Planned
from msbench.store import RunRecord


@dataclass(frozen=True)
class Outcome:
    """What the runs of one model on one task came to.

    `finished` has one run a seed, `unfinished` the newest run of every seed without a result, and
    `set_aside` those on other data or from other source code than the newest.
    """

    finished: tuple[RunRecord, ...] = ()
    unfinished: tuple[RunRecord, ...] = ()
    set_aside: tuple[RunRecord, ...] = ()

    @property
    def newer(self) -> tuple[RunRecord, ...]:
        """Those set aside that ended without a result after all that count.

        Whatever they ran, newer code perhaps, has shown no result: those that count do not speak for it.
        """
        counted = [ended(record) for record in (*self.finished, *self.unfinished)]
        if not counted:
            return ()
        return tuple(each for each in self.set_aside if not each.finished and ended(each) > max(counted))


def ended(record: RunRecord) -> datetime:
    """When the run ended, in UTC; the beginning of time where its record does not say."""
    try:
        moment = datetime.fromisoformat(record.ended)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def newest(records: Iterable[RunRecord]) -> RunRecord:
    """The run that ended last among those that came to a result or diverged, else among all.

    A rerun that was interrupted says nothing about the code or data it ran with.
    """
    pool = list(records)
    decided = [record for record in pool if record.status in ("finished", "diverged")]
    return max(decided or pool, key=lambda record: (ended(record), record.run_id))


def outcome(records: Iterable[RunRecord], data_digest: str) -> Outcome:
    """Sort the runs of one model on one task; those on other data than `data_digest` are set aside."""
    pool = list(records)
    current = [record for record in pool if record.data_digest == data_digest]
    if current:
        source = newest(current).source_digest
        current = [record for record in current if record.source_digest == source]
    kept = {id(record) for record in current}
    by_seed: dict[int, list[RunRecord]] = {}
    for record in current:
        by_seed.setdefault(record.seed, []).append(record)
    finished: list[RunRecord] = []
    unfinished: list[RunRecord] = []
    for _, runs in sorted(by_seed.items()):
        done = [record for record in runs if record.finished]
        (finished if done else unfinished).append(newest(done or runs))
    aside = tuple(record for record in pool if id(record) not in kept)
    return Outcome(tuple(finished), tuple(unfinished), aside)


def usable(value: float | None) -> TypeGuard[float]:
    """True for a value that may enter a mean."""
    return value is not None and math.isfinite(value)


def difference(record: RunRecord, planned: Planned | None) -> str:
    """How the spec of a run differs from the planned one, such as ``modified: train.max_steps 20``."""
    if planned is None:
        return "modified: not in the suite"
    asked, done = (
        {key: part for key, part in values.items() if key not in ("suite", "task", "seed")}
        for values in (planned.model_dump(mode="json"), record.spec)
    )
    # Most have another seed and nothing else: thousands of them must not be flattened one by one.
    found = () if asked == done else changes.settings(asked, done)
    changed = [f"{change.name} {change.now_text}" for change in found]
    if not changed and record.seed != planned.seed:
        changed = [f"seed {record.seed}"]
    return f"modified: {', '.join(changed) or 'another version of the spec'}"
