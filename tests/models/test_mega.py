"""Mega against its port in transformers (numbers from there), and against loops over positions."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from mega_golden import CASES, FILE, INNER, KEY_DIM, LONGEST, STATE, VALUES, D, make_inputs, make_parameters
from model_cases import (
    INFO,
    config_of,
    find_largest_saved,
    groups_of,
    layer_of,
    model_of,
    shaken,
    tokens,
    warmed_up,
)
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional

from msbench import models
from msbench.config.attention import MegaConfig
from msbench.errors import ConfigError
from msbench.models import gated_attention
from msbench.models.mega import MegaBlock, MovingAverage

GOLDEN: dict[str, dict[str, list[float]]] = json.loads(FILE.read_text(encoding="utf-8"))


def block_of(longest: int = LONGEST, **options: Any) -> MegaBlock:
    sizes = {"state": STATE, "key_dim": KEY_DIM, "expand": VALUES / D, "mlp_expand": INNER / D}
    return MegaBlock(MegaConfig(d_model=D, **{**sizes, **options}), longest).double()


def average_by_steps(x: Tensor, p: Mapping[str, Tensor]) -> Tensor:
    """The moving average of x (n, d) as the paper's recurrence, once in each direction."""
    total = torch.zeros_like(x)
    for direction, order in enumerate((range(len(x)), reversed(range(len(x))))):
        delta, alpha, beta, gamma = (
            p[f"average.{name}"][direction] for name in ("delta", "alpha", "beta", "gamma")
        )
        share, damping = delta.sigmoid(), alpha.sigmoid()
        h, outputs = torch.zeros_like(beta), {}
        for t in order:
            h = share * beta * x[t].unsqueeze(1) + (1 - share * damping) * h
            outputs[t] = (gamma * h).sum(1) / math.sqrt(h.shape[1])
        total = total + torch.stack([outputs[t] for t in range(len(x))])
    return functional.silu(total + p["average.omega"] * x)


