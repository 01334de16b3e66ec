"""Check before training that the splits of a task can be scored."""

from collections.abc import Iterator

from msbench.datasets.dataset import Dataset
from msbench.errors import DataError
from msbench.training.auroc import scorable


def classes_left_out(dataset: Dataset) -> Iterator[str]:
    """Yield a line for each split whose macro AUROC leaves classes out; none for tasks of another metric.

    Raises DataError if not a single class can be scored: no epoch would then be the best, and the test would
    have no result.
    """
    if dataset.info.metric != "macro-auroc":
        return
    for name in ("validation", "test"):
        chosen = scorable(dataset.splits[name].targets)
        if not chosen.any():
            raise DataError(
                f"{name} split: none of its {len(chosen)} classes has both a positive and a negative example,"
                " so that macro AUROC is undefined; choose other labels or more records"
            )
        if not chosen.all():
            yield (
                f"{name}: macro AUROC is over {chosen.sum()} of {len(chosen)} classes;"
                " the others have no positive or no negative example"
            )
