"""What a run answered, example by example: ``predictions.parquet`` read back and held against its record."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from msbench.comparison.lookup import Found
from msbench.errors import DataError
from msbench.training.auroc import macro_auroc

if TYPE_CHECKING:
    import pandas as pd

CLOSE = 1e-6
"""A result as recorded and as counted from the predictions may differ by rounding and no more."""


@dataclass(frozen=True)
class Answers:
    """`examples` are numbers (n,); `labels` are (n,), or (n, classes) of 0 and 1 with several an example.

    `correct` (n,) says which examples are right, `scores` (n, classes) how classes are ranked: the former
    where an example has one label, the latter where it may have several.
    """

    examples: NDArray[np.int64]
    labels: NDArray[np.int64]
    correct: NDArray[np.bool_] | None = None
    scores: NDArray[np.float64] | None = None

    @property
    def result(self) -> float:
        """Accuracy, or macro AUROC, as a fraction."""
        if self.correct is not None:
            return float(self.correct.mean())
        assert self.scores is not None, "an example has one label or several"
        return macro_auroc(self.scores, self.labels).value


def read_answers(found: Found) -> Answers:
    """The answers behind the result of a finished run.

    Raises DataError, naming the file, where there are none, where they are no predictions, and where they do
    not give the result that the record has.
    """
    import pandas as pd  # an accuracy is shown without reading any answer

    path = found.folder / "predictions.parquet"
    try:
        answers = _answers(pd.read_parquet(path))
        result = answers.result
    except FileNotFoundError:
        raise DataError(f"run {found.record.run_id} has no predictions: no {path}") from None
    except (OSError, KeyError, ValueError) as error:
        raise DataError(f"{path}: not the predictions of a run: {_first_line(error)}") from None
    recorded = found.record.result
    if recorded is None or abs(result - recorded) > CLOSE:
        raise DataError(f"{path}: gives {found.record.metric} {result:.6f}, and the record has {recorded}")
    return answers


def _answers(table: "pd.DataFrame") -> Answers:
    if not len(table):
        raise ValueError("no examples")
    examples = table["example"].to_numpy(np.int64)
    if "label" in table:
        return Answers(examples, table["label"].to_numpy(np.int64), table["correct"].to_numpy(np.bool_))
    classes = range(sum(str(name).startswith("label_") for name in table.columns))
    labels = table[[f"label_{each}" for each in classes]].to_numpy(np.int64)
    scores = table[[f"logit_{each}" for each in classes]].to_numpy(np.float64)
    return Answers(examples, labels, scores=scores)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