def attend_by_pairs(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, options: dict[str, Any]) -> Tensor:
    """Attention of one sequence (n, .), pair by pair."""
    n, middle = len(q), len(bias) // 2
    chunk = options.get("chunk") or n
    rows = []
    for i in range(n):
        seen = [j for j in range(n) if j // chunk == i // chunk]
        products = torch.stack([(q[i] * k[j]).sum() for j in seen])
        lags = torch.stack([bias[middle + j - i] for j in seen])
        kind = options.get("attention", "softmax")
        if kind == "softmax":
            weights = torch.softmax(products / math.sqrt(q.shape[1]) + lags, 0)
        else:
            scores = products / len(seen) + lags
            bell = torch.special.ndtr((scores - math.sqrt(0.5)) * math.sqrt(4 * math.pi))
            weights = bell if kind == "laplace" else scores.clamp(min=0) ** 2
        rows.append(weights @ torch.stack([v[j] for j in seen]))
    return torch.stack(rows)


def run_by_steps(x: Tensor, p: Mapping[str, Tensor], options: dict[str, Any]) -> Tensor:
    """A block on one sequence (n, d), with the parameters `p` and layer norms."""
    prenorm, silu = options.get("prenorm", True), functional.silu

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    def norm(name: str, x: Tensor) -> Tensor:
        return functional.layer_norm(x, x.shape[1:], p[f"{name}.weight"], p[f"{name}.bias"])

    inner = norm("norm", x) if prenorm else x
    gates = linear("mix_proj", average_by_steps(inner, p))
    update, z, reset, own = torch.split(gates, [D, KEY_DIM, VALUES, D], 1)
    scale, offset = p["queries_keys.scale"], p["queries_keys.offset"]
    q, k = (silu(z) * scale[row] + offset[row] for row in (0, 1))
    y = attend_by_pairs(q, k, silu(linear("v_proj", inner)), p["bias.bias"], options)
    candidate = silu(own + linear("h_proj", silu(reset) * y))
    x = update.sigmoid() * candidate + (1 - update.sigmoid()) * x
    x = x if prenorm else norm("norm", x)
    y = x + linear("down", silu(linear("up", norm("mlp_norm", x) if prenorm else x)))
    return y if prenorm else norm("mlp_norm", y)


def run_with_gradients(
    block: MegaBlock, x: Tensor, lengths: Tensor, weights: Tensor
) -> tuple[Tensor, list[Tensor]]:
    x = x.clone().requires_grad_()
    y = block(x, lengths)
    return y, list(torch.autograd.grad((y * weights).sum(), [x, *block.parameters()]))


@pytest.mark.parametrize("name", CASES)
def test_a_block_has_the_numbers_of_the_port_in_transformers(name: str) -> None:
    block = block_of(**CASES[name])
    block.load_state_dict(make_parameters(CASES[name].get("chunk")))
    x, lengths, weights = make_inputs()
    y, (gradient, *_) = run_with_gradients(block, x, lengths, weights)
    real = torch.arange(LONGEST) < lengths.unsqueeze(1)
    for kind, found in (("outputs", y), ("gradient", gradient)):
        expected = torch.tensor(GOLDEN[name][kind], dtype=torch.float64)
        assert float((found[real].flatten() - expected).abs().max().detach()) < 3e-6 * float(
            expected.abs().max()
        )


@pytest.mark.parametrize("name", CASES)
def test_a_block_equals_loops_over_positions(name: str) -> None:
    options = CASES[name]
    block = block_of(**options)
    block.load_state_dict(make_parameters(options.get("chunk")))
    x, lengths, weights = make_inputs()
    y, gradients = run_with_gradients(block, x, lengths, weights)
    leaf = x.clone().requires_grad_()
    parameters = dict(block.named_parameters())
    total = torch.zeros((), dtype=torch.float64)
    for row, n in enumerate(lengths.tolist()):
        expected = run_by_steps(leaf[row, :n], parameters, options)
        torch.testing.assert_close(y[row, :n], expected, rtol=1e-12, atol=1e-12)
        total = total + (expected * weights[row, :n]).sum()
    others = torch.autograd.grad(total, [leaf, *parameters.values()])
    for path, one, other in zip(["inputs", *parameters], gradients, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11, msg=path)


@pytest.mark.parametrize("chunk", [None, 5])
@pytest.mark.parametrize("attention", ["softmax", "laplace"])
def test_queries_in_parts_change_nothing(
    chunk: int | None, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = shaken(block_of(attention=attention, chunk=chunk))
    x, lengths, weights = make_inputs()
    whole = run_with_gradients(block, x, lengths, weights)
    monkeypatch.setitem(gated_attention.ELEMENTS, "cpu", 60)  # a row or two
    parts = run_with_gradients(block, x, lengths, weights)
    for one, other in zip([whole[0], *whole[1]], [parts[0], *parts[1]], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "options", [{}, {"attention": "laplace", "norm": "batch"}, {"chunk": 8, "prenorm": False}]
)
def test_padding_is_never_read(options: dict[str, Any]) -> None:
    info = replace(INFO, longest=90)
    model = warmed_up(models.build("mega", config_of("mega", **options), info, 0).double())
    inputs, lengths = tokens(8, 80, 1, 16)
    together = model(inputs, lengths)
    for row, length in enumerate(lengths.tolist()):
        for width in (length, length + 3):
            alone = model(inputs[row : row + 1, :width], lengths[row : row + 1])
            torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-12, atol=1e-12)
    junk = torch.where(inputs == 0, 7, inputs)
    torch.testing.assert_close(model(junk, lengths), together, rtol=1e-12, atol=1e-12)
    assert torch.equal(model(inputs, lengths), together)


def test_batch_statistics_are_those_of_real_positions() -> None:
    """More padding behind short sequences moves neither logits nor running statistics."""
    results = []
    for width in (None, 40):
        model = model_of("mega", norm="batch", attention="laplace").double()
        logits = model(*tokens(7, 31, 12, width=width))
        results.append([logits.detach(), *(value.clone() for value in model.state_dict().values())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def find_seen(block: MegaBlock, position: int) -> list[bool]:
    """The positions of a sequence of 12 that an output depends on."""
    x = torch.randn(1, 12, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(block(x, torch.tensor([12]))[0, position].sum(), x)
    return (gradient[0].abs().sum(1) > 0).tolist()


def test_both_sides_are_seen_and_with_chunks_the_average_alone_sees_beyond() -> None:
    for chunk, reach in ((None, range(12)), (4, range(4, 8))):
        block = shaken(block_of(chunk=chunk))
        assert find_seen(block, 5) == [True] * 12
        with torch.no_grad():
            block.average.gamma.zero_()  # of the average, the skip alone
        assert find_seen(block, 5) == [t in reach for t in range(12)]


def test_lags_beyond_the_longest_have_no_bias() -> None:
    bias = gated_attention.LagBias(3)
    assert torch.equal(bias(5), torch.cat([torch.zeros(2), bias.bias, torch.zeros(2)]))
    assert torch.equal(bias(2), bias.bias[1:4])
    assert torch.isfinite(model_of("mega").eval()(*tokens(INFO.longest + 25))).all()


def test_averages_of_any_decay_are_finite() -> None:
    average = MovingAverage(2, 3)
    for value, largest in ((60.0, 0.0), (-60.0, 1.0)):
        with torch.no_grad():
            average.alpha.fill_(value)
            average.delta.fill_(value)
        x = torch.randn(2, 50, 2, requires_grad=True)
        y = average(x)
        y.sum().backward()
        assert torch.isfinite(y).all()
        assert all(
            torch.isfinite(part.grad).all() for part in (x, *average.parameters()) if part.grad is not None
        )
        decay = average.compute_modes()[0].detach().exp()
        assert float(decay.max()) == pytest.approx(largest, abs=1e-6)


def test_evaluation_follows_the_parameters() -> None:
    """The authors' code keeps a kernel from the last evaluation."""
    model = model_of("mega").eval()
    batch = tokens(9, 5)
    before = model(*batch)
    with torch.no_grad():
        layer_of(model).average.delta.add_(1)
    assert (model(*batch) - before).abs().max() > 1e-5


def test_dropout_is_inside_of_the_gate() -> None:
    """An input that the gate keeps whole goes through unchanged, whatever is dropped."""
    model = model_of("mega", dropout=0.9, layers=1).train()
    outer: Any = model.blocks[0]
    block = layer_of(model)
    assert outer.dropout.p == 0
    assert block.dropout.p == 0.9
    x, lengths = torch.randn(2, 9, 8), torch.tensor([9, 9])
    dropped: list[Tensor] = []
    block.dropout.register_forward_hook(lambda *arguments: dropped.append(arguments[2]))
    block(x, lengths)
    assert [bool((part == 0).all(1).any()) for part in dropped] == [True] * 3
    with torch.no_grad():
        block.mix_proj.bias[:8] = -1e4
        block.down.weight.zero_()
    torch.testing.assert_close(block(x, lengths), x)


def test_start_values() -> None:
    block = MegaBlock(MegaConfig(d_model=128, key_dim=64), 1024)
    for path, deviation in (
        ("average.delta", 0.2),
        ("average.alpha", 0.2),
        ("average.gamma", 1.0),
        ("average.omega", 1.0),
        ("v_proj.weight", 0.02),
        ("mix_proj.weight", 0.02),
        ("h_proj.weight", 0.02),
        ("queries_keys.scale", 0.02),
        ("bias.bias", 0.02),
        ("up.weight", 0.02),
        ("down.weight", 0.02),
    ):
        value = block.get_parameter(path).detach()
        margin = 5 / math.sqrt(2 * value.numel())
        assert float(value.std()) == pytest.approx(deviation, rel=margin), path
        assert abs(float(value.mean())) < 5 * deviation / math.sqrt(value.numel()), path
    beta = block.average.beta.detach()
    torch.testing.assert_close(beta.mean((0, 1)), torch.tensor([1.0, -1.0] * 8), rtol=0, atol=0.01)
    assert float((beta - beta.sign()).std()) == pytest.approx(0.02, rel=0.1)
    for path, parameter in block.named_parameters():
        if path.endswith(("_proj.bias", "up.bias", "down.bias", "offset")):
            assert not parameter.any(), path


@pytest.mark.parametrize(("d", "s", "n", "chunk"), [(128, 64, 16, None), (8, 5, 3, 16), (8, 5, 3, 100)])
def test_parameter_counts(d: int, s: int, n: int, chunk: int | None) -> None:
    e, f, longest = 2 * d, 3 * d, 40
    block = MegaBlock(MegaConfig(d_model=d, key_dim=s, state=n, chunk=chunk, mlp_expand=3), longest)
    maps = d * (s + e + 2 * d) + d * e + e * d + (s + e + 2 * d) + e + d
    average = 4 * 2 * d * n + d
    network = 2 * d * f + f + d
    expected = maps + average + 4 * s + 2 * min(chunk or longest, longest) - 1 + network + 4 * d
    assert models.count_parameters(block) == expected


def test_long_sequences_keep_no_square_matrix() -> None:
    length = 2048
    config = config_of("mega", layers=1, key_dim=8, state=2)
    model = models.build("mega", config, replace(INFO, longest=length), 0)
    largest = find_largest_saved(lambda: model(*tokens(length, 700)))
    assert largest <= 2 * length * 40 * 4  # of both sequences, the map of four parts


@pytest.mark.parametrize("attention", ["softmax", "laplace", "relu2"])
def test_scores_and_weights_keep_their_precision_under_autocast(
    attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.dtype] = []
    compute = gated_attention.compute_weights

    def see(scores: Tensor, *rest: Any) -> Tensor:
        weights = compute(scores, *rest)
        seen.extend((scores.dtype, weights.dtype))
        return weights

    monkeypatch.setattr(gated_attention, "compute_weights", see)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        model_of("mega", attention=attention, layers=1)(*tokens(9, 17))
    assert seen == [torch.float32] * 2


def test_matrices_decay_and_the_rest_does_not() -> None:
    plain = ("bias", "offset", "alpha", "delta", "beta", "omega")
    for path, group in groups_of(model_of("mega")).items():
        assert group == ("plain" if path.endswith(plain) or "norm" in path else "weights"), path


def test_it_has_states_but_reads_whole_sequences() -> None:
    config = config_of("mega", state=5)
    assert models.count_states_per_channel("mega", config) == 10
    assert not models.find_family("mega").is_causal(config)
    with pytest.raises(ConfigError, match="no recurrent inference"):
        model_of("mega").eval().start(2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"drop_path": 0.1}, "drop_path is not supported: mega has gates"),
        ({"expand": 0.01}, r"expand 0\.01 times d_model 8 is a width of 0"),
        ({"attention": "relu"}, "attention"),
        ({"chunk": 0}, "chunk"),
        ({"bidirectional": True}, "bidirectional"),
    ],
)
def test_bad_configurations_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of("mega", **options)
