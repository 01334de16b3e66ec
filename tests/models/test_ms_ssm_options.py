"""Readings of the paper that are options: the effect of each, and pairs that are refused."""

from typing import Any

import pytest
import torch
from model_cases import model_of
from ms_ssm_cases import core_of, ms_config, signal, streams_by_hand
from pydantic import ValidationError

from msbench.config.selective import MsSsmConfig
from msbench.models.ms_ssm import GatedBlock, MultiScale
from msbench.models.stream_ssms import RealSsms
from msbench.models.streams import list_stream_names, split_states
from msbench.ops.filters import causal_conv

STEPS = ("scan.dt.weight", "scan.dt.bias")


@torch.no_grad()
def rates_of(**options: Any) -> list[list[int]]:
    torch.manual_seed(0)
    core = MultiScale(ms_config(**options), 6)
    assert isinstance(core.scan, RealSsms)
    by_stream = torch.split(core.scan.A_log.exp()[0], core.scan.streams)
    return [[round(float(rate)) for rate in stream] for stream in by_stream]


def test_streams_have_names() -> None:
    assert list_stream_names(ms_config(levels=3)) == ["x", "d1", "d2", "d3", "a3"]
    assert list_stream_names(ms_config(levels=2, raw_stream=False)) == ["d1", "d2", "a2"]
    assert list_stream_names(ms_config(levels=0)) == ["x"]
    for levels, raw_stream in ((0, True), (1, True), (1, False), (3, True), (3, False)):
        config = ms_config(levels=levels, raw_stream=raw_stream)
        assert config.streams == len(list_stream_names(config))


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_without_the_signal_the_other_streams_stay(activation: str) -> None:
    core = core_of(raw_stream=False, conv_activation=activation)
    p, x = dict(core.named_parameters()), signal()
    expected = torch.stack(streams_by_hand(p, x)[1:], dim=2)
    expected = torch.nn.functional.silu(expected) if activation == "silu" else expected
    torch.testing.assert_close(core.decomposition(x), expected)
    assert split_states(ms_config(raw_stream=False)) == [3, 4, 4]


def test_the_signals_stream_can_have_the_slowest_decays() -> None:
    assert rates_of(state=9, levels=1) == [[7, 8, 9], [4, 5, 6], [1, 2, 3]]
    assert rates_of(state=9, levels=1, raw_decays="slowest") == [[1, 2, 3], [7, 8, 9], [4, 5, 6]]
    assert rates_of(state=8, levels=1, raw_decays="slowest") == [[1, 2], [6, 7, 8], [3, 4, 5]]
    assert rates_of(state=2, levels=1, raw_decays="slowest") == [[], [2], [1]]


def test_per_channel_weights_alike_are_the_shared_mixer() -> None:
    """By the other path: mixed behind the scan, and not in it."""
    for mixer in ("linear", "softmax"):
        shared, channels = (core_of(mixer=mixer, mixer_channels=kind) for kind in ("shared", "per-channel"))
        p = shared.state_dict()
        weight = p["mixer.weight"].repeat_interleave(6, dim=0)
        bias = p["mixer.bias"].unsqueeze(1).expand(-1, 6)
        channels.load_state_dict({**p, "mixer.weight": weight, "mixer.bias": bias})
        torch.testing.assert_close(channels(signal()), shared(signal()), rtol=1e-12, atol=1e-12)


def test_a_low_rank_mixer_is_the_product_of_its_matrices() -> None:
    low, full = (core_of(mixer_channels=kind) for kind in ("low-rank", "per-channel"))
    p = low.state_dict()
    assert p["mixer.down"].shape == (1, 6)
    product = p["mixer.weight"] @ p.pop("mixer.down")
    full.load_state_dict({**p, "mixer.weight": product})
    torch.testing.assert_close(full(signal()), low(signal()), rtol=1e-12, atol=1e-12)


