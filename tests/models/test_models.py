"""Names, seeds, parameter counts, and that initial values survive the construction of the whole model."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from model_cases import (
    INFO,
    OWN_SHORTCUTS,
    RECURRENT,
    TOKEN_MODELS,
    compute_test_loss,
    config_of,
    known,
    layer_of,
    model_of,
    tokens,
)
from pydantic import ValidationError
from torch.utils.flop_counter import FlopCounterMode

from msbench import models
from msbench.analysis.benchmarks.length import TERMS
from msbench.config import MODELS
from msbench.config.selective import MambaConfig, MsSsmConfig
from msbench.errors import ConfigError, UnknownName
from msbench.models.classifier import Residual
from msbench.models.layers import Padding
from msbench.ops.scan.dispatch import KERNELS
from msbench.training import step_memory
from msbench.training.step import compute_loss
from msbench.training.step_memory import measure_step_memory

both = pytest.mark.parametrize("name", ["mamba", "msssm-s6"])


def test_every_model_that_can_be_named_can_be_built() -> None:
    for name, entry in MODELS.items():
        assert models.find_config_family(entry.config(**entry.preset)) is models.find_family(name)
        if entry.numbers_only:
            continue
        model = models.build(name, entry.config(d_model=8, layers=1, **entry.preset), INFO, 0)
        assert model(*tokens(3, 5)).shape == (2, INFO.classes)


def test_unknown_names_and_foreign_configs_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'mamba'"):
        models.build("manba", MambaConfig(), INFO, 0)
    with pytest.raises(ConfigError, match="mamba takes a MambaConfig, not a MsSsmConfig"):
        models.build("mamba", MsSsmConfig(), INFO, 0)
    with pytest.raises(UnknownName):
        models.count_states_per_channel("manba", MambaConfig())


@both
def test_a_width_of_zero_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=r"expand 0\.01 times d_model 8 is a width of 0; raise either"):
        config_of(name, expand=0.01)


@both
def test_step_sizes_that_overflow_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="less than or equal to 1000"):
        config_of(name, dt_max=1e30)
    assert torch.isfinite(model_of(name, dt_min=1e3, dt_max=1e3)(*tokens(30, 40))).all()


@pytest.mark.parametrize("name", TOKEN_MODELS)
def test_one_seed_is_one_model_and_disturbs_nobody(name: str) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first = model_of(name, seed=3)
    assert torch.equal(torch.rand(3), expected)
    torch.manual_seed(8)
    again, other = model_of(name, seed=3), model_of(name, seed=4)
    pairs = zip(first.state_dict().values(), again.state_dict().values(), strict=True)
    assert all(torch.equal(one, two) for one, two in pairs)
    assert not torch.equal(first.head.weight, other.head.weight)


def block_count(name: str, **options: Any) -> int:
    return models.count_parameters(layer_of(model_of(name, **{"layers": 1, **options})))


# Mamba's formula: 2 d i + i (k + 1) + i (r + 2 n) + r i + i + i n + i + i d.
@pytest.mark.parametrize(
    ("d", "options", "count"),
    [
        (128, {"kernel": 4, "state": 16}, 116_480),
        (128, {"kernel": 4, "state": 16, "expand": 1}, 58_240),
        (128, {"kernel": 4, "state": 128}, 202_496),
        (256, {"kernel": 4, "state": 16}, 437_760),
        (256, {"kernel": 4, "state": 16, "expand": 1}, 218_880),
        (16, {"kernel": 4, "state": 8}, 2_592),
    ],
)
def test_mamba_has_the_published_number_of_parameters(d: int, options: dict[str, Any], count: int) -> None:
    assert block_count("mamba", d_model=d, **options) == count


@pytest.mark.parametrize("d", [16, 24, 128])
@pytest.mark.parametrize("levels", [1, 3])
@pytest.mark.parametrize("state", [16, 128])
def test_ms_ssm_has_the_parameters_of_its_formula(d: int, levels: int, state: int) -> None:
    i, k, m, r = 2 * d, 4, levels + 2, -(-d // 16)
    filters, x_proj, steps = levels * 2 * k * i, (m * r + 2 * state) * i, m * r * i + m * i
    expected = 2 * d * i + filters + x_proj + steps + i * state + m * i + (m * i + m) + i * d
    assert block_count("msssm-s6", d_model=d, levels=levels, state=state, kernel=k) == expected


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"d_model": 128, "kernel": 4}, 226_053 + 4 * 256),
        ({"d_model": 128, "kernel": 4, "expand": 1}, 113_029 + 4 * 128),
        ({"d_model": 128, "kernel": 4, "state": 16}, 140_037 + 4 * 256),
        ({"d_model": 128, "kernel": 4, "state_per_stream": True}, 619_269 + 4 * 256),
        ({"d_model": 256, "kernel": 2}, 683_525 + 4 * 512),
        ({"d_model": 128, "kernel": 4, "block": "glu"}, 97_157),
        ({"d_model": 256, "kernel": 2, "block": "glu"}, 277_253),
    ],
)
def test_ms_ssm_has_the_expected_number_of_parameters(options: dict[str, Any], count: int) -> None:
    """The gated block's numbers count one skip for all streams; ours has one a stream, (m - 1) i more."""
    assert block_count("msssm-s6", **options) == count


