"""Which parameter decays and with which rate it learns."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from msbench import models
from msbench.config import MODELS, ClassifierConfig, TrainConfig
from msbench.config.baselines import SgConvConfig
from msbench.config.layers import LocatedValues
from msbench.config.run import resolve_model
from msbench.config.selective import MambaConfig, MsSsmConfig
from msbench.datasets.dataset import TaskInfo
from msbench.training.optimizer import build_optimizer, make_parameter_groups

INFO = TaskInfo("tokens", 7, 3, 12, "accuracy", 1 / 3, {})
CONFIGS: dict[str, ClassifierConfig] = {
    "mamba": MambaConfig(d_model=8, layers=2, state=4, positions="learned"),
    "msssm-s6": MsSsmConfig(d_model=8, layers=2, state=7, levels=2, norm="batch", conv_bias=True),
}


def placed(model: nn.Module, train: TrainConfig) -> Iterator[tuple[str, dict[str, Any]]]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for group in make_parameter_groups(model, train):
        for parameter in group["params"]:  # type: ignore[attr-defined]
            yield names[id(parameter)], group


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("ssm_lr", [None, 1e-4])
def test_decay_and_rate_of_every_parameter(name: str, ssm_lr: float | None) -> None:
    model = models.build(name, CONFIGS[name], INFO, seed=0)
    train = TrainConfig(lr=3e-3, ssm_lr=ssm_lr, weight_decay=0.05)
    seen = dict(placed(model, train))
    assert set(seen) == {name for name, _ in model.named_parameters()}
    for parameter, group in seen.items():
        last = parameter.split(".")[-1]
        state_space = last in ("A_log", "D") or ".dt." in parameter
        undecayed = last in ("A_log", "D", "bias") or "norm" in parameter
        assert group["lr"] == (ssm_lr or 3e-3 if state_space else 3e-3), parameter
        assert group["weight_decay"] == (0.0 if undecayed else 0.05), parameter


@pytest.mark.parametrize("name", [name for name in MODELS if not MODELS[name].numbers_only])
@pytest.mark.parametrize("decay", [False, True])
def test_step_sizes_have_their_own_rate_and_decay(name: str, decay: bool) -> None:
    """And the models whose config says that they have step sizes are those that do."""
    config = resolve_model(name, LocatedValues({"d_model": 8, "layers": 1}, {}, "x"))
    model = models.build(name, config, INFO, seed=0)
    usual = dict(placed(model, TrainConfig(lr=3e-3, ssm_lr=1e-3, weight_decay=0.05)))
    train = TrainConfig(lr=3e-3, ssm_lr=1e-3, dt_lr=2e-2, dt_decay=decay, weight_decay=0.05)
    steps = set()
    for parameter, group in placed(model, train):
        if group["name"] in ("dt", "dt-maps"):
            steps.add(parameter)
            assert group["lr"] == 2e-2, parameter
            decays = decay or group["name"] == "dt-maps"
            assert group["weight_decay"] == (0.05 if decays else 0.0), parameter
        else:
            assert {**group, "params": ()} == {**usual[parameter], "params": ()}, parameter
    assert config.has_step_sizes == bool(steps)
    assert steps == {path for path in usual if path.endswith("log_dt") or ".dt." in path}


def test_kernels_have_their_own_rate() -> None:
    config = SgConvConfig(d_model=8, layers=1)
    model = models.build("sgconv", config, INFO, seed=0)
    train = TrainConfig(lr=3e-3, ssm_lr=2e-3, kernel_lr=1e-3, weight_decay=0.05)
    rates = {name.split(".")[-1]: group for name, group in placed(model, train) if ".core." in name}
    assert {name: (group["lr"], group["weight_decay"]) for name, group in rates.items()} == {
        "kernels": (1e-3, 0.05),
        "D": (3e-3, 0.0),
    }
    unset = dict(placed(model, TrainConfig(lr=3e-3, ssm_lr=2e-3)))
    assert unset["blocks.0.layer.core.kernels"]["lr"] == 2e-3


@pytest.mark.parametrize("channels", ["shared", "per-channel"])
def test_constant_mixers_do_not_decay(channels: Any) -> None:
    config = MsSsmConfig(d_model=8, layers=1, mixer="static", mixer_channels=channels)
    model = models.build("msssm-s6", config, INFO, seed=0)
    groups = dict(placed(model, TrainConfig()))
    assert groups["blocks.0.layer.core.mixer.weight"]["name"] == "plain"


@pytest.mark.parametrize("name", CONFIGS)
def test_groups_are_named_once_and_sum_to_the_model(name: str) -> None:
    model = models.build(name, CONFIGS[name], INFO, seed=0)
    optimizer = build_optimizer(model, TrainConfig(beta2=0.95))
    names = [group["name"] for group in optimizer.param_groups]
    assert names == ["weights", "plain", "ssm", "dt-maps"]
    assert {group["betas"] for group in optimizer.param_groups} == {(0.9, 0.95)}
    total = sum(p.numel() for group in optimizer.param_groups for p in group["params"])
    assert total == models.count_parameters(model)


def test_a_step_without_gradient_moves_only_what_decays() -> None:
    model = models.build("msssm-s6", CONFIGS["msssm-s6"], INFO, seed=0)
    optimizer = build_optimizer(model, TrainConfig(lr=0.1, weight_decay=0.5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert "blocks.0.layer.core.scan.x_proj" in moved
    assert "blocks.0.layer.core.decomposition.filters" in moved
    still = ("A_log", "D", "bias", "running_mean", "running_var")
    assert not [name for name in moved if name.endswith(still) or "norm" in name]


def test_a_parameter_with_two_owners_is_an_error() -> None:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    model[1].weight = model[0].weight
    with pytest.raises(RuntimeError, match=r"0\.weight is in 2 groups"):
        make_parameter_groups(model, TrainConfig())


def test_frozen_parameters_are_left_out() -> None:
    model = nn.Linear(2, 2)
    model.weight.requires_grad_(False)
    assert [group["name"] for group in make_parameter_groups(model, TrainConfig())] == ["plain"]
