"""The average of several tasks, from their cells."""

import math
import statistics
from collections.abc import Sequence

from msbench.reporting.tables.cells import Cell


def average(label: str, parts: Sequence[tuple[str, Cell]]) -> Cell:
    """Return the mean over tasks, each given with its heading: a value only if every task was measured.

    Otherwise it is missing, with a mark that names the missing tasks if any task was measured. The spread is
    that of an average of one run per task: runs of different tasks are independent, whatever their seeds.
    Without a spread in every task there is none. `n` and `n_planned` are those of the task that lacks most.
    """
    cells = [cell for _, cell in parts]
    planned = max((cell.n_planned for cell in cells), default=0)
    lacking = [f"{name} {cell.status}" for name, cell in parts if cell.measured is None]
    if lacking or not cells:
        some = len(lacking) < len(cells)
        marks = (f"{label} is not computed: {', '.join(lacking)}",) if some else ()
        return Cell(n_planned=planned, marks=marks)
    return Cell(
        measured=statistics.fmean(cell.measured for cell in cells if cell.measured is not None),
        sd=_spread([cell.sd for cell in cells]),
        n=min(cell.n for cell in cells),
        n_planned=planned,
        status="measured",
        run_ids=tuple(dict.fromkeys(identity for cell in cells for identity in cell.run_ids)),
    )


def _spread(deviations: Sequence[float | None]) -> float | None:
    known = [deviation for deviation in deviations if deviation is not None]
    return math.hypot(*known) / len(known) if len(known) == len(deviations) else None
