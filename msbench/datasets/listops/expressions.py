"""ListOps expressions: their vocabulary, their evaluation, and the scores of rules that ignore most of one.

The 18 token ids are fixed here and the same for every source of the data:

====== ===========================  ==============================================
id     symbol                       purpose
====== ===========================  ==============================================
0      ``<pad>``                    right padding
1      ``<unk>``                    never occurs: an unknown symbol is an error
2      ``<eos>``                    ends every sequence
3-12   ``0`` .. ``9``
13-16  ``[MIN [MAX [MED [SM``       opens an operator
17     ``]``                        closes it
====== ===========================  ==============================================

The public PyTorch loaders of Long Range Arena number the symbols by their frequency in the training file;
ours have a fixed order, so that the ids never depend on the data. As in those loaders, round brackets are
no tokens and ``<eos>`` is appended; it is not counted where lengths are compared with bounds.

Expressions are evaluated symbol by symbol, by code that the vectorised evaluation of the generator does not
share: each is checked against the other. The rules are baselines that a model must exceed:

* ``majority``: the most frequent class of the training split.
* ``root operator only``: the most frequent class, in training, among expressions with that first symbol.
* ``top k levels``: exact evaluation of the k highest levels of operators. Operators below level k are
  dropped, then operators left without arguments, repeatedly; where nothing is left, the answer is that of
  ``root operator only``.

On Long Range Arena's distribution they score about 17, 36, 49, 67, 80 and 87 %.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.dataset import RaggedTokens

DIGITS = {str(digit): digit for digit in range(10)}


def _floor_of_median(values: list[int]) -> int:
    ranked = sorted(values)
    half = len(ranked) // 2
    return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) // 2


def _sum_modulo_ten(values: list[int]) -> int:
    return sum(values) % 10


REDUCE: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": _floor_of_median,
    "[SM": _sum_modulo_ten,
}


def evaluate_expression(symbols: Iterable[str]) -> int:
    """Return the value, 0..9, of an expression such as ``[MAX 2 [SM 4 9 ] ]``, given symbol by symbol.

    Raises ValueError, saying what is wrong, where the symbols are no expression or more than one.
    """
    enclosing: list[tuple[str, list[int]]] = []
    operator, values = "", list[int]()
    for symbol in symbols:
        digit = DIGITS.get(symbol)
        if digit is not None:
            values.append(digit)
        elif symbol in REDUCE:
            enclosing.append((operator, values))
            operator, values = symbol, []
        else:
            value = _reduce_operator(symbol, operator, values)
            operator, values = enclosing.pop()
            values.append(value)
    return _require_one_value(operator, values)


def _reduce_operator(symbol: str, operator: str, values: list[int]) -> int:
    if symbol != "]":
        raise ValueError(f"unknown symbol {symbol!r}")
    if not operator:
        raise ValueError("a ']' closes nothing")
    if not values:
        raise ValueError(f"{operator} has no arguments")
    return REDUCE[operator](values)


def _require_one_value(operator: str, values: list[int]) -> int:
    if operator:
        raise ValueError(f"{operator} is not closed")
    if len(values) != 1:
        raise ValueError("more than one expression" if values else "no expression")
    return values[0]


SYMBOLS = ("<pad>", "<unk>", "<eos>", *"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]")
IDS = {symbol: number for number, symbol in enumerate(SYMBOLS)}

EOS = IDS["<eos>"]
ZERO = IDS["0"]
MIN, MAX, MED, SM = (IDS[symbol] for symbol in ("[MIN", "[MAX", "[MED", "[SM"))
OPERATORS = (MIN, MAX, MED, SM)
CLOSE = IDS["]"]
CLASSES = 10


LEVELS = 4

Labels = NDArray[np.int64]


def score_baselines(train: RaggedTokens, test: RaggedTokens) -> dict[str, float]:
    """Return the accuracy on `test`, as a fraction, of each trivial rule, learned on `train`."""
    majority = int(_count_labels(train.labels).argmax())
    by_root = _find_best_by_root(train)[np.asarray(test.tokens[test.offsets[:-1]])]
    answers = {"majority": np.full(len(test), majority), "root operator only": by_root}
    for levels in range(1, LEVELS + 1):
        name = f"top {levels} level{'s' if levels > 1 else ''}"
        answers[name] = evaluate_top(test, levels, otherwise=by_root)
    return {name: float(np.mean(answer == test.labels)) for name, answer in answers.items()}


def _count_labels(labels: NDArray[np.uint8]) -> Labels:
    return np.bincount(labels, minlength=CLASSES)


def _find_best_by_root(train: RaggedTokens) -> Labels:
    """Return the most frequent class by first token (18,); the smallest on ties, majority where unseen."""
    roots = np.asarray(train.tokens[train.offsets[:-1]])
    best = np.full(len(SYMBOLS), _count_labels(train.labels).argmax(), np.int64)
    for root in np.unique(roots):
        best[root] = _count_labels(train.labels[roots == root]).argmax()
    return best


def evaluate_top(split: RaggedTokens, levels: int, otherwise: Labels) -> Labels:
    """Return values (n,) of the expressions cut below `levels` operators; `otherwise` where none is left."""
    answers = otherwise.copy()
    for index, ids in enumerate(_cut_below(np.asarray(split.tokens), levels)):
        if len(ids):
            answers[index] = evaluate_expression([SYMBOLS[number] for number in ids])
    return answers


def _cut_below(tokens: NDArray[np.uint8], levels: int) -> list[list[int]]:
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


def measure_expressions(split: RaggedTokens) -> dict[str, NDArray[np.int64]]:
    """Return two measures of every expression (n,): its ``depth`` and its ``reach``.

    The depth is the number of levels of operators. The reach is how far back the value depends on the digits:
    the number of tokens, from the end of the sequence, that determine it where the digits before them may be
    any, and only their operators are known.
    """
    measures = [_measure_expression(split.example(index).tolist()) for index in range(len(split))]
    depths, reaches = zip(*measures, strict=True) if measures else ((), ())
    return {"depth": np.array(depths, np.int64), "reach": np.array(reaches, np.int64)}


@dataclass
class _Node:
    """A digit, or an operator with its arguments; `place` is the index of its first token."""

    place: int
    operator: str
    value: int
    arguments: "list[_Node]"


def _measure_expression(ids: Sequence[int]) -> tuple[int, int]:
    root, depth = _parse_tree(ids)
    return depth, len(ids) - _find_first_needed(root, frozenset((root.value,)))


def _parse_tree(ids: Iterable[int]) -> tuple[_Node, int]:
    """Return the tree of an expression, every operator with its value, and its number of levels."""
    enclosing = [_Node(-1, "", 0, [])]
    depth = 0
    for place, number in enumerate(ids):
        symbol = SYMBOLS[number]
        if symbol in REDUCE:
            enclosing.append(_Node(place, symbol, 0, []))
            depth = max(depth, len(enclosing) - 1)
        elif symbol in DIGITS:
            enclosing[-1].arguments.append(_Node(place, "", DIGITS[symbol], []))
        elif number == CLOSE:
            node = enclosing.pop()
            node.value = REDUCE[node.operator]([each.value for each in node.arguments])
            enclosing[-1].arguments.append(node)
    return enclosing[0].arguments[0], depth


def _find_first_needed(node: _Node, allowed: frozenset[int]) -> int:
    """Return the place of the digit from which on the digits of `node` keep its value in `allowed`.

    The digits before that place may then have any values, and from the next place on they may not. `allowed`
    has the value of `node`, and not all digits.
    """
    while node.operator:
        reduce = REDUCE[node.operator]
        known: list[int] = []
        # An operator of unknown digits alone can have any value, so each unknown argument can.
        for index in reversed(range(len(node.arguments))):
            known.insert(0, node.arguments[index].value)
            if all(reduce([*unknown, *known]) in allowed for unknown in _list_unknown(node.operator, index)):
                break
        allowed = frozenset(
            each
            for each in range(10)
            if all(
                reduce([*unknown, each, *known[1:]]) in allowed
                for unknown in _list_unknown(node.operator, index)
            )
        )
        node = node.arguments[index]
    return node.place


def _list_unknown(operator: str, count: int) -> list[list[int]]:
    """Return values of `count` unknown arguments with which the operator reaches all that it can have.

    One free value is enough: of one argument in a sum, which a number of equal ones would not vary freely; of
    all arguments in MIN and MAX clearly, and in MED since it grows with that value from its least to its
    greatest in steps of at most 1.
    """
    if not count:
        return [[]]
    same = 1 if operator == "[SM" else count
    return [[value] * same + [0] * (count - same) for value in range(10)]
