"""A tiny shape that the tests of training steps share."""

from typing import Any

from msbench.analysis.benchmarks.step_models import StepShape, make_deep_shape

TINY = ("model.layers=2", "model.d_model=8", "model.state=5")


def tiny_shape(*overrides: str, b: int = 4, length: int = 12) -> StepShape:
    return make_deep_shape(b, length, *TINY, *overrides)


def tiny(*overrides: str, **sizes: Any) -> Any:
    """A maker of shapes, as the table of shapes holds them."""
    return lambda: tiny_shape(*overrides, **sizes)
