"""Shapes: the suites' own settings, real batches, equal states."""

import numpy as np
import pytest
from step_cases import tiny_shape

from msbench.analysis.benchmarks.shapes import SHAPES, shapes, suite_shape
from msbench.errors import UnknownName

SMALL_DATA = ("data.train=300", "data.validation=10", "data.test=10")


def test_the_quick_shape_is_the_suites_own_with_equal_states_beside_it() -> None:
    shape = suite_shape("quick", *SMALL_DATA, states=(20,))
    assert list(shape.variants) == ["mamba/16", "msssm-s6/20", "mamba/20"]
    assert [(x.config.d_model, x.config.layers) for x in shape.variants.values()] == [(64, 2)] * 3
    assert shape.pairs == (
        ("msssm-s6/20", "mamba/16", "as in the suite"),
        ("msssm-s6/20", "mamba/20", "equal states"),
    )
    b, length = shape.batch.inputs.shape
    assert b == 64
    assert length == shape.batch.lengths.max() <= 60
    assert np.all((shape.batch.inputs > 0).sum(axis=1) == shape.batch.lengths)


def test_the_deep_shape_is_that_of_the_suite_listops() -> None:
    shape = SHAPES["deep"]()
    assert shape.batch.inputs.shape == (2, 1024)
    assert shape.batch.inputs.min() > 0
    assert shape.pairs == (("msssm-s6/128", "mamba/128", "equal states"),)
    for variant in shape.variants.values():
        values = variant.config.model_dump()
        assert (values["layers"], values["d_model"], values["expand"], values["norm"]) == (
            20,
            128,
            1,
            "batch",
        )


def test_a_batch_can_be_cut() -> None:
    inputs, lengths, labels = tiny_shape().tensors("cpu", 2, 5)
    assert inputs.shape == (2, 5)
    assert lengths.tolist() == [5, 5]
    assert labels.shape == (2,)
    assert tiny_shape().tensors("cpu")[0].shape == (4, 12)


def test_names_of_shapes() -> None:
    assert shapes((), quick=False) == ["quick", "deep"]
    assert shapes((), quick=True) == ["quick"]
    assert shapes(("listops",), quick=True) == ["listops"]
    with pytest.raises(UnknownName, match="--shape: unknown shape 'deap'; did you mean 'deep'"):
        shapes(("deap",), quick=False)
