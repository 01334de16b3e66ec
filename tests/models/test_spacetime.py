"""SpaceTime against dense companion matrices, scipy's too, and fixed filters written out."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from model_cases import INFO, config_of, groups_of, layer_of, model_of, shaken, stepped, tokens, warmed_up
from pydantic import ValidationError
from scipy.linalg import companion
from torch import Tensor
from torch.nn import functional

from msbench import models
from msbench.config.baselines import SpaceTimeConfig
from msbench.models.spacetime import (
    CompanionSystem,
    FixedFilters,
    SpaceTimeBlock,
    build_filters,
    compute_companion_kernel,
)


def system_of(d: int, state: int) -> CompanionSystem:
    torch.manual_seed(state)
    return CompanionSystem(d, state).double()


def dense_matrices(a: Tensor) -> Tensor:
    """The companion matrices (d, n, n) with these last columns, normalised."""
    d, n = a.shape
    A = torch.zeros(d, n, n, dtype=a.dtype)
    if n > 1:
        A[:, 1:, :-1] = torch.eye(n - 1, dtype=a.dtype)
    A[:, :, -1] = a / a.abs().sum(1, keepdim=True)
    return A


def kernel_by_powers(system: CompanionSystem, length: int) -> Tensor:
    """c^T A^j b (length, d)."""
    A, rows = dense_matrices(system.a), []
    h: Tensor = system.b
    for _ in range(length):
        rows.append((system.c * h).sum(1))
        h = (A @ h.unsqueeze(2)).squeeze(2)
    return torch.stack(rows)


@pytest.mark.parametrize("length", [1, 2, 7, 64, 333])
@pytest.mark.parametrize("state", [1, 2, 5, 64])
def test_a_kernel_is_that_of_the_powers_of_the_matrix(state: int, length: int) -> None:
    system = system_of(3, state)
    found, expected = system.compute_kernel(length), kernel_by_powers(system, length)
    assert found.shape == (length, 1, 3)
    scale = float(expected.detach().abs().max())
    torch.testing.assert_close(found[:, 0], expected, rtol=0, atol=1e-12 * scale)
    weights = torch.randn(length, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parameters = list(system.parameters())
    gradients = [
        torch.autograd.grad((k * weights).sum(), parameters, materialize_grads=True)
        for k in (found[:, 0], expected)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11 * max(1.0, float(other.abs().max())))


def test_a_kernel_is_that_of_scipys_companion_matrix() -> None:
    """Its first row has the coefficients: it is A transposed, with the states in reverse."""
    system = system_of(2, 6)
    found = system.compute_kernel(40)[:, 0].detach().numpy()
    for channel in range(2):
        a, b, c = (x[channel].detach().numpy() for x in (system.a, system.b, system.c))
        A = companion(np.concatenate([[1.0], -(a / np.abs(a).sum())[::-1]])).T[::-1, ::-1]
        np.testing.assert_allclose(A, dense_matrices(system.a)[channel].detach().numpy(), atol=1e-15)
        powers = [c @ np.linalg.matrix_power(A, j) @ b for j in range(40)]
        np.testing.assert_allclose(found[:, channel], powers, atol=1e-11)


def test_kernels_neither_grow_nor_wrap_around() -> None:
    """Of a column with one entry all eigenvalues are on the unit circle: it never forgets."""
    a = torch.zeros(2, 8, dtype=torch.float64)
    a[0, 0], a[1, 3] = 1, -1
    b, c = torch.zeros_like(a), torch.zeros_like(a)
    b[:, 0] = c[:, 7] = 1
    kernel = compute_companion_kernel(a, b, c, 2000)
    steps = torch.arange(2000)
    cycle = (steps % 8 == 7).double()
    torch.testing.assert_close(kernel[0], cycle, rtol=0, atol=1e-10)
    turns = (steps - 7) // 5
    expected = torch.where((steps >= 7) & ((steps - 7) % 5 == 0), 1 - 2 * (turns % 2), 0).double()
    torch.testing.assert_close(kernel[1], expected, rtol=0, atol=1e-10)
    random = system_of(5, 64)
    assert torch.linalg.eigvals(dense_matrices(random.a)).abs().max() <= 1 + 1e-12


def test_the_size_of_the_column_does_not_matter_and_zero_is_a_shift() -> None:
    system = system_of(2, 5)
    kernel = system.compute_kernel(30)
    with torch.no_grad():
        system.a.mul_(1e-9)
    torch.testing.assert_close(system.compute_kernel(30), kernel, rtol=0, atol=1e-12)
    with torch.no_grad():
        system.a.zero_()
    shift = system.compute_kernel(30)
    torch.testing.assert_close(shift[5:], torch.zeros_like(shift[5:]), rtol=0, atol=1e-12)
    torch.testing.assert_close(shift[4, 0], (system.c[:, 4] * system.b[:, 0]), rtol=0, atol=1e-12)
    shift.square().sum().backward()  # type: ignore[no-untyped-call]
    assert system.a.grad is not None
    assert torch.isfinite(system.a.grad).all()


def test_filters_are_differences_and_residuals_of_means() -> None:
    windows = torch.arange(4, 20)
    filters = build_filters(windows)
    assert filters.shape == (63, 16)
    x = torch.randn(80, generator=torch.Generator().manual_seed(0))
    for channel in range(16):
        padded = functional.pad(x, (63, 0)).double()
        y = torch.stack(
            [(filters[:, channel].double() * padded[t + 1 : t + 64].flip(0)).sum() for t in range(80)]
        )
        kind = channel % 8
        if kind < 4:
            expected = np.diff(np.concatenate([np.zeros(kind), x.double().numpy()]), n=kind)
        else:
            window = int(windows[channel])
            means = [padded[t + 64 - window : t + 64].mean() for t in range(80)]
            expected = (x.double() - torch.stack(means)).numpy()
        np.testing.assert_allclose(y.numpy(), expected, atol=1e-6)


def test_windows_are_drawn_once_and_belong_to_the_model() -> None:
    model, again = (model_of("spacetime", d_model=512, seed=3) for _ in range(2))
    other = model_of("spacetime", d_model=512, seed=4)
    filters = layer_of(model).filters.filters
    assert torch.equal(filters, layer_of(again).filters.filters)
    assert not torch.equal(filters, layer_of(other).filters.filters)
    assert not filters.requires_grad
    assert "blocks.0.layer.filters.filters" in model.state_dict()
    residuals = filters[:, torch.arange(512) % 8 >= 4]
    windows = (residuals[1:] != 0).sum(0) + 1
    assert windows.min() == 4
    assert windows.max() == 63
    assert float(windows.double().mean()) == pytest.approx(33.5, abs=4)
    before = torch.get_rng_state()
    model.eval()(*tokens(9, 5))
    assert torch.equal(before, torch.get_rng_state())


def block_of(*, preprocess: bool, d: int = 16, state: int = 5) -> SpaceTimeBlock:
    torch.manual_seed(0)
    config = SpaceTimeConfig(d_model=d, state=state)
    return shaken(SpaceTimeBlock(config, preprocess=preprocess).double()).eval()


@pytest.mark.parametrize("preprocess", [False, True])
def test_a_block_equals_the_recurrence_with_dense_matrices(preprocess: bool) -> None:
    block = block_of(preprocess=preprocess)
    x = torch.randn(
        2, 70, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    ).requires_grad_()
    z = x
    if block.filters is not None:
        taps = block.filters.filters.double().T.unsqueeze(1).flip(2)
        z = functional.conv1d(functional.pad(x.mT, (62, 0)), taps, groups=16).mT
    system: Any = block.core.system
    A, h, rows = dense_matrices(system.a), torch.zeros(2, 16, 5, dtype=torch.float64), []
    for t in range(70):
        h = torch.einsum("dij,bdj->bdi", A, h) + system.b * z[:, t, :, None]
        rows.append((system.c * h).sum(2) + block.core.D * z[:, t])
    y = torch.stack(rows, 1)
    expected = z + y + block.channels(functional.gelu(y))
    found = block(x, torch.tensor([70, 70]))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(block.mix(x, torch.tensor([70, 70])), expected - z, rtol=1e-10, atol=1e-10)
    parameters = [x, *block.parameters()]
    weights = torch.linspace(-1, 1, 70, dtype=torch.float64).view(70, 1)
    gradients = [torch.autograd.grad((each * weights).sum(), parameters) for each in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("length", [1, 3, 70, 200])
@pytest.mark.parametrize("preprocess", [False, True])
def test_a_block_steps(preprocess: bool, length: int) -> None:
    block = block_of(preprocess=preprocess)
    x = torch.randn(2, length, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        whole = block(x, torch.tensor([length] * 2))
        torch.testing.assert_close(stepped(block, x), whole, rtol=1e-9, atol=1e-9)


def test_padding_is_never_read() -> None:
    model = warmed_up(model_of("spacetime", norm="batch", state=5).double())
    inputs, lengths = tokens(4, 40, 1, 13)
    together = model(inputs, lengths)
    for row, length in enumerate(lengths.tolist()):
        for width in (length, min(length + 3, 40)):
            alone = model(inputs[row : row + 1, :width], lengths[row : row + 1])
            torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-10, atol=1e-10)
    junk = torch.where(inputs == 0, 7, inputs)
    torch.testing.assert_close(model(junk, lengths), together, rtol=1e-10, atol=1e-10)


def test_filters_stand_before_the_first_layer_alone() -> None:
    model = model_of("spacetime", layers=3)
    assert [layer_of(model, i).filters is None for i in range(3)] == [False, True, True]
    plain = model_of("spacetime", layers=3, preprocess=False)
    assert all(layer_of(plain, i).filters is None for i in range(3))
    assert isinstance(layer_of(model).filters, FixedFilters)


def test_dropout_is_inside_of_the_blocks() -> None:
    model = model_of("spacetime", dropout=0.9, layers=1).train()
    outer: Any = model.blocks[0]
    assert outer.dropout.p == 0
    block = layer_of(model)
    x, lengths = torch.randn(2, 9, 8), torch.tensor([9, 9])
    assert not torch.equal(block(x, lengths), block(x, lengths))
    with torch.no_grad():
        block.channels.weight.zero_()
    assert torch.equal(block(x, lengths), block(x, lengths))


def test_start_values() -> None:
    block = SpaceTimeBlock(SpaceTimeConfig(d_model=128), preprocess=True)
    for path in ("a", "b", "c"):
        value = getattr(block.core.system, path).detach()
        assert value.shape == (128, 64)
        assert float(value.std()) == pytest.approx(1, rel=5 / math.sqrt(2 * value.numel()))
    assert float(block.core.D.detach().std()) == pytest.approx(1, rel=0.3)


@pytest.mark.parametrize(("d", "n"), [(128, 64), (8, 5)])
def test_parameter_counts(d: int, n: int) -> None:
    model = model_of("spacetime", d_model=d, state=n)
    block = 3 * n * d + d + d * d + d
    assert models.count_parameters(model.blocks) == 2 * block
    assert models.count_states_per_channel("spacetime", config_of("spacetime", state=n)) == n


def test_matrices_decay_and_the_rest_does_not() -> None:
    for path, group in groups_of(model_of("spacetime")).items():
        plain = path.endswith(("bias", "system.a", "core.D")) or "norm" in path
        assert group == ("plain" if plain else "weights"), path


def test_the_norm_before_the_pooling_keeps_the_first_loss_small() -> None:
    batch = tokens(*[INFO.longest] * 8)
    with_norm, without = (
        model_of("spacetime", d_model=64, state=64, embedding_std=1.0, final_norm=norm)(*batch)
        .detach()
        .abs()
        .max()
        for norm in (True, False)
    )
    assert float(with_norm) < 5
    assert float(without) > 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prenorm": True}, "prenorm: true is not supported"),
        ({"drop_path": 0.1}, "drop_path is not supported"),
        ({"state": 0}, "state"),
        ({"bidirectional": True}, "bidirectional"),
    ],
)
def test_bad_configurations_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config_of("spacetime", **options)
