"""r-LSTM: its decoder against torch's LSTM and a loop, anchors, padding, and what evaluation leaves out."""

from typing import Any

import pytest
import torch
from kind_cases import INFOS
from model_cases import INFO, config_of, model_of, shaken, tokens
from torch import Tensor, nn
from torch.nn import functional

from msbench import models
from msbench.models import r_lstm
from msbench.models.classifier import Classifier
from msbench.models.r_lstm import PastDecoder


def decoder_of(model: Classifier) -> PastDecoder:
    assert isinstance(model.auxiliary, PastDecoder)
    return model.auxiliary


def losses_by_loop(decoder: PastDecoder, outputs: Tensor, sequences: Tensor, anchors: Tensor) -> Tensor:
    """The unweighted loss of every example (b,), through torch's own two-layer LSTM, one by one."""
    width = decoder.recall.out_features
    both = nn.LSTM(width, width, num_layers=2, batch_first=True, dtype=outputs.dtype)
    parts = [*decoder.inner.parameters(), *decoder.outer.parameters()]
    found = []
    for h, sequence, anchor in zip(outputs, sequences, anchors.tolist(), strict=True):
        segment = sequence[max(0, anchor - decoder.segment) : anchor]
        read: Tensor = decoder.read(segment[:-1])
        x = torch.cat([torch.zeros(1, width, dtype=outputs.dtype), read]) + decoder.recall(h[anchor - 1])
        names = [name for name, _ in both.named_parameters()]
        y, _ = torch.func.functional_call(both, dict(zip(names, parts, strict=True)), (x[None],))
        predicted = decoder.predict(y[0])
        if segment.is_floating_point():
            found.append((predicted - segment).square().mean())
        else:
            found.append(functional.cross_entropy(predicted, segment))
    return torch.stack(found)


def fix_anchors(monkeypatch: pytest.MonkeyPatch, *shares: float) -> None:
    monkeypatch.setattr(torch, "rand", lambda *_sizes, **_options: torch.tensor(shares))


@pytest.mark.parametrize("kind", ["tokens", "signal"])
def test_the_loss_and_its_gradients_are_those_of_a_loop(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    info = INFOS[kind]
    config = config_of("r-lstm", segment=4, decoder_width=6, auxiliary_weight=0.5)
    decoder = decoder_of(shaken(models.build("r-lstm", config, info, 0))).double()
    source = torch.Generator().manual_seed(3)
    outputs = torch.randn(4, 9, 8, generator=source, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([9, 1, 6, 7])
    sequences = (
        torch.randint(1, info.vocabulary, (4, 9), generator=source)
        if kind == "tokens"
        else torch.randn(4, 9, info.channels, generator=source, dtype=torch.float64)
    )
    fix_anchors(monkeypatch, 0.95, 0.3, 0.0, 0.5)
    anchors = torch.tensor([9, 1, 1, 4])
    leaves = [outputs, *decoder.parameters()]
    found = decoder(outputs, sequences, lengths)
    expected = 0.5 * losses_by_loop(decoder, outputs, sequences, anchors).mean()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    for one, other in zip(
        torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


def test_anchors_are_all_positions_of_a_sequence_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("r-lstm", segment=3, decoder_width=4)
    decoder, seen = decoder_of(model), []

    def note(self: PastDecoder, sequences: Tensor, anchors: Tensor) -> Any:
        seen.append(anchors)
        return cut(self, sequences, anchors)

    cut = PastDecoder.cut_segments
    monkeypatch.setattr(PastDecoder, "cut_segments", note)
    torch.manual_seed(0)
    inputs, lengths = tokens(5, 1, 3)
    for _ in range(200):
        decoder(torch.randn(3, 5, 8), inputs, lengths)
    found = torch.stack(seen)
    assert [set(column.tolist()) for column in found.T] == [{1, 2, 3, 4, 5}, {1}, {1, 2, 3}]


def test_what_stands_in_padding_is_not_reproduced() -> None:
    model = shaken(model_of("r-lstm", segment=20, decoder_width=4)).train()
    inputs, lengths = tokens(7, 19, 1)
    found = []
    for junk in (0, 9):
        torch.manual_seed(1)
        model(torch.where(inputs == 0, junk, inputs), lengths)
        found.append(model.take_auxiliary_loss())
    assert found[0] is not None
    assert found[1] is not None
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


def test_the_classifier_is_the_lstm_alone_and_evaluation_has_no_decoder() -> None:
    model = model_of("r-lstm", layers=1, decoder_width=4).eval()
    inputs, lengths = tokens(7, 19, 1)
    plain = nn.LSTM(8, 8, batch_first=True)
    plain.load_state_dict(model.blocks[0].layer.lstm.state_dict())  # type: ignore[union-attr]
    outputs, _ = plain(model.encoder(inputs))
    expected = model.head(outputs[torch.arange(3), lengths - 1])
    torch.testing.assert_close(model(inputs, lengths), expected, rtol=1e-5, atol=1e-6)
    assert model.take_auxiliary_loss() is None
    with torch.no_grad():
        for parameter in decoder_of(model).parameters():
            parameter.fill_(torch.nan)
    assert torch.isfinite(model(inputs, lengths)).all()


def test_the_decoder_learns_to_reproduce_what_was_read() -> None:
    torch.manual_seed(0)
    model = model_of("r-lstm", d_model=32, layers=1, segment=4, decoder_width=32).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for step in range(120):
        model(*tokens(*[6] * 32, seed=step))
        loss = model.take_auxiliary_loss()
        assert loss is not None
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    # Ten equally likely tokens: without memory no better than log(10) = 2.30.
    assert sum(losses[:5]) / 5 > 2.2
    assert sum(losses[-20:]) / 20 < 1.9


def test_the_decoder_keeps_its_precision_under_autocast() -> None:
    decoder, (inputs, lengths) = decoder_of(model_of("r-lstm", decoder_width=6)), tokens(7, 19, 1)
    outputs = torch.randn(3, 19, 8, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    expected = decoder(outputs, inputs, lengths)
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(decoder(outputs, inputs, lengths), expected)


def test_parameters_are_those_of_lstm_decoder_and_head() -> None:
    d, e, classes, vocabulary = 8, 6, INFO.classes, INFO.vocabulary
    model = model_of("r-lstm", layers=1, decoder_width=e)
    lstm = 4 * (2 * d * d + 2 * d)
    decoder = (d * e + e) + vocabulary * e + 2 * 4 * (2 * e * e + 2 * e) + (e + 1) * vocabulary
    head = d * classes + classes
    assert models.count_parameters(model) == vocabulary * d + lstm + decoder + head


def test_the_module_is_that_of_its_entry() -> None:
    assert models.find_family("r-lstm") is r_lstm.FAMILY