def test_a_low_rank_mixer_leaves_its_start() -> None:
    """Its first matrix has no gradient at the very start, where the second is zero, but has one then."""
    model = model_of("msssm-s6", mixer_channels="low-rank", state=7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(2, 5, dtype=torch.int64), torch.tensor([5, 3])).square().sum().backward()
        optimizer.step()
    downs = [value for name, value in model.named_parameters() if name.endswith("mixer.down")]
    assert len(downs) == 2
    assert all(value.grad is not None and bool(value.grad.any()) for value in downs)


@pytest.mark.parametrize("ssm", ["s6", "s4", "s4d", "s4-dplr", "none"])
def test_parameters_from_the_token_are_those_of_the_expanded_input_before_its_matrix(ssm: str) -> None:
    """W u read from the token is W' x with W = W' in_proj: the same block."""
    torch.manual_seed(0)
    expanded, token = (
        GatedBlock(ms_config(ssm=ssm, state=12, mixer_init="default", raw_input=kind)).double()
        for kind in ("expanded", "token")
    )
    p = expanded.state_dict()
    into = p["in_proj.weight"][:16]
    for name in ("core.mixer.weight", "core.scan.x_proj"):
        if name in p:
            p[name] = p[name] @ into
    token.load_state_dict(p)
    u, lengths = signal(15, 8), torch.tensor([15, 15])
    torch.testing.assert_close(token(u, lengths), expanded(u, lengths), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("options", [{}, {"mixer_channels": "per-channel"}, {"ssm": "s4"}, {"ssm": "none"}])
def test_parameters_from_the_sum_are_those_of_a_raw_input_that_is_it(options: dict[str, Any]) -> None:
    core, other, x = core_of(raw_input="sum", **options), core_of(**options), signal()
    other.load_state_dict(core.state_dict())
    source = torch.nn.functional.silu(core.decomposition(x).sum(2))
    torch.testing.assert_close(core(x), other(x, source))
    assert not torch.allclose(core(x), other(x))


def test_streams_that_share_step_sizes_are_those_with_equal_ones() -> None:
    shared, own, x = core_of(step_sizes="shared", state=11), core_of(state=11), signal()
    p = dict(shared.state_dict())
    rank, sizes = p["scan.dt.weight"].shape[2], split_states(ms_config(state=11))
    step, *others = p["scan.x_proj"].split([rank, *(2 * n for n in sizes)])
    p["scan.x_proj"] = torch.cat([part for rest in others for part in (step, rest)])
    p |= {name: p[name].repeat(len(sizes), *(1,) * (p[name].ndim - 1)) for name in STEPS}
    own.load_state_dict(p)
    torch.testing.assert_close(shared(x), own(x))


def test_mambas_convolution_stands_before_all_else() -> None:
    torch.manual_seed(0)
    with_it, without = GatedBlock(ms_config(input_conv=True)).double(), GatedBlock(ms_config()).double()
    without.load_state_dict(with_it.state_dict(), strict=False)
    u, lengths = signal(15, 8), torch.tensor([15, 15])
    x, gate = with_it.in_proj(u).chunk(2, dim=-1)
    assert with_it.conv is not None
    x = torch.nn.functional.silu(causal_conv(x, with_it.conv.weight, with_it.conv.bias))
    expected = with_it.out_proj(without.core(x) * torch.nn.functional.silu(gate))
    torch.testing.assert_close(with_it(u, lengths), expected)


def test_without_a_decomposition_every_stream_is_the_signal() -> None:
    core, x = core_of(decomposition="none"), signal()
    assert torch.equal(core.decomposition(x), x.unsqueeze(2).expand(-1, -1, 4, -1))
    assert not list(core.decomposition.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ssm": "s4", "parameters_from": "stream"}, "parameters_from: stream needs ssm: s6; with ssm: s4"),
        ({"ssm": "none", "parameters_from": "stream"}, "parameters_from: stream needs ssm: s6"),
        ({"ssm": "s4", "input_discretisation": "raw"}, "input_discretisation: raw needs ssm: s6"),
        ({"ssm": "s4", "dt_rank": 2}, "dt_rank needs ssm: s6"),
        ({"learned_b": True}, "learned_b: true needs ssm: s4"),
        ({"ssm": "s4d", "learned_b": True}, "learned_b: true needs ssm: s4, whose B is 1 without it"),
        ({"ssm": "s4-dplr", "parameters_from": "stream"}, "parameters_from: stream needs ssm: s6"),
        ({"ssm": "s4-dplr", "input_discretisation": "raw"}, "input_discretisation: raw needs ssm: s6"),
        ({"ssm": "s4d", "dt_rank": 2}, "dt_rank needs ssm: s6; with ssm: s4d nothing is computed"),
        ({"ssm": "s4d", "decay_spacing": "random"}, "decay_spacing: random needs ssm: s6 or s4; s4d has one"),
        ({"ssm": "s4-dplr", "state": 25}, "state 25 with ssm: s4-dplr is odd.*make it even"),
        ({"ssm": "s4d", "state": 7, "state_per_stream": True}, "state 7 with ssm: s4d is odd"),
        ({"ssm": "s4d", "state": 8}, "state 8 with ssm: s4d leaves a stream without.*5 streams need 10"),
        ({"ssm": "s4d", "state": 6, "raw_stream": False}, "4 streams need 8 or more"),
        ({"ssm": "none", "skip": False}, "skip needs states; with ssm: none there are none: leave it out"),
        ({"ssm": "none", "state_per_stream": True}, "state_per_stream needs states"),
        ({"ssm": "none", "decay_init": "mamba"}, "decay_init needs states"),
        ({"ssm": "none", "decay_spacing": "random"}, "decay_spacing needs states"),
        ({"ssm": "none", "raw_decays": "slowest"}, "raw_decays needs states"),
        ({"ssm": "none", "learned_b": True}, "learned_b: true needs ssm: s4"),
        ({"ssm_input": "raw"}, "ssm_input: raw needs parameters_from: stream; otherwise nothing reads"),
        ({"ssm": "s4", "ssm_input": "raw"}, "ssm_input: raw needs parameters_from: stream"),
        ({"raw_stream": False, "levels": 0}, "raw_stream: false needs levels: 1 or more"),
        ({"raw_decays": "slowest", "levels": 0}, "raw_decays: slowest needs levels: 1 or more"),
        ({"raw_decays": "slowest", "raw_stream": False}, "raw_decays: slowest needs raw_stream: true"),
        ({"raw_decays": "slowest", "decay_init": "mamba"}, "raw_decays: slowest needs decay_init: scale"),
        ({"conv_bias": True, "levels": 0}, "conv_bias: true needs filters; levels: 0"),
        ({"conv_bias": True, "decomposition": "none"}, "conv_bias: true needs filters"),
        ({"raw_input": "token", "block": "glu"}, "raw_input: token needs block: mamba"),
        ({"input_conv": True, "block": "vit"}, "input_conv: true needs block: mamba; block: vit has no such"),
        ({"step_sizes": "shared", "ssm": "s4"}, "step_sizes: shared needs ssm: s6; with ssm: s4 nothing"),
        (
            {"step_sizes": "shared", "parameters_from": "stream"},
            "step_sizes: shared needs parameters_from: raw",
        ),
        ({"step_sizes": "shared", "levels": 0}, "step_sizes: shared needs levels: 1 or more"),
        ({"mixer_rank": 2}, "mixer_rank needs mixer_channels: low-rank"),
        ({"mixer": "static", "mixer_channels": "low-rank"}, "mixer_channels: low-rank needs a mixer with"),
        ({"mixer": "softmax", "levels": 0}, "mixer: softmax needs levels: 1 or more"),
        ({"mixer": "static", "mixer_bias": False}, "mixer_bias: false needs a mixer with a matrix"),
        ({"mixer_bias": False}, "mixer_bias: false needs mixer_init: default"),
        ({"state": 0}, "greater than or equal to 1"),
    ],
    ids=str,
)
def test_what_does_nothing_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MsSsmConfig(**options)


def test_a_softmax_needs_no_bias_to_start_at_the_mean() -> None:
    core = MultiScale(ms_config(mixer="softmax", mixer_bias=False, ssm="none"), 6).double()
    torch.testing.assert_close(core(signal()), core.decomposition(signal()).mean(2))
