"""Rounding of numbers to the decimals that are significant given their spread."""

import math


def decimals(sd: float | None, most: int) -> int:
    """Return the decimals for a mean and its sd: two significant digits of the sd, at most `most`.

    Without a spread, or with one of zero, return `most`. Raises ValueError where the spread is not finite or
    negative.
    """
    if sd is None or sd == 0:
        return most
    if not (math.isfinite(sd) and sd > 0):
        raise ValueError(f"a standard deviation of {sd} cannot be shown")
    # The exponent of the rounded spread: 9.96 is 10 in two digits.
    exponent = int(f"{sd:.1e}".partition("e")[2])
    return min(most, max(0, 1 - exponent))


def shown(mean: float, sd: float | None, most: int) -> tuple[str, str]:
    """Return a mean and its standard deviation as text, to the same decimals; the latter empty for None.

    Raises ValueError where either is no finite number.
    """
    if not math.isfinite(mean):
        raise ValueError(f"a mean of {mean} cannot be shown")
    digits = decimals(sd, most)
    return f"{mean:.{digits}f}", "" if sd is None else f"{sd:.{digits}f}"
