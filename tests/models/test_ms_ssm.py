"""MS-SSM against its equations, against the models it contains, and against each of its switches."""

from typing import Any

import pytest
import torch
from model_cases import layer_of, model_of, tokens
from ms_ssm_cases import core_of, ms_config, signal, streams_by_hand
from torch import Tensor

from msbench.models.ms_ssm import MultiScale
from msbench.models.stream_ssms import find_padded_rows, pad_rows
from msbench.models.streams import split_states
from msbench.ops.filters import causal_conv
from msbench.ops.scan.reference import selective_scan_reference


def by_hand(core: MultiScale, x: Tensor, sizes: list[int], source: str, scanned: str) -> Tensor:
    """Equations 1 to 4, one stream after another, each with its own unpadded matrices."""
    p: dict[str, Tensor] = dict(core.named_parameters())
    streams = streams_by_hand(p, x)
    rank = p["scan.dt.weight"].shape[2]
    E = x @ p["mixer.weight"].T + p["mixer.bias"]
    row, column, z = 0, 0, torch.zeros_like(x)
    for s, n in enumerate(sizes):
        from_x = x if source == "raw" else streams[s]
        u = x if scanned == "raw" else streams[s]
        weight = p["scan.x_proj"][row : row + rank + 2 * n]
        low, B, C = torch.split(from_x @ weight.T, [rank, n, n], dim=-1)
        dt = torch.nn.functional.softplus(low @ p["scan.dt.weight"][s].T + p["scan.dt.bias"][s])
        A = -torch.exp(p["scan.A_log"][:, column : column + n])
        values = (u.unsqueeze(2), dt.unsqueeze(2), A.unsqueeze(0), B.unsqueeze(2), C.unsqueeze(2))
        y = selective_scan_reference(*values).squeeze(2) if n else torch.zeros_like(u)
        z = z + E[:, :, s : s + 1] * (y + p["scan.D"][s] * u)
        row, column = row + rank + 2 * n, column + n
    return z


@pytest.mark.parametrize(("source", "scanned"), [("raw", "stream"), ("stream", "stream"), ("stream", "raw")])
@pytest.mark.parametrize(("state", "sizes"), [(11, [2, 3, 3, 3]), (8, [2, 2, 2, 2]), (3, [0, 1, 1, 1])])
def test_core_equals_the_equations(source: str, scanned: str, state: int, sizes: list[int]) -> None:
    core = core_of(state=state, parameters_from=source, ssm_input=scanned)
    assert split_states(ms_config(state=state)) == sizes
    torch.testing.assert_close(core(signal()), by_hand(core, signal(), sizes, source, scanned))


def test_128_states_over_five_streams() -> None:
    assert split_states(ms_config(state=128, levels=3)) == [25, 25, 26, 26, 26]
    assert split_states(ms_config(state=128, levels=3, state_per_stream=True)) == [128] * 5


def test_padding_rows_are_zero_and_others_are_in_place() -> None:
    index = find_padded_rows([[1, 2, 2], [1, 1, 1]])
    assert index is not None
    rows = torch.arange(1.0, 9).view(8, 1)
    assert pad_rows(rows, index, 10)[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 0, 8, 0]
    assert find_padded_rows([[3], [3]]) is None


def test_a_one_hot_mixer_reads_one_stream() -> None:
    core = core_of(mixer="static")
    with torch.no_grad():
        core.mixer.weight.copy_(torch.tensor([0.0, 0, 1, 0]))
    before = core(signal())
    scan: Any = core.scan
    with torch.no_grad():
        scan.D[[0, 1, 3]] += 5
        scan.dt.bias[[0, 1, 3]] += 1
    torch.testing.assert_close(core(signal()), before, rtol=0, atol=1e-14)
    with torch.no_grad():
        scan.D[2] += 5
    assert (core(signal()) - before).abs().max() > 0.1


def test_a_constant_linear_mixer_is_the_static_one() -> None:
    linear, static = core_of(mixer="linear"), core_of(mixer="static")
    with torch.no_grad():
        linear.mixer.weight.zero_()
    weights = {key: value for key, value in linear.state_dict().items() if not key.startswith("mixer")}
    static.load_state_dict({**weights, "mixer.weight": linear.state_dict()["mixer.bias"]})
    torch.testing.assert_close(linear(signal()), static(signal()))