def test_states_per_channel() -> None:
    count = models.count_states_per_channel
    assert count("mamba", config_of("mamba", state=16)) == 16
    assert count("mamba", config_of("mamba", state=16, bidirectional=True)) == 32
    assert count("msssm-s6", config_of("msssm-s6", state=128)) == 128
    assert count("msssm-s6", config_of("msssm-s6", state=26, state_per_stream=True)) == 130
    assert count("msssm-s6", config_of("msssm-s6", ssm="none")) == 0


def named(model: torch.nn.Module, end: str) -> list[torch.Tensor]:
    found = [value.detach() for name, value in model.named_parameters() if name.endswith(end)]
    assert found, end
    return found


@both
def test_step_sizes_survive_construction(name: str) -> None:
    model = model_of(name, d_model=32, layers=3)
    for bias in named(model, "dt.bias"):
        steps = torch.nn.functional.softplus(bias)
        assert 1e-4 <= float(steps.min()) <= 5e-3
        assert 0.05 <= float(steps.max()) <= 0.1 + 1e-6
    for weight in named(model, "dt.weight"):
        bound = weight.shape[-1] ** -0.5
        assert 0.9 * bound < float(weight.abs().max()) <= bound


@both
def test_steps_have_a_floor(name: str) -> None:
    model = model_of(name, dt_min=1e-7, dt_max=1e-6)
    for bias in named(model, "dt.bias"):
        torch.testing.assert_close(torch.nn.functional.softplus(bias), torch.full_like(bias, 1e-4))


def test_decays_survive_construction_and_cover_the_integers_coarsest_slowest() -> None:
    model = model_of("msssm-s6", state=128, levels=3, layers=3)
    for A_log in named(model, "A_log"):
        rates = A_log.exp()
        torch.testing.assert_close(rates.sort(dim=1).values, torch.arange(1.0, 129).expand_as(rates))
        streams = torch.split(rates[0], [25, 25, 26, 26, 26])
        assert [round(float(stream.min())) for stream in streams] == [104, 79, 53, 27, 1]


def test_decays_of_figure_2() -> None:
    model = model_of("msssm-s6", state=9, levels=1)
    streams = named(model, "A_log")[0][0].exp().view(3, 3)
    torch.testing.assert_close(streams, torch.tensor([[7.0, 8, 9], [4, 5, 6], [1, 2, 3]]))


def test_mambas_decays() -> None:
    cases: dict[str, dict[str, Any]] = {
        "mamba": {"state": 5},
        "msssm-s6": {"state": 15, "levels": 1, "decay_init": "mamba"},
    }
    for name, options in cases.items():
        model = model_of(name, **options)
        rates = named(model, "A_log")[0][0].exp().view(-1, 5)
        torch.testing.assert_close(rates, torch.arange(1.0, 6).expand_as(rates))


def test_random_decays_stay_in_their_intervals() -> None:
    model = model_of("msssm-s6", d_model=64, state=9, levels=1, decay_spacing="random")
    streams = named(model, "A_log")[0].exp().view(-1, 3, 3)
    for index, (low, high) in enumerate([(7, 10), (4, 7), (1, 4)]):
        assert low - 1e-4 <= float(streams[:, index].min()) < low + 0.2
        assert high - 0.2 < float(streams[:, index].max()) <= high + 1e-4


def test_the_mixer_survives_construction() -> None:
    model = model_of("msssm-s6", levels=3, layers=2)
    for bias in named(model, "mixer.bias"):
        assert torch.equal(bias, torch.full((5,), 0.2))
    assert not any(weight.any() for weight in named(model, "mixer.weight"))
    plain = model_of("msssm-s6", mixer_init="default", d_model=32)
    for weight in named(plain, "mixer.weight"):
        assert 0.5 / 8 < float(weight.abs().max()) <= 1 / 8


