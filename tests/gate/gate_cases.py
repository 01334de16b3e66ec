"""Evidence and expectations, made by hand: three seeds near 62 % on a test split of 2,000."""

from typing import Any

from msbench.config.layers import LocatedValues
from msbench.gate.expectations import Expectation
from msbench.reporting.tables.cells import Evidence
from msbench.runs.suite import Suite
from msbench.runs.suite_file import ExpectedFailure, GateSettings

RULES = {"majority": 0.17, "root operator only": 0.363, "top 1 level": 0.489}
KNOWN_FAILURE = ExpectedFailure(
    task="listops", model="mamba", reason="too few epochs", link="https://example.org/1"
)


def evidence(*values: float, **changes: Any) -> Evidence:
    """What seeds 0, 1, ... gave."""
    found: dict[str, Any] = {
        "metric": "test_accuracy",
        "values": values,
        "seeds": tuple(range(len(values))),
        "n_planned": len(values) or 3,
        "n_test": 2000,
        "rules": RULES,
        "chance": 0.1,
        "data_digest": "aaaa",
        "hardware": "cpu",
    }
    return Evidence(**{**found, **changes})


def expectation(mean: float = 0.62, **changes: Any) -> Expectation:
    """An exact expectation with a margin of two points."""
    found: dict[str, Any] = {
        "mean": mean,
        "metric": "test_accuracy",
        "source": "the baseline's",
        "n_test": 2000,
        "data_digest": "aaaa",
        "margin": 0.02,
        "reason": "of the spread of seeds",
    }
    return Expectation(**{**found, **changes})


TASKS = ("t", "new", "listops")


def listing(*models: str, gate: GateSettings | None = None) -> Suite:
    """A suite ``s`` that lists these models."""
    return Suite(
        name="s",
        title="S",
        protocol="paper",
        caption="",
        seeds=(0,),
        reported=None,
        tasks=TASKS,
        models=models,
        cells=frozenset((task, model) for task in TASKS for model in models),
        source=LocatedValues({}, {}, "s.yaml"),
        gate=gate or GateSettings(),
    )
