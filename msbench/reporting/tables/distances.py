"""Conversion of measured mean mixing distances to a cell."""

import math
import statistics
from collections.abc import Mapping, Sequence

from msbench.reporting.tables.cells import Cell
from msbench.results.mixing_documents import Distances, find_comparable
from msbench.results.record import RunRecord


def distance(
    runs: Sequence[RunRecord],
    n_planned: int,
    measured: Mapping[str, Sequence[Distances]],
    notes: list[str],
) -> Cell:
    """Return the cell of these finished runs, one per seed: of each the newest measurement that counts.

    The spread is over layers, channels and examples: the root mean square of that of the seeds. `notes`
    gets a line on what is not shown.
    """
    of_runs = [measured.get(record.run_id, ()) for record in runs]
    found = [each for each in map(find_comparable, of_runs) if each is not None and each.mean is not None]
    other = sum(not each.counts for measurements in of_runs for each in measurements)
    if other:
        count = f"{other} measurement{'' if other == 1 else 's'}"
        notes.append(f"mixing distances with other options, or before training, are not shown: {count}")
    if not found:
        return Cell(n_planned=n_planned)
    spreads = [each.sd for each in found if each.sd is not None]
    return Cell(
        measured=statistics.fmean(each.mean for each in found if each.mean is not None),
        sd=math.hypot(*spreads) / math.sqrt(len(found)) if len(spreads) == len(found) else None,
        n=len(found),
        n_planned=n_planned,
        status="measured",
        run_ids=tuple(each.run_id for each in found),
    )
