"""What a result is held against. Rates are fractions throughout."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from msbench.gate.judgement import Evidence
from msbench.stats import Pooled, sampling_sd
from msbench.suite_gate import DEFAULT_MARGIN, DEFAULT_REASON, ExpectedFailure, checked_margin


@dataclass(frozen=True)
class Expectation:
    """One cell's expected mean, and how far below it a result may be.

    `source` names it in sentences. `n` seeds gave it; with 0 it is taken as exact, as a printed number is.
    `groups` are the raw results of seeds, a group a model, that tell the spread between seeds; `known` is a
    spread from elsewhere, which is used where they tell none. An empty `data_digest` or absent `n_test` is
    not known and not compared. `other_data` says why a result on other data may count.
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
        """What the mean must not be below."""
        return self.mean - self.margin


def faults(evidence: Evidence, expectation: Expectation) -> Iterator[str]:
    """Why these two cannot be compared; nothing where they can."""
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
    if evidence.n_test is not None and evidence.n_test < 1:
        yield f"measured on {evidence.n_test} test examples"
    known = expectation.n_test is not None and evidence.data_digest == expectation.data_digest
    if known and evidence.n_test != expectation.n_test:
        of = "an unknown number of" if evidence.n_test is None else evidence.n_test
        yield f"measured on {of} test examples, expected on {expectation.n_test} of the same data"
    if _below_chance(evidence, expectation):
        yield (
            f"expected {expectation.mean:.2%} is below chance ({evidence.chance:.2%}): anything would pass;"
            f" is it a percentage of a percentage?"
        )


def expectation_faults(expectation: Expectation) -> Iterator[str]:
    """What is wrong with an expectation whatever is measured."""
    if problem := rate_problem(expectation.mean):
        yield f"expected {expectation.mean:g}: {problem}"
    try:
        checked_margin(expectation.margin)
    except ValueError as error:
        yield f"margin {error}"
    if expectation.n_test is not None and expectation.n_test < 1:
        yield f"expected on {expectation.n_test} test examples"


def rate_problem(value: float) -> str:
    """What is wrong with a number that is meant as a fraction; empty where nothing is."""
    if not math.isfinite(value):
        return "not a number"
    if 1 < value <= 100:
        return f"no fraction from 0 to 1; is it a percentage? then it is {value / 100:.6g}"
    return "" if 0 <= value <= 1 else "no fraction from 0 to 1"


def _below_chance(evidence: Evidence, expectation: Expectation) -> bool:
    """An expectation that a model without any skill would meet by far gates nothing."""
    if evidence.chance is None or not math.isfinite(expectation.mean):
        return False
    n_test = evidence.n_test or expectation.n_test
    error = sampling_sd(evidence.chance, n_test) if n_test else 0.0
    return expectation.mean < evidence.chance - 2 * error
