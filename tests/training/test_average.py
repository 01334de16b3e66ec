"""Averages of weights: of every model, also of its buffers."""

import pytest
import torch

from msbench import models
from msbench.config import MODELS
from msbench.config.layers import LocatedValues
from msbench.config.run import resolve_model
from msbench.datasets.dataset import TaskInfo
from msbench.training.average import WeightAverage

INFO = TaskInfo("tokens", 7, 3, 12, "accuracy", 1 / 3, {})


@pytest.mark.parametrize("name", [name for name in MODELS if not MODELS[name].numbers_only])
def test_every_model_is_averaged_and_its_places_stay(name: str) -> None:
    config = resolve_model(name, LocatedValues({"d_model": 8, "layers": 1, "norm": "batch"}, {}, "x"))
    model = models.build(name, config, INFO, seed=0)
    average = WeightAverage(model, 0.5)
    fixed = {path for path, value in model.named_buffers() if not value.is_floating_point()}
    fixed |= {path for path, _ in model.named_buffers() if path not in model.state_dict()}
    start = {path: value.clone() for path, value in model.state_dict(keep_vars=True).items()}
    start |= {path: value.clone() for path, value in model.named_buffers()}
    average.update_parameters(model)
    with torch.no_grad():
        for path, value in model.state_dict(keep_vars=True).items():
            if path not in fixed:
                value += 1
    average.update_parameters(model)
    found = dict(average.module.named_parameters()) | dict(average.module.named_buffers())
    assert found.keys() == start.keys()
    for path, value in found.items():
        assert not value.requires_grad, path
        expected = start[path] if path in fixed else start[path] + 0.5
        torch.testing.assert_close(value, expected.detach(), rtol=1e-5, atol=1e-6, msg=path)


def test_a_change_of_the_average_changes_no_model() -> None:
    config = resolve_model("mamba", LocatedValues({"d_model": 8, "layers": 1}, {}, "x"))
    model = models.build("mamba", config, INFO, seed=0)
    average = WeightAverage(model, 0.5)
    own = {value.data_ptr() for value in model.state_dict().values()}
    assert not own & {value.data_ptr() for value in average.state_dict().values()}
