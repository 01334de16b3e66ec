"""Selection of the runs of a cell: planned ones, of the newest data and source, one per seed."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeGuard

from msbench.config.differences import compare_settings
from msbench.reporting.tables.contracts import Planned
from msbench.results.record import RunRecord

DECIDED = ("finished", "diverged")
"""Final statuses, which another attempt of the run would not change."""


@dataclass(frozen=True)
class Present:
    """The present code and data for runs of one model on one task.

    `source` is the digest of the present code and `data` that of the present data; they are empty where
    unknown. `chance` is the task's chance level. `unread` has a line for each run of the present code without
    a readable record.
    """

    source: str = ""
    data: str = ""
    chance: float | None = None
    unread: tuple[str, ...] = ()

    def made(self, record: RunRecord) -> bool:
        """Return True for a run of the present code and, where the present data are known, on them."""
        return (
            bool(self.source)
            and record.source_digest == self.source
            and self.data in ("", record.data_digest)
        )


NOWHERE = Present()
"""The `Present` with code and data unknown."""


@dataclass(frozen=True)
class CellRuns:
    """The runs of one model on one task, by outcome.

    `finished` has one run per seed, `unfinished` the newest run of every seed without a result, and
    `left_out` those on other data or from other source code than those that count.
    """

    finished: tuple[RunRecord, ...] = ()
    unfinished: tuple[RunRecord, ...] = ()
    left_out: tuple[RunRecord, ...] = ()
    present: Present = NOWHERE

    @property
    def newer(self) -> tuple[RunRecord, ...]:
        """The runs left out because of which the counted ones may not represent the present code.

        They are of the present code and data, or ended without a result after all that count.
        """
        counted = [ended(record) for record in (*self.finished, *self.unfinished)]
        return tuple(
            each
            for each in self.left_out
            if self.present.made(each) or (counted and not each.finished and ended(each) > max(counted))
        )

    @property
    def stale(self) -> bool:
        """True where the results are of other source code than the present one."""
        return any(
            record.source_digest != self.present.source for record in self.finished if self.present.source
        )


def ended(record: RunRecord) -> datetime:
    """Return the end time of the run, in UTC; the minimum `datetime` where the record has none."""
    try:
        moment = datetime.fromisoformat(record.ended)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def newest(records: Iterable[RunRecord]) -> RunRecord:
    """Return the run that ended last among those that finished or diverged, else among all.

    An interrupted rerun is no evidence about the code or data that it ran with.
    """
    pool = list(records)
    decided = [record for record in pool if record.status in DECIDED]
    return max(decided or pool, key=lambda record: (ended(record), record.run_id))


def chosen_data(records: Iterable[RunRecord], present: str = "") -> str:
    """Return the digest of the data whose runs count: the `present` data, or those of the newest run."""
    pool = list(records)
    return present if any(each.data_digest == present for each in pool) else newest(pool).data_digest


def outcome(records: Iterable[RunRecord], data_digest: str, present: Present = NOWHERE) -> CellRuns:
    """Sort the runs of one model on one task, of which those on the data `data_digest` count.

    Of these, runs of the present code count once one has finished or diverged, whatever their timestamps;
    without such a run, those of the code of the newest run.
    """
    pool = list(records)
    current = [record for record in pool if record.data_digest == data_digest]
    if current:
        decided = {record.source_digest for record in current if record.status in DECIDED}
        source = present.source if present.source in decided else newest(current).source_digest
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
    left_out = tuple(record for record in pool if id(record) not in kept)
    return CellRuns(tuple(finished), tuple(unfinished), left_out, present)


def usable(value: float | None) -> TypeGuard[float]:
    """Return True for a value that may enter a mean."""
    return value is not None and math.isfinite(value)


def difference(record: RunRecord, planned: Planned | None) -> str:
    """Return how a run's spec differs from the planned one, such as ``modified: train.max_steps 20``."""
    if planned is None:
        return "modified: not in the suite"
    asked, done = (
        {key: part for key, part in values.items() if key not in ("suite", "task", "seed")}
        for values in (planned.model_dump(mode="json"), record.spec)
    )
    # Most differ only in the seed; flattening thousands of them one by one would be slow.
    found = () if asked == done else compare_settings(asked, done)
    changed = [f"{change.name} {change.now_text}" for change in found]
    if not changed and record.seed != planned.seed:
        changed = [f"seed {record.seed}"]
    return f"modified: {', '.join(changed) or 'another version of the spec'}"
