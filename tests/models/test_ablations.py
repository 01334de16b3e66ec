"""Rows of the paper's tables that are models with a name: MS-SSM's ablations, and Mamba twice as large."""

from pathlib import Path
from typing import Any

import pytest
import torch
from model_cases import INFO, config_of, layer_of, model_of, tokens

from msbench import models
from msbench.config import MODELS
from msbench.config.selective import MambaConfig, MsSsmConfig, SsmConfig
from msbench.results.reported import read_all_reported

REPORTED = Path(__file__).resolve().parents[2] / "results" / "reported"
NAMES = [name for name, entry in MODELS.items() if issubclass(entry.config, SsmConfig)]
VARIANTS = [name for name in NAMES if name.startswith("msssm-")]


ROWLESS = {"hawk", "s4d-inv", "s4d-legs", "s4d-real", "msssm-s4d", "msssm-s4-dplr", "msssm-input-conv"}
"""Models without a row: of S4D only the simplest start has one, MS-SSM (S4) is described as real, and its
filters take the place of Mamba's convolution."""


@pytest.mark.parametrize("name", MODELS)
def test_rows_are_those_that_name_the_model(name: str) -> None:
    rows = {cell.row for cell in read_all_reported(REPORTED) if cell.model == name}
    assert rows == set(MODELS[name].rows)
    assert bool(rows) == (name not in ROWLESS)


def test_every_reported_row_names_a_model() -> None:
    assert {cell.model for cell in read_all_reported(REPORTED)} <= set(MODELS)


@pytest.mark.parametrize("table", ["ablation", "ablation-initialisation"])
def test_every_row_of_the_ablations_is_a_model(table: str) -> None:
    cells = [cell for cell in read_all_reported(REPORTED) if cell.table == table]
    assert cells
    assert {cell.model for cell in cells} <= set(MODELS)


def test_each_changes_one_thing() -> None:
    """Row 7 changes two: the input of the scan, and the source of B, C and the step sizes."""
    sizes = {name: len(MODELS[name].preset) for name in VARIANTS}
    assert sizes.pop("msssm-s6") == 0
    assert sizes.pop("msssm-gate-original-self") == 2
    assert set(sizes.values()) == {1}
    configs = {name: config_of(name, state=12).model_dump_json() for name in VARIANTS}
    assert len(set(configs.values())) == len(VARIANTS) == 12


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_causal_and_can_be_bidirectional(name: str) -> None:
    # A Fourier transform spreads rounding errors over all positions, so the limit applies in float64.
    transformed = name in ("msssm-s4d", "msssm-s4-dplr")
    kind, error = (torch.float64, 1e-14) if transformed else (torch.float32, 0.0)
    x = torch.randn(1, 12, 8, generator=torch.Generator().manual_seed(0), dtype=kind)
    later = x.clone()
    later[:, 7:] += 1
    lengths = torch.tensor([12])
    causal, both = (layer_of(model_of(name, state=12, bidirectional=b).to(kind)) for b in (False, True))
    difference = (causal(x, lengths) - causal(later, lengths))[:, :7]
    assert float(difference.detach().abs().max()) <= error
    assert (causal(x, lengths)[:, 7:] - causal(later, lengths)[:, 7:]).abs().max() > 1e-6
    assert (both(x, lengths)[:, :7] - both(later, lengths)[:, :7]).abs().max() > 1e-7
    states = models.count_states_per_channel
    wide, narrow = (states(name, config_of(name, state=12, bidirectional=b)) for b in (True, False))
    assert wide == 2 * narrow


def difference(one: str, other: str, **options: Any) -> float:
    """Of the outputs of two variants that have the same parameters."""
    first, second = (model_of(name, state=12, mixer_init="default", **options) for name in (one, other))
    second.load_state_dict(first.state_dict())
    return float((first(*tokens(30)) - second(*tokens(30))).detach().abs().max())


@pytest.mark.parametrize("name", ["msssm-gate-self-self", "msssm-gate-original-self", "msssm-mixer-softmax"])
def test_a_variant_of_the_same_parameters_is_another_function(name: str) -> None:
    assert difference("msssm-s6", name) > 1e-6
    assert difference("msssm-s6", "msssm-mamba-init") == 0


def test_twice_the_parameters_is_twice_the_layers() -> None:
    once, twice = (model_of(name, layers=3, state=4) for name in ("mamba", "mamba-2x-param"))
    assert (len(once.blocks), len(twice.blocks)) == (3, 6)
    assert models.count_parameters(twice.blocks) == 2 * models.count_parameters(once.blocks)
    deep = model_of("mamba", layers=6, state=4)
    for name, value in deep.state_dict().items():
        assert torch.equal(value, twice.state_dict()[name]), name


def test_twice_the_state_is_twice_the_states() -> None:
    twice = model_of("mamba-2x-state", layers=3, state=4)
    assert [block.A_log.shape for block in (layer_of(twice, at) for at in range(3))] == [(16, 8)] * 3
    assert models.count_states_per_channel("mamba-2x-state", config_of("mamba-2x-state", state=128)) == 256
    assert models.count_states_per_channel("mamba-2x-param", config_of("mamba-2x-param", state=128)) == 128
    config = config_of("mamba-2x-state", state=4)
    assert isinstance(config, MambaConfig)
    assert (config.multiplied().state, config.multiplied().state_factor) == (8, 1)
    assert config.multiplied().multiplied() == config.multiplied()


def test_a_row_of_the_table_keeps_the_size_that_the_paper_compares_at() -> None:
    """Rows 5 to 10 and the two ways to start differ from the base by less than 2 % of its parameters."""
    options: dict[str, Any] = {"d_model": 128, "layers": 1, "kernel": 4, "expand": 1}
    base = MsSsmConfig(**options)
    size = models.count_parameters(models.build("msssm-s6", base, INFO, 0))
    gates = ("msssm-gate-self-self", "msssm-gate-original-self")
    for name in (*gates, "msssm-mixer-static", "msssm-mixer-softmax", "msssm-mamba-init"):
        config = MsSsmConfig(**options, **MODELS[name].preset)
        assert models.count_parameters(models.build(name, config, INFO, 0)) == pytest.approx(size, rel=0.02)