@both
def test_embedding_and_output_projection_survive_construction(name: str) -> None:
    model = model_of(name, d_model=64, layers=4)
    assert model.encoder.embedding is not None
    assert float(model.encoder.embedding.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
    for weight in named(model, "out_proj.weight"):
        bound = weight.shape[1] ** -0.5 / 2
        assert 0.9 * bound < float(weight.abs().max()) <= bound


@both
@pytest.mark.parametrize("std", [1.0, 0.02, None])
def test_token_vectors_start_with_their_deviation(name: str, std: float | None) -> None:
    model = model_of(name, d_model=512, embedding_std=std)
    assert model.encoder.embedding is not None
    weight = model.encoder.embedding.weight.detach()
    expected = INFO.vocabulary**-0.5 if std is None else std
    assert float(weight.std()) == pytest.approx(expected, rel=0.05)
    assert (float(weight.abs().max()) < 2.3 * expected) == (std is None)


@pytest.mark.parametrize("prenorm", [True, False])
@pytest.mark.parametrize("final", [None, True, False])
def test_the_final_norm_is_that_of_the_order_or_as_set(prenorm: bool, final: bool | None) -> None:
    model = model_of("s5", state=4, prenorm=prenorm, final_norm=final, layers=1).eval()
    assert (model.final_norm is not None) == (prenorm if final is None else final)
    inputs, lengths = tokens(9, 9)
    x = model.encoder(inputs)
    for block in model.blocks:
        x = block(x, Padding.none_of(x))
    x = x if model.final_norm is None else model.final_norm(x)
    torch.testing.assert_close(model(inputs, lengths), model.head(x.mean(1)))


@pytest.mark.parametrize("name", ["transformer", "s4", "griffin"])
def test_the_rate_of_dropped_residuals_rises_from_layer_to_layer(name: str) -> None:
    model = model_of(name, layers=3, drop_path=0.4, **known(name, state=4))
    rates = [block.drop_path.p for block in model.blocks if isinstance(block, Residual)]
    assert rates == pytest.approx([r for r in (0.0, 0.2, 0.4) for _ in range(len(rates) // 3)])
    only = model_of(name, layers=1, drop_path=0.4).blocks[0]
    assert isinstance(only, Residual)
    assert only.drop_path.p == 0
    plain = model_of(name, layers=3, **known(name, state=4))
    assert torch.equal(model.eval()(*tokens(9, 5)), plain.eval()(*tokens(9, 5)))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("s5", {"batch_norm_momentum": 0.05}, "batch_norm_momentum needs norm: batch; norm: layer"),
        ("s5", {"batch_norm_momentum": 0.0, "norm": "batch"}, "greater than 0"),
        ("s5", {"embedding_std": 1.0, "encoder": "scalar"}, "embedding_std needs encoder: embedding"),
        ("inceptiontime", {"drop_path": 0.1}, "drop_path is not supported"),
        ("mamba", {"drop_path": 1.0}, "less than 1"),
    ],
)
def test_options_without_their_part_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of(name, **options)


@pytest.mark.parametrize("name", TOKEN_MODELS)
def test_recomputing_layers_changes_no_bit(name: str) -> None:
    paths = {} if name in (*OWN_SHORTCUTS, *RECURRENT) else {"drop_path": 0.3}
    config = config_of(name, norm="batch", dropout=0.3, **paths, **known(name, state=12))
    inputs = torch.randint(1, 11, (4, 21), generator=torch.Generator().manual_seed(0))
    gradients = []
    for on in (False, True):
        model = models.build(name, config, INFO, seed=0)
        model.recompute_layers(9 * on)
        torch.manual_seed(1)
        loss = compute_test_loss(model, (inputs, torch.tensor([21, 5, 13, 1])))
        loss.backward()  # type: ignore[no-untyped-call]
        gradients.append([parameter.grad for parameter in model.parameters()])
    for kept, again in zip(*gradients, strict=True):
        assert kept is not None
        assert torch.equal(kept, again)


LONG = replace(INFO, longest=100)


def compute_step_bytes(name: str, config: Any, recomputed: int) -> tuple[int, int]:
    """Bytes at the end of the forward, and at most, of a real step."""
    model = models.build(name, config, LONG, seed=0).train()
    model.recompute_layers(recomputed)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    live = step_memory._LiveBytes(hides=False)
    with live:
        inputs, lengths, labels = step_memory._make_batch(LONG, 8, 100, "cpu")
        loss = compute_loss(model(inputs + 1, lengths), labels, "cross-entropy")
        auxiliary = model.take_auxiliary_loss()
        loss = loss if auxiliary is None else loss + auxiliary
        end = live.now
        loss.backward()  # type: ignore[no-untyped-call]
    return end, live.peak


ONE_OF_A_FAMILY = {entry.family: name for name, entry in MODELS.items()}.values()
WITH_BATCH_NORM = sorted({*ONE_OF_A_FAMILY, "griffin", "msssm-s6", "msssm-s4"})
"""And those of a family that differ from its last in more than numbers."""
OTHER_NUMBERS = {
    "mamba-2x-param",
    "mamba-2x-state",
    "msssm-mamba-init",
    "s4d-inv",
    "s4d-legs",
    "dss-exp-no-scale",
}
"""Models that run the very code of another."""
CHOICES = {
    "msssm-gate-self-self",
    "msssm-gate-original-self",
    "msssm-mixer-static",
    "msssm-mixer-softmax",
    "hawk",
}
"""Models that choose among parts that others have too."""
ON_KERNELS = ("msssm-s6", "msssm-s4", "msssm-no-ssm", "mamba", "multiresnet", "griffin", "mega", "s5", "lru")
"""One model for each use of the C++ kernels; others are the same with and without them."""
BEST_KERNEL = "torch" if KERNELS["cpp"].missing("cpu") else "cpp"
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in TOKEN_MODELS if name not in OTHER_NUMBERS),
    *(
        (name, {"bidirectional": True})
        for name in WITH_BATCH_NORM
        if name in TOKEN_MODELS and known(name, bidirectional=True)
    ),
    *(
        ("griffin", {"layers": 3, **options})
        for options in ({}, {"window": 60}, {"pattern": ("attention",)}, {"layers": 6, "norm": "batch"})
    ),
    *((name, {"causal": True}) for name in ("linear-transformer", "cosformer")),
    *(("performer", {"features": count}) for count in (2, 256)),
    *(("linformer", {"rank": 16, "sharing": each}) for each in ("heads", "layers")),
    *((name, {"dropout": 0.1}) for name in ("s4", "s5", "lru", "liquid-s4")),
    ("dss-exp", {"gate": "none", "dropout": 0.1}),
    ("liquid-s4", {"liquid_kernel": "allcombs"}),
    ("liquid-s4", {"liquid_kernel": "allcombs", "degree": 4, "liquid_term": "frozen"}),
    ("liquid-s4", {"products": "shifted", "degree": 3}),
    ("msssm-s6", {"conv_activation": "silu"}),
    ("msssm-s6", {"mixer_channels": "per-channel"}),
    ("msssm-s6", {"block": "glu"}),
    ("msssm-s4", {"block": "vit"}),
    ("msssm-s4", {"levels": 0}),
    ("msssm-s4d", {"mixer_channels": "per-channel"}),
    ("msssm-s4-dplr", {"decomposition": "shared-conv"}),
    ("msssm-no-ssm", {"decomposition": "shared-conv", "mixer_channels": "per-channel"}),
]


