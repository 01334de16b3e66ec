"""Which runs speak for a cell: the planned ones, from the newest data and source, one a seed."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeGuard

from msbench.config import differences as changes
from msbench.reporting.tables.contracts import Planned
from msbench.results.store import RunRecord

DECIDED = ("finished", "diverged")
"""What another attempt of a run would not change."""


@dataclass(frozen=True)
class Present:
    """What a run of one model on one task would be made of now.

    `source` is the digest of the code here and `data` that of the data here; they are empty where that is
    not known. `chance` is the task's chance level. `unread` has a line for each run of the present code that
    has no readable record.
    """

    source: str = ""
    data: str = ""
    chance: float | None = None
    unread: tuple[str, ...] = ()

    def made(self, record: RunRecord) -> bool:
        """True for a run of the code that is here, on the data that are here as far as they are known."""
        return (
            bool(self.source)
            and record.source_digest == self.source
            and self.data in ("", record.data_digest)
        )


NOWHERE = Present()
"""Where neither code nor data are known."""


@dataclass(frozen=True)
class CellRuns:
    """What the runs of one model on one task came to.

    `finished` has one run a seed, `unfinished` the newest run of every seed without a result, and `left_out`
    those on other data or from other source code than those that count.
    """

    finished: tuple[RunRecord, ...] = ()
    unfinished: tuple[RunRecord, ...] = ()
    left_out: tuple[RunRecord, ...] = ()
    present: Present = NOWHERE

    @property
    def newer(self) -> tuple[RunRecord, ...]:
        """Those left out that keep the others from standing for the present code.

        They are of the code and data that are here, or ended without a result after all that count.
        """
        counted = [ended(record) for record in (*self.finished, *self.unfinished)]
        return tuple(
            each
            for each in self.left_out
            if self.present.made(each) or (counted and not each.finished and ended(each) > max(counted))
        )

    @property
    def stale(self) -> bool:
        """True where the results are of other source code than what is here."""
        return any(
            record.source_digest != self.present.source for record in self.finished if self.present.source
        )


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
    decided = [record for record in pool if record.status in DECIDED]
    return max(decided or pool, key=lambda record: (ended(record), record.run_id))


def chosen_data(records: Iterable[RunRecord], present: str = "") -> str:
    """The digest of the data whose runs count: the `present` ones, or else those of the newest run."""
    pool = list(records)
    return present if any(each.data_digest == present for each in pool) else newest(pool).data_digest


def outcome(records: Iterable[RunRecord], data_digest: str, present: Present = NOWHERE) -> CellRuns:
    """Sort the runs of one model on one task, of which those on the data `data_digest` count.

    Of these, runs of the present code count once one has come to a result, whatever their clocks say; without
    such a run, those of the newest.
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