def test_per_channel_weights_alike_are_the_static_mixer() -> None:
    static, channels = core_of(mixer="static"), core_of(mixer="static", mixer_channels="per-channel")
    weights = {key: value for key, value in static.state_dict().items() if not key.startswith("mixer")}
    spread = static.mixer.weight.detach().unsqueeze(1).expand(-1, 6)
    channels.load_state_dict({**weights, "mixer.weight": spread})
    torch.testing.assert_close(channels(signal()), static(signal()))


def test_softmax_weights_are_a_distribution() -> None:
    weights = core_of(mixer="softmax", mixer_init="default").mixer(signal())
    assert bool((weights > 0).all())
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 13, dtype=torch.float64))
    assert weights.std() > 1e-3


MIXERS = [
    *((mixer, "shared") for mixer in ("linear", "softmax", "static")),
    *((mixer, "per-channel") for mixer in ("linear", "softmax", "static")),
    *((mixer, "low-rank") for mixer in ("linear", "softmax")),
]


@pytest.mark.parametrize(("mixer", "channels"), MIXERS)
def test_output_starts_as_the_mean_of_the_streams(mixer: str, channels: str) -> None:
    torch.manual_seed(0)
    core = MultiScale(ms_config(mixer=mixer, mixer_channels=channels, ssm="none"), 6)
    x = signal().float()
    torch.testing.assert_close(core(x), core.decomposition(x).mean(2))


def test_without_an_ssm_the_streams_are_mixed() -> None:
    core = core_of(ssm="none")
    p, x = dict(core.named_parameters()), signal()
    streams = torch.stack(streams_by_hand(p, x), dim=2)
    E = x @ p["mixer.weight"].T + p["mixer.bias"]
    torch.testing.assert_close(core(x), (streams * E.unsqueeze(-1)).sum(2))
    assert not [name for name in p if name.startswith("scan")]


def test_row_4_shows_every_stream_the_same_convolution() -> None:
    core = core_of(decomposition="shared-conv")
    streams = core.decomposition(signal())
    assert streams.shape == (2, 13, 4, 6)
    conv = core.decomposition.conv
    assert conv is not None
    for s in range(4):
        torch.testing.assert_close(streams[:, :, s], causal_conv(signal(), conv.weight))


def test_raw_input_leaves_out_the_step_size() -> None:
    euler, raw = core_of(input_discretisation="euler"), core_of(input_discretisation="raw")
    raw.load_state_dict(euler.state_dict())
    assert (euler(signal()) - raw(signal())).abs().max() > 1e-3


def test_activation_acts_on_every_stream() -> None:
    plain, active = core_of(), core_of(conv_activation="silu")
    active.load_state_dict(plain.state_dict())
    expected = torch.nn.functional.silu(plain.decomposition(signal()))
    torch.testing.assert_close(active.decomposition(signal()), expected)


def test_core_is_causal() -> None:
    core, x = core_of(), signal(12)[:1]
    jacobian = torch.func.jacrev(lambda value: core(value)[0, :, 0])(x)[:, 0, :, 0]
    assert not jacobian.triu(1).any()
    assert bool((jacobian.diagonal() != 0).all())


def test_jacobian_equals_central_differences() -> None:
    core, x = core_of(), signal(16)[:1]
    jacobian = torch.func.jacrev(lambda value: core(value)[0, -1])(x)[:, 0]
    step = 1e-5
    for position in (0, 7, 15):
        shift = torch.zeros_like(x)
        shift[0, position, 2] = step
        difference = (core(x + shift) - core(x - shift))[0, -1] / (2 * step)
        torch.testing.assert_close(jacobian[:, position, 2], difference, rtol=1e-4, atol=1e-8)


def test_blocks_have_their_parts() -> None:
    vit, glu = model_of("msssm-s6", block="vit", layers=2), model_of("msssm-s6", block="glu", layers=2)
    assert len(vit.blocks) == 4
    assert len(glu.blocks) == 2
    assert layer_of(vit, 1).up.weight.shape == (32, 8)
    assert not [name for name, _ in glu.named_parameters() if "in_proj" in name]


def test_drift_of_bf16_over_4096_steps_is_bounded() -> None:
    model = model_of("msssm-s6", state=26, pooling="last").eval()
    inputs, lengths = tokens(4096)
    with torch.no_grad():
        exact = model(inputs, lengths)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = model(inputs, lengths)
    assert float((rough - exact).abs().max() / exact.abs().max()) < 0.02
