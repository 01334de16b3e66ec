"""Expected results. Rates are fractions throughout."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from msbench.reporting.tables.cells import Evidence
from msbench.runs.suite_gate import DEFAULT_MARGIN, DEFAULT_REASON, ExpectedFailure, checked_margin
from msbench.stats import Pooled


@dataclass(frozen=True)
class Expectation:
    """One cell's expected mean, and how far below it a result may be.

    `source` names it in messages. It is a mean over `n` seeds; with 0 it is taken as exact, like a printed
    number. `groups` are the raw results of seeds, one group per model, for the spread between seeds; `known`
    is a spread from elsewhere, used if they show none. An empty `data_digest` or absent `n_test` is unknown
    and not compared. `other_data` explains why a result on other data may count.
    """

    mean: float
    metric: str
    source: str
    n: int = 0
    n_test: int | None = None
    data_digest: str = ""
    margin: float = DEFAULT_MARGIN
    reason: str = DEFAULT_REASON
    groups: tuple[tuple[float, ...], ...] = ()
    known: Pooled | None = None
    other_data: str = ""
    xfail: ExpectedFailure | None = None

    @property
    def bound(self) -> float:
        """Return the lower bound for the mean."""
        return self.mean - self.margin


def faults(evidence: Evidence, expectation: Expectation) -> Iterator[str]:
    """Yield reasons for which these two cannot be compared; none if they can."""
    yield from expectation_faults(expectation)
    for value in evidence.values:
        if problem := rate_problem(value):
            yield f"measured {value:g}: {problem}"
    if len(evidence.values) != len(evidence.seeds):
        yield f"{len(evidence.values)} results of {len(evidence.seeds)} seeds"
    if len(set(evidence.seeds)) < len(evidence.seeds):
        yield f"a seed counts twice: {', '.join(map(str, evidence.seeds))}"
    if evidence.metric != expectation.metric:
        yield f"measured is {evidence.metric}, expected is {expectation.metric}"
    if evidence.n_test is None:
        yield "measured on an unknown number of test examples, or on several numbers of them"
    elif evidence.n_test < 1:
        yield f"measured on {evidence.n_test} test examples"
    known = expectation.n_test is not None and evidence.data_digest == expectation.data_digest
    if known and evidence.n_test is not None and evidence.n_test != expectation.n_test:
        sizes = f"{evidence.n_test} test examples, expected on {expectation.n_test}"
        yield f"measured on {sizes} of the same data"
    if problem := bound_problem(expectation.mean, expectation.margin, evidence.chance):
        yield problem


def expectation_faults(expectation: Expectation) -> Iterator[str]:
    """Yield faults of an expectation that do not depend on the measurement."""
    if problem := rate_problem(expectation.mean):
        yield f"expected {expectation.mean:g}: {problem}"
    try:
        checked_margin(expectation.margin)
    except ValueError as error:
        yield f"margin {error}"
    if expectation.n_test is not None and expectation.n_test < 1:
        yield f"expected on {expectation.n_test} test examples"


def rate_problem(value: float) -> str:
    """Return why a number is not a valid fraction; empty if it is."""
    if not math.isfinite(value):
        return "not a number"
    if 1 < value <= 100:
        return f"no fraction from 0 to 1; is it a percentage? then it is {value / 100:.6g}"
    return "" if 0 <= value <= 1 else "no fraction from 0 to 1"


def bound_problem(mean: float, margin: float, chance: float | None) -> str:
    """Return why ``mean - margin`` demands nothing; empty if a model must have learned to reach it.

    Examples
    --------
    >>> bound_problem(0.55, 0.1, chance=0.5)
    'expected 55.00% - 10.00% is not above chance (50.00%): anything would pass; a smaller margin can fail'
    """
    if not (math.isfinite(mean) and math.isfinite(margin)):
        return ""  # a fault of its own
    lowest = chance or 0.0
    if mean - margin > lowest:
        return ""
    than = "chance" if lowest else "nothing"
    asked = f"expected {mean:.2%} - {margin:.2%} is not above {than} ({lowest:.2%})"
    hint = "is it a percentage of a percentage?" if mean <= lowest else "a smaller margin can fail"
    return f"{asked}: anything would pass; {hint}"