@pytest.mark.parametrize(
    ("name", "options", "kernel"),
    [
        *((*each, BEST_KERNEL) for each in OPTIONS),
        *((name, {}, "torch") for name in ON_KERNELS if BEST_KERNEL != "torch"),
    ],
)
def test_a_trace_is_what_a_step_takes(
    name: str, options: dict[str, Any], kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", kernel)
    config = config_of(name, d_model=32, **known(name, state=32), **options)
    found = measure_step_memory(name, config, LONG, examples=8, length=100, device="cpu")
    blocks, near = len(found.kept), 0.1 if models.find_family(name).loop != "none" else 0.05
    for recomputed in (0, blocks):
        end, peak = compute_step_bytes(name, config, recomputed)
        assert found.estimate(recomputed) - found.fixed == pytest.approx(peak, rel=near)
        if not recomputed:
            assert sum(found.kept) + found.rest == pytest.approx(end, rel=near)


@pytest.mark.parametrize("name", [name for name in TOKEN_MODELS if models.find_family(name).cost != "l^2"])
def test_products_grow_as_the_cost_says(name: str) -> None:
    """From one length to twice as much, with all that is sized by the task's longest sequence."""
    counts = []
    for length in (1024, 2048):
        model = models.build(name, config_of(name, layers=1), replace(INFO, longest=length), seed=0)
        with FlopCounterMode(display=False) as counter:
            model.eval()(*tokens(length))
        counts.append(counter.get_total_flops())
    term = TERMS[models.find_family(name).cost]
    assert counts[1] / counts[0] <= 1.05 * term(2048) / term(1024)


# Compiling takes seconds: each code once, and both norms in some.
@pytest.mark.parametrize(
    ("name", "norm"),
    [
        (name, "batch" if name in WITH_BATCH_NORM else "layer")
        for name in TOKEN_MODELS
        if name not in OTHER_NUMBERS | CHOICES
    ],
)
def test_a_model_compiles_into_one_graph(name: str, norm: str) -> None:
    torch.compiler.reset()
    model = model_of(name, norm=norm, **known(name, state=12))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    # A graph has the loop of a recurrent network position by position.
    inputs, lengths = tokens(6, 3, 5) if name in RECURRENT else tokens(30, 17, 24)
    parameters = list(model.parameters())
    results = []
    for call in (model, compiled):
        torch.manual_seed(0)
        logits = call(inputs, lengths)
        loss, auxiliary = logits.square().sum(), model.take_auxiliary_loss()
        total = loss if auxiliary is None else loss + auxiliary
        results.append([logits, *torch.autograd.grad(total, parameters)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
