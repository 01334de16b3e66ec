"""The LSTM against torch's cell step by step, alone and in batches, whole and in compiled graphs."""

import pytest
import torch
from model_cases import config_of, groups_of, layer_of, model_of, stepped, tokens
from torch import Tensor, nn

from msbench import models
from msbench.models.layers import Bidirectional, Recurrent
from msbench.models.lstm import Lstm


def layer(width: int = 6, seed: int = 0) -> Lstm:
    torch.manual_seed(seed)
    return Lstm(width).double()


def signal(length: int, width: int = 6) -> Tensor:
    return torch.randn(3, length, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def by_cell(own: Lstm, x: Tensor) -> Tensor:
    """``nn.LSTMCell``, one step after another."""
    cell = nn.LSTMCell(x.shape[2], x.shape[2], dtype=x.dtype)
    state = {name.removesuffix("_l0"): value for name, value in own.lstm.state_dict().items()}
    cell.load_state_dict(state)
    h = c = x.new_zeros(len(x), x.shape[2])
    outputs = []
    for part in x.unbind(1):
        h, c = cell(part, (h, c))
        outputs.append(h)
    return torch.stack(outputs, 1)


@pytest.mark.parametrize("length", [1, 2, 30, 100])
def test_the_layer_is_the_cell_over_time(length: int) -> None:
    own, x = layer(), signal(length)
    y = own(x, torch.tensor([length] * 3))
    torch.testing.assert_close(y, by_cell(own, x), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(y, own.lstm(x)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", [1, 29, 64])
def test_steps_equal_the_whole(length: int) -> None:
    own, x = layer(), signal(length)
    assert isinstance(own, Recurrent)
    expected = own(x, torch.tensor([length] * 3))
    torch.testing.assert_close(stepped(own, x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_padding_is_as_if_sequences_were_packed(bidirectional: bool) -> None:
    model = model_of("lstm", bidirectional=bidirectional, layers=1).double()
    own, lengths = layer_of(model), torch.tensor([11, 4, 7])
    x = signal(11, 8)
    y = own(x, lengths)
    parts = [own.ahead.lstm, own.back.lstm] if bidirectional else [own.lstm]
    peer = nn.LSTM(8, 8, batch_first=True, bidirectional=bidirectional, dtype=torch.float64)
    values = {
        f"{n}{end}": v
        for part, end in zip(parts, ("", "_reverse"), strict=False)
        for n, v in part.state_dict().items()
    }
    peer.load_state_dict(values)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected, _ = nn.utils.rnn.pad_packed_sequence(peer(packed)[0], batch_first=True)
    if bidirectional:
        expected = (expected[..., :8] + expected[..., 8:]) / 2
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(y[row, :length], expected[row, :length], rtol=1e-12, atol=1e-12)


def test_weights_are_torchs_own_and_the_two_directions_apart() -> None:
    model = model_of("lstm", d_model=64, bidirectional=True, layers=1)
    both = layer_of(model)
    assert isinstance(both, Bidirectional)
    for _, parameter in both.named_parameters():
        assert 0.9 / 8 < float(parameter.detach().abs().max()) <= 1 / 8
    ahead, back = (list(part.parameters()) for part in (both.ahead, both.back))
    assert not any(torch.equal(one, other) for one, other in zip(ahead, back, strict=True))


@pytest.mark.parametrize("d", [8, 128])
def test_parameter_counts(d: int) -> None:
    assert models.count_parameters(layer_of(model_of("lstm", d_model=d))) == 8 * d * d + 8 * d


def test_states_are_output_and_cell() -> None:
    assert models.count_states_per_channel("lstm", config_of("lstm")) == 2
    assert models.count_states_per_channel("lstm", config_of("lstm", bidirectional=True)) == 4


def test_matrices_decay_and_biases_do_not() -> None:
    model = model_of("lstm")
    for path, group in groups_of(model).items():
        plain = "bias" in path or "norm" in path
        assert group == ("plain" if plain else "weights"), path


def test_the_recurrence_keeps_its_precision_under_autocast() -> None:
    own, x, lengths = Lstm(8), signal(40, 8).float(), torch.tensor([40] * 3)
    expected = own(x, lengths)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = own(x, lengths)
        step = own.step(x[:, 0], own.start(x[:, 0]))[0]
    assert torch.equal(actual, expected)
    torch.testing.assert_close(step, expected[:, 0])


def test_weights_follow_the_module() -> None:
    """The layer holds them twice: both must stay the same through casts, copies and loading."""
    model = model_of("lstm").double()
    model.load_state_dict(model_of("lstm", seed=1).state_dict())
    for own in (layer_of(model), layer_of(model, 1)):
        assert len(own.weights) == 4
        assert all(one is two for one, two in zip(own.weights, own.lstm.parameters(), strict=True))
        assert own.weights[0].dtype == torch.float64
    assert not [name for name in model.state_dict() if "weights" in name]


def test_evaluation_mode_has_gradients() -> None:
    model = model_of("lstm").eval()
    model(*tokens(5, 9)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
