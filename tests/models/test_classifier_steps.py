"""Whole classifiers piece by piece: the logits of the parallel pass, however a sequence is cut."""

from typing import Any

import numpy as np
import pytest
import torch
from kind_cases import INFOS, examples, model_for
from model_cases import CASES, case_id, layer_of, model_of, tokens, warmed_up
from torch import Tensor

from msbench import models
from msbench.errors import ConfigError, DataError
from msbench.models.classifier import Classifier
from msbench.models.layers import Recurrent

LENGTH = 33
OPTIONS: list[dict[str, Any]] = [
    {},
    {"pooling": "last", "norm": "batch"},
    {"norm": "batch", "prenorm": False},
    {"norm": "rms", "prenorm": False, "pooling": "last", "padding": "paper"},
    {"positions": "learned", "encoder": "scalar", "kernel": 1},
    {"pooling": "mean-with-padding", "positions": "learned", "skip": False},
]


def cuts(seed: int) -> list[int]:
    """Lengths of segments that add up to LENGTH: one by one, all at once, or drawn."""
    if seed < 2:
        return [1] * LENGTH if seed == 0 else [LENGTH]
    generator = np.random.default_rng(seed)
    inner = generator.choice(np.arange(1, LENGTH), size=generator.integers(1, 9), replace=False)
    return [int(part) for part in np.diff([0, *sorted(inner), LENGTH])]


def read(model: Classifier, inputs: Tensor, segments: list[int], axis: int = 1) -> list[Tensor]:
    """Logits behind every segment."""
    reading, outputs = model.start(len(inputs)), []
    for part in torch.split(inputs, segments, axis):
        logits, reading = model.step(reading, part)
        outputs.append(logits)
    assert reading.positions == inputs.shape[axis]
    return outputs


def obstacle(model: Classifier) -> str:
    """Why a model cannot be read step by step; empty where it can."""
    try:
        model.start(2)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("options", OPTIONS)
def test_any_split_equals_the_parallel_pass(options: dict[str, Any], seed: int) -> None:
    model = warmed_up(model_of("mamba", state=3, **options)).double()
    inputs, _ = tokens(LENGTH, LENGTH, LENGTH, seed=seed)
    segments = cuts(seed)
    assert sum(segments) == LENGTH
    with torch.no_grad():
        for end, logits in zip(np.cumsum(segments), read(model, inputs, segments), strict=True):
            expected = model(inputs[:, :end], torch.tensor([int(end)] * 3))
            torch.testing.assert_close(logits, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", INFOS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_kind_of_task_can_be_read(kind: str, seed: int) -> None:
    model = model_for(kind, "mamba", state=3, norm="batch").eval().double()
    inputs, lengths = examples(kind, LENGTH, LENGTH)
    axis = lengths.ndim
    with torch.no_grad():
        logits = read(model, inputs, cuts(seed), axis)[-1]
        torch.testing.assert_close(logits, model(inputs, lengths), rtol=1e-10, atol=1e-10)


WHOLE = dict.fromkeys(("inceptiontime", "ckconv", "transformer"), "has no recurrent inference")
"""Models that read whole sequences only, and their messages."""


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_every_model_steps_or_reports_why_not(case: tuple[str, dict[str, Any]]) -> None:
    model = warmed_up(model_of(case[0], **case[1])).double()
    inputs, lengths = tokens(20, 20)
    causal = models.find_family(case[0]).is_causal(model.config)
    reason = WHOLE.get(case[0], "" if causal else "has no recurrent inference")
    if case[1].get("liquid_kernel") == "allcombs":
        reason = "liquid_kernel: polyb"
    if case[1].get("bidirectional"):
        reason = "bidirectional: false"
    message = obstacle(model)
    assert bool(message) == bool(reason), message
    assert reason in message
    if message:
        return
    outputs = read(model, inputs, [1, 12, 7])
    torch.testing.assert_close(outputs[-1], model(inputs, lengths), rtol=1e-10, atol=1e-10)


def test_reading_keeps_nothing_and_repeats_bit_for_bit() -> None:
    model = model_of("mamba", state=3).eval()
    inputs, _ = tokens(9, 9)
    with torch.no_grad():
        reading = model.step(model.start(2), inputs[:, :4])[1]
        first, second = (model.step(reading, inputs[:, 4:]) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert reading.positions == 4


def test_single_precision_over_a_thousand_positions() -> None:
    model = model_of("mamba", state=16, norm="batch").eval()
    inputs, lengths = tokens(1000)
    with torch.no_grad():
        logits = read(model, inputs, [100] * 9 + [99, 1])[-1]
        torch.testing.assert_close(logits, model(inputs, lengths), rtol=1e-4, atol=1e-5)


def test_bidirectional_models_cannot() -> None:
    with pytest.raises(ConfigError, match="bidirectional: false"):
        model_of("mamba", state=3, bidirectional=True).eval().start(1)


def test_a_layer_without_steps_is_named() -> None:
    class Whole(torch.nn.Module):
        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            return x * lengths.view(-1, 1, 1)

    model = model_of("mamba", state=3).eval()
    assert isinstance(layer_of(model), Recurrent)
    block: Any = model.blocks[1]
    block.layer = Whole()
    with pytest.raises(ConfigError, match="Whole has no recurrent inference"):
        model.start(1)


def test_training_mode_cannot() -> None:
    model = model_of("mamba", state=3, dropout=0.1).eval()
    reading = model.start(1)
    model.train()
    with pytest.raises(RuntimeError, match=r"call eval\(\)"):
        model.start(1)
    with pytest.raises(RuntimeError, match=r"call eval\(\)"):
        model.step(reading, tokens(3)[0])


def test_learned_positions_end_for_segments_too() -> None:
    model = model_of("mamba", state=3, positions="learned").eval()
    _, reading = model.step(model.start(1), tokens(38)[0])
    _, reading = model.step(reading, tokens(2)[0])
    with pytest.raises(DataError, match=r"41 tokens.*40.*longest"):
        model.step(reading, tokens(1)[0])


@pytest.mark.parametrize("size", [(3, 4), (2, 0)])
def test_a_segment_of_another_batch_or_of_nothing_is_refused(size: tuple[int, int]) -> None:
    model = model_of("mamba", state=3).eval()
    with pytest.raises(
        ValueError, match=f"a segment has {size[0]} sequences and {size[1]} positions; .* 2 seq"
    ):
        model.step(model.start(2), torch.ones(size, dtype=torch.int64))
