"""Shapes have the settings of their suites; the peer with our weights computes what our model does."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from step_cases import tiny_shape

from msbench import models
from msbench.analysis.benchmarks.step_models import (
    MIXERS,
    SHAPES,
    MixerPeer,
    choose_shapes,
    copy_weights,
    install_peer,
    make_random_shape,
    make_runner,
    make_suite_shape,
    make_transformers_mixer,
)
from msbench.config.selective import MambaConfig
from msbench.datasets.dataset import TaskInfo
from msbench.errors import UnknownName
from msbench.models.mamba import MambaBlock

SMALL_DATA = ("data.train=300", "data.validation=10", "data.test=10")
INFO = TaskInfo("tokens", 11, 4, 40, "accuracy", 0.25, {})


def test_the_quick_shape_has_the_suites_models_and_equal_states() -> None:
    shape = make_suite_shape("quick", *SMALL_DATA, states=(20,))
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


@pytest.mark.parametrize(
    ("name", "inputs", "layers"),
    [("text", (50, 4096), 8), ("image", (50, 1024, 1), 6), ("pathx", (32, 16384, 1), 6)],
)
def test_large_shapes_are_those_of_the_suite_without_its_data(
    name: str, inputs: tuple[int, ...], layers: int
) -> None:
    shape = SHAPES[name]()
    assert shape.batch.inputs.shape == inputs
    assert shape.batch.lengths.tolist() == [inputs[1]] * inputs[0]
    assert shape.batch.labels.max() < shape.info.classes
    assert [variant.config.layers for variant in shape.variants.values()] == [layers] * 2
    assert shape.pairs == (("msssm-s6/128", "mamba/128", "equal states"),)


def test_real_values_take_a_step() -> None:
    shape = make_random_shape(
        "image", "lra", "image", "model.layers=1", "model.d_model=8", "model.state=5", b=3, length=20
    )
    for variant in shape.variants.values():
        runner = make_runner(variant, shape, "cpu")
        runner.step()
        assert runner.batch[0].shape == (3, 20, 1)


def test_a_batch_can_be_cut() -> None:
    inputs, lengths, labels = tiny_shape().tensors("cpu", 2, 5)
    assert inputs.shape == (2, 5)
    assert lengths.tolist() == [5, 5]
    assert labels.shape == (2,)
    assert tiny_shape().tensors("cpu")[0].shape == (4, 12)


def test_names_of_shapes() -> None:
    assert choose_shapes((), quick=False) == ["quick", "deep"]
    assert choose_shapes((), quick=True) == ["quick"]
    assert choose_shapes(("listops",), quick=True) == ["listops"]
    with pytest.raises(UnknownName, match="--shape: unknown shape 'deap'; did you mean 'deep'"):
        choose_shapes(("deap",), quick=False)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("options", [{}, {"expand": 1.5, "dt_rank": 3}, {"conv_bias": False, "kernel": 3}])
def test_a_block_equals_ours(parallel: bool, options: dict[str, float | bool]) -> None:
    torch.manual_seed(0)
    config = MambaConfig.model_validate({"d_model": 8, "layers": 1, "state": 4, **options})
    ours, theirs = MambaBlock(config), MixerPeer(make_transformers_mixer(config, parallel=parallel))
    with torch.no_grad():
        ours.D.uniform_()  # type: ignore[union-attr]
    copy_weights(ours, theirs.mixer)
    x, lengths = torch.randn(2, 13, 8), torch.tensor([13, 13])
    torch.testing.assert_close(theirs(x, lengths), ours(x, lengths), rtol=1e-5, atol=1e-6)


def test_the_mixer_of_mamba_ssm_has_our_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its package needs CUDA to be imported: the arguments are those of its `Mamba`, version 2.2."""
    seen: dict[str, Any] = {}

    def make(d_model: int, **options: Any) -> torch.nn.Module:
        seen.update(options, d_model=d_model)
        return torch.nn.Identity()

    fake = ModuleType("mamba_simple")
    fake.__dict__["Mamba"] = make
    monkeypatch.setitem(sys.modules, "mamba_ssm.modules.mamba_simple", fake)
    MIXERS["mamba-ssm"](MambaConfig(d_model=8, layers=1, state=16, expand=1.5, dt_rank=3, kernel=3))
    assert seen == {
        "d_model": 8,
        "d_state": 16,
        "d_conv": 3,
        "expand": 1.5,
        "dt_rank": 3,
        "conv_bias": True,
        "bias": False,
    }


def test_every_parameter_of_a_model_has_a_counterpart() -> None:
    config = MambaConfig(d_model=8, layers=2, state=4, norm="batch")
    model = models.build("mamba", config, INFO, seed=0)
    before = [name for name, _ in model.named_parameters()]
    names = install_peer(model, "transformers")
    assert sorted(names) == sorted(before)
    assert sorted(names.values()) == sorted(name for name, _ in model.named_parameters())


def test_a_parameter_without_a_counterpart_is_an_error() -> None:
    config = MambaConfig(d_model=8, layers=1, state=4)
    ours, theirs = MambaBlock(config), MixerPeer(MIXERS["transformers"](config))
    theirs.mixer.register_parameter("extra", torch.nn.Parameter(torch.zeros(1)))
    with pytest.raises(RuntimeError, match="without a counterpart: extra"):
        copy_weights(ours, theirs.mixer)
