"""Scores of rules that ignore most of a ListOps expression: baselines that a model must exceed.

* ``majority``: the most frequent class of the training split.
* ``root operator only``: the most frequent class, in training, among expressions with that first symbol.
* ``top k levels``: exact evaluation of the k highest levels of operators. Operators below level k are
  dropped, then operators left without arguments, repeatedly; where nothing is left, the answer is that of
  ``root operator only``.

On Long Range Arena's distribution these are about 17, 36, 49, 67, 80 and 87 %.
"""

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.dataset import RaggedTokens
from msbench.datasets.listops.evaluate import evaluate
from msbench.datasets.listops.symbols import CLASSES, CLOSE, EOS, MIN, SM, SYMBOLS

LEVELS = 4

Labels = NDArray[np.int64]


def baselines(train: RaggedTokens, test: RaggedTokens) -> dict[str, float]:
    """Return the accuracy on `test`, as a fraction, of each trivial rule, learned on `train`."""
    majority = int(_counts(train.labels).argmax())
    by_root = _best_by_root(train)[np.asarray(test.tokens[test.offsets[:-1]])]
    answers = {"majority": np.full(len(test), majority), "root operator only": by_root}
    for levels in range(1, LEVELS + 1):
        name = f"top {levels} level{'s' if levels > 1 else ''}"
        answers[name] = evaluate_top(test, levels, otherwise=by_root)
    return {name: float(np.mean(answer == test.labels)) for name, answer in answers.items()}


def _counts(labels: NDArray[np.uint8]) -> Labels:
    return np.bincount(labels, minlength=CLASSES)


def _best_by_root(train: RaggedTokens) -> Labels:
    """Return the most frequent class by first token (18,); the smallest on ties, majority where unseen."""
    roots = np.asarray(train.tokens[train.offsets[:-1]])
    best = np.full(len(SYMBOLS), _counts(train.labels).argmax(), np.int64)
    for root in np.unique(roots):
        best[root] = _counts(train.labels[roots == root]).argmax()
    return best


def evaluate_top(split: RaggedTokens, levels: int, otherwise: Labels) -> Labels:
    """Return values (n,) of the expressions cut below `levels` operators; `otherwise` where none is left."""
    answers = otherwise.copy()
    for index, ids in enumerate(_top_of_each(np.asarray(split.tokens), levels)):
        if len(ids):
            answers[index] = evaluate([SYMBOLS[number] for number in ids])
    return answers


def _top_of_each(tokens: NDArray[np.uint8], levels: int) -> list[list[int]]:
    opens, closes = (tokens >= MIN) & (tokens <= SM), tokens == CLOSE
    # an operator, its digits and its bracket all have the level of the operator
    level = np.cumsum(opens, dtype=np.int64) - np.cumsum(closes, dtype=np.int64) + closes
    left = tokens[level <= levels]
    while True:
        empty = (left[:-1] >= MIN) & (left[:-1] <= SM) & (left[1:] == CLOSE)
        if not empty.any():
            break
        left = left[~(np.append(empty, False) | np.insert(empty, 0, False))]
    ends = np.flatnonzero(left == EOS)
    return [part[part != EOS].tolist() for part in np.split(left, ends[:-1] + 1)]
