"""Evaluation of ListOps expressions, one symbol at a time.

Shares no code with the vectorised evaluation of the generator: each is checked against the other.
"""

from collections.abc import Callable, Iterable

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


def evaluate(symbols: Iterable[str]) -> int:
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
            value = _close(symbol, operator, values)
            operator, values = enclosing.pop()
            values.append(value)
    return _only(operator, values)


def _close(symbol: str, operator: str, values: list[int]) -> int:
    if symbol != "]":
        raise ValueError(f"unknown symbol {symbol!r}")
    if not operator:
        raise ValueError("a ']' closes nothing")
    if not values:
        raise ValueError(f"{operator} has no arguments")
    return REDUCE[operator](values)


def _only(operator: str, values: list[int]) -> int:
    if operator:
        raise ValueError(f"{operator} is not closed")
    if len(values) != 1:
        raise ValueError("more than one expression" if values else "no expression")
    return values[0]
