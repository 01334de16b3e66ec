"""Every kind of task through the classifier: padding, heads, encoders; token sequences unchanged."""

from typing import Any

import pytest
import torch
from kind_cases import INFOS, alone, batch_of, examples, model_for
from model_cases import INFO, config_of, model_of, tokens
from torch.nn import functional

from msbench import models
from msbench.config.selective import MambaConfig
from msbench.models.classifier import PairHead
from msbench.models.layers import Padding, normalise, pool
from msbench.models.mamba import MambaBlock

every_kind = pytest.mark.parametrize("kind", INFOS)
both = pytest.mark.parametrize("name", ["mamba", "msssm-s6"])

NORMS: list[dict[str, Any]] = [
    {},
    {"norm": "batch", "bidirectional": True},
    {"norm": "batch", "prenorm": False, "pooling": "last", "positions": "learned"},
]


@every_kind
@both
@pytest.mark.parametrize("options", NORMS)
def test_an_example_is_the_same_alone_and_next_to_one_ten_times_as_long(
    kind: str, name: str, options: dict[str, Any]
) -> None:
    model = model_for(kind, name, state=5, **options)
    with torch.no_grad():
        model.train()(*examples(kind, 9, 17, 5, seed=1))
    model.eval()
    inputs, lengths = examples(kind, 8, 80, 1, 13)
    together = model(inputs, lengths)
    assert together.shape == (4, INFOS[kind].classes)
    for row in range(4):
        single = model(*alone(inputs, lengths, row))
        torch.testing.assert_close(together[row : row + 1], single, rtol=1e-5, atol=1e-5)


@every_kind
def test_what_stands_behind_the_end_is_never_read(kind: str) -> None:
    model = model_for(kind, "msssm-s6", state=5, norm="batch")
    inputs, lengths = examples(kind, 8, 80, 1, 13)
    mask = Padding.from_lengths(lengths.flatten(), inputs.shape[lengths.ndim]).mask.view(*lengths.shape, -1)
    mask = mask if kind in ("tokens", "pairs") else mask.unsqueeze(-1)
    junk = torch.where(mask > 0, inputs, torch.full_like(inputs, 7))
    assert not torch.equal(junk, inputs)
    torch.testing.assert_close(model(junk, lengths), model(inputs, lengths), rtol=1e-5, atol=1e-5)


@every_kind
@both
def test_batch_statistics_are_those_of_all_real_positions(kind: str, name: str) -> None:
    model = model_for(kind, name, state=5, norm="batch", layers=1)
    inputs, lengths = examples(kind, 8, 80, 1, 13)
    sequences = inputs.flatten(0, 1) if kind == "pairs" else inputs
    real = Padding.from_lengths(lengths.flatten(), sequences.shape[1]).mask[..., 0] > 0
    positions = model.encoder(sequences)[real].detach()
    model.train()(inputs, lengths)
    found = dict(model.named_buffers())["blocks.0.norm.running_mean"]
    torch.testing.assert_close(found, 0.1 * positions.mean(0), rtol=1e-4, atol=1e-7)


@every_kind
def test_every_kind_gets_gradients_everywhere_also_under_autocast(kind: str) -> None:
    for autocast in (False, True):
        model = model_for(kind, "msssm-s6", state=5)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            logits = model(*examples(kind, 7, 31, 1, 12))
        assert logits.dtype == torch.float32
        logits.square().sum().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert torch.isfinite(parameter.grad).all(), name
            assert bool(parameter.grad.any()), name


@pytest.mark.parametrize("kind", ["signal", "pairs"])  # patches are signals, tokens are elsewhere
def test_every_kind_compiles_into_one_graph(kind: str) -> None:
    torch.compiler.reset()
    model = model_for(kind, "mamba", state=3, layers=1)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    batch = examples(kind, 9, 5)
    torch.testing.assert_close(compiled(*batch), model(*batch))


