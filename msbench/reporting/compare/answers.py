"""Predictions of a run by example, checked against its record."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from msbench.errors import DataError
from msbench.reporting.compare.lookup import FoundRun
from msbench.results.predictions import FILE, read_correct, read_examples, read_scores
from msbench.training.auroc import macro_auroc

CLOSE = 1e-6
"""Tolerance, for rounding, between the recorded result and that computed from the predictions."""


@dataclass(frozen=True)
class Answers:
    """Predictions of a run on its test examples.

    `examples` are numbers (n,); `labels` are (n,), or (n, classes) of 0 and 1 with several per example.
    `correct` (n,) is True for correct predictions and is set where an example has one label; `scores`
    (n, classes) rank the classes and are set where it may have several.
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


def read_answers(found: FoundRun) -> Answers:
    """Read the predictions of a finished run.

    Raises DataError, naming the file, where it is absent, where it has no valid predictions, and where they
    do not give the recorded result.
    """
    path = found.folder / FILE
    answers = _answers(found)
    try:
        result = answers.result
    except ValueError as error:
        raise DataError(f"{path}: not the predictions of a run: {error}") from None
    recorded = found.record.result
    if recorded is None or abs(result - recorded) > CLOSE:
        raise DataError(f"{path}: gives {found.record.metric} {result:.6f}, and the record has {recorded}")
    return answers


def _answers(found: FoundRun) -> Answers:
    examples = read_examples(found.folder, found.record.run_id)
    if not len(examples):
        raise DataError(f"{found.folder / FILE}: has no examples")
    if found.record.metric == "accuracy":
        return Answers(examples, *read_correct(found.folder, found.record.run_id))
    labels, scores = read_scores(found.folder, found.record.run_id)
    return Answers(examples, labels, scores=scores)