def test_numbers_keep_their_precision_under_autocast() -> None:
    encoder = model_for("signal", "mamba", state=3).encoder
    inputs, _ = examples("signal", 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(encoder(inputs), encoder(inputs.double()))


def test_token_ids_as_numbers_are_for_tokens() -> None:
    assert model_for("signal", "mamba", state=3, encoder="scalar").encoder.scalar is None
    assert model_for("pairs", "mamba", state=3, encoder="scalar")(*examples("pairs", 5, 3)).shape == (2, 2)


def test_a_pair_is_compared_by_the_written_features() -> None:
    model = model_for("pairs", "mamba", state=3).eval()
    inputs, lengths = examples("pairs", 8, 30, 4)
    head = model.head
    assert isinstance(head, PairHead)
    assert head.inner.weight.shape == (8, 32)
    pooled = []
    for side in range(2):
        x, length = inputs[:, side], lengths[:, side]
        padding = Padding.from_lengths(length, x.shape[1])
        x = model.encoder(x)
        for block in model.blocks:
            x = block(x, padding)
        assert model.final_norm is not None
        pooled.append(pool(normalise(model.final_norm, x, padding.mask), padding, "mean"))
    p, q = pooled
    features = torch.cat([p, q, p - q, p * q], 1)
    expected = head.outer(functional.gelu(head.inner(features)))
    torch.testing.assert_close(model(inputs, lengths), expected, rtol=1e-5, atol=1e-6)
    swapped = model(inputs.flip(1), lengths.flip(1))
    assert (swapped - expected).abs().max() > 1e-4


@pytest.mark.parametrize("prenorm", [True, False])
def test_token_sequences_go_the_same_way_bit_for_bit(prenorm: bool) -> None:
    """Embedding, blocks, norm, pooling, one linear map, drawn in this order after the layers."""
    model = model_of("mamba", state=3, prenorm=prenorm)
    inputs, lengths = tokens(8, 30, 1)
    padding = Padding.from_lengths(lengths, 30)
    x = functional.embedding(inputs, model.state_dict()["encoder.embedding.weight"])
    for block in model.blocks:
        x = block(x, padding)
    if prenorm:
        assert model.final_norm is not None
        x = normalise(model.final_norm, x, padding.mask)
    weight, bias = (model.state_dict()[f"head.{name}"] for name in ("weight", "bias"))
    expected = functional.linear(pool(x, padding, "mean"), weight, bias)
    assert torch.equal(model(inputs, lengths), expected)
    names = [name for name in model.state_dict() if not name.startswith("blocks.")]
    final = ["final_norm.weight", "final_norm.bias"] if prenorm else []
    assert names == ["encoder.embedding.weight", *final, "head.weight", "head.bias"]


def test_parameters_are_drawn_in_the_same_order() -> None:
    """Layers, embedding, positions (needed or not), head: numbers from one seed are what they were."""
    config = config_of("mamba", state=3, layers=2)
    assert isinstance(config, MambaConfig)
    model = models.build("mamba", config, INFO, 5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        models.find_family("mamba").build(config, INFO)
        after = torch.get_rng_state()
        torch.manual_seed(5)
        layers = [MambaBlock(config) for _ in range(2)]
        embedding = torch.nn.Embedding(INFO.vocabulary, 8)
        torch.nn.init.normal_(embedding.weight, std=0.02)
        torch.empty(INFO.longest, 8).normal_(std=0.02)
        head = torch.nn.Linear(8, INFO.classes)
        assert torch.equal(torch.get_rng_state(), after)
    assert torch.equal(layers[1].in_proj.weight, model.state_dict()["blocks.1.layer.in_proj.weight"])
    assert torch.equal(embedding.weight, model.state_dict()["encoder.embedding.weight"])
    assert torch.equal(head.weight, model.head.weight)


@every_kind
def test_batches_count_their_positions(kind: str) -> None:
    batch = batch_of(kind, 3, 7)
    assert batch.positions == (28 if kind == "pairs" else 14)
    assert batch.inputs.shape[: batch.lengths.ndim] == batch.lengths.shape
