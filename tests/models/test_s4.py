"""S4 and Liquid-S4 against dense matrices, the generating function of the paper, and plain loops."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from linear_cases import LENGTHS, double_block, full, response, signal
from model_cases import config_of, layer_of, model_of, shaken, stepped, tokens
from pydantic import ValidationError
from scipy.signal import cont2discrete

from msbench import models
from msbench.errors import ConfigError
from msbench.models.liquid_s4 import multiply_combinations, multiply_consecutive
from msbench.models.lti import compute_legs


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("copies", [None, 2])
def test_the_kernel_is_that_of_dense_bilinear_matrices(length: int, copies: int | None) -> None:
    system = double_block("s4", copies=copies).core.system
    kernel, impulse = system.compute_kernel(length).detach().numpy(), np.eye(length)[0]
    for channel in range(6):
        expected = response(system, channel, "bilinear", impulse)
        np.testing.assert_allclose(kernel[:, 0, channel], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("length", [1, 5, 31, 257])
def test_the_kernel_is_that_of_the_generating_function(length: int) -> None:
    """The paper's way: truncated generating function at the roots of unity, Woodbury, inverse transform."""
    system = double_block("s4").core.system
    kernel = system.compute_kernel(length).detach().numpy()
    for channel in range(6):
        dt, A, B, C, poles, P = full(system, channel)
        A_bar = np.linalg.solve(np.eye(len(A)) - dt / 2 * A, np.eye(len(A)) + dt / 2 * A)
        truncated = C @ (np.eye(len(A)) - np.linalg.matrix_power(A_bar, length))
        z = np.exp(-2j * np.pi * np.arange(length) / length)
        g = 2 / dt * (1 - z) / (1 + z)
        cauchy = 1 / (g[:, None] - poles)
        CB, CP = cauchy @ (truncated * B), cauchy @ (truncated * P)
        PB, PP = cauchy @ (P.conj() * B), cauchy @ (P.conj() * P)
        spectrum = 2 / (1 + z) * (CB - CP * PB / (1 + PP))
        expected = np.fft.ifft(spectrum).real
        np.testing.assert_allclose(kernel[:, 0, channel], expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("b_clip", [None, 2.0, 0.5])
def test_it_starts_as_legs(b_clip: float | None) -> None:
    system = layer_of(model_of("s4", d_model=16, state=8, b_clip=b_clip)).core.system
    start = compute_legs(8)
    b = start.b if b_clip is None else start.b.real.clamp(max=b_clip)
    for key, expected in (("P", start.p), ("B", b)):
        value = torch.view_as_complex(getattr(system, key).detach())
        torch.testing.assert_close(value, expected.to(torch.complex64).expand(16, -1))
    torch.testing.assert_close(-system.A_log.detach().exp(), torch.full((16, 4), -0.5))
    torch.testing.assert_close(system.A_imag.detach(), start.poles.imag.float().expand(16, -1))
    wide = layer_of(model_of("s4", d_model=64, state=64)).core
    assert float(wide.system.C.detach().var()) == pytest.approx(0.5, rel=0.1)
    assert float(wide.D.detach().std()) == pytest.approx(1, rel=0.3)


@pytest.mark.parametrize(
    ("name", "state", "clipped", "whole"),
    [("s4", 64, 0.576, 0.702), ("s4", 128, 0.82, 1.0), ("s4d-legs", 64, 1.11, 1.96)],
)
def test_kernels_start_with_the_norms_of_the_source(
    name: str, state: int, clipped: float, whole: float
) -> None:
    """Mean norms of first kernels, as S4's own code gives them with its bound of B and without it."""
    for b_clip, expected in ((2.0, clipped), (None, whole)):
        core = layer_of(model_of(name, d_model=512, state=state, layers=1, copies=1, b_clip=b_clip)).core
        kernel = core.system.compute_kernel(1024)[:, 0].detach()
        assert float(kernel.norm(dim=0).mean()) == pytest.approx(expected, rel=0.04)


def test_b_is_clipped_where_the_source_clips_it() -> None:
    defaults = {name: config_of(name).model_dump()["b_clip"] for name in ("s4", "s4d-legs", "liquid-s4")}
    assert defaults == {"s4": 2.0, "s4d-legs": 2.0, "liquid-s4": None}
    with pytest.raises(
        ValidationError, match="b_clip needs spectrum: legs; with spectrum: lin B starts as 1"
    ):
        config_of("s4d-lin", b_clip=None)
    with pytest.raises(ValidationError, match="b_clip needs ssm: s4-dplr; with ssm: s4d"):
        config_of("msssm-s4d", b_clip=1.0)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("copies", [1, 4, None])
def test_s4_has_the_parameters_of_its_formula(bidirectional: bool, copies: int | None) -> None:
    d, n = 8, 5
    model = model_of("s4", state=2 * n, copies=copies, bidirectional=bidirectional, layers=1)
    s, c = 1 + bidirectional, copies or d
    shared, own = c * (2 * n + 4 * n), d + 2 * s * d * n + d
    assert models.count_parameters(layer_of(model)) == shared + own + 2 * d * (d + 1)


@pytest.mark.parametrize("power", [0.0, 1.0, 3.0])
def test_a_contraction_stays_one(power: float) -> None:
    """Random learned values, as large as they may get, leave the dense matrix no singular value above 1."""
    A_bar = shaken(double_block("s4").core.system, power).discretise().A_bar.detach()
    assert float(torch.linalg.matrix_norm(A_bar, 2).max()) < 1


def liquid_by_hand(core: Any, u: Any, kernel: str, powers: str, degree: int, times: Any) -> Any:
    """One channel after another: S4's dense system, with the products as further inputs."""
    y = np.zeros_like(u)
    for channel in range(u.shape[1]):
        dt, A, B, C, poles, _ = full(core.system, channel)
        A_bar, B_bar, *_ = cont2discrete((A, B[:, None], C[None], 0), dt, method="bilinear")
        diagonal = dt * B / (1 - dt / 2 * poles)
        inputs = [diagonal]
        for _ in range(degree - 1):
            inputs.append(inputs[-1] * (inputs[-1].sum() if powers == "row-sum" else diagonal))
        h = np.zeros(len(A), dtype=complex)
        for t in range(len(u)):
            h = A_bar @ h + B_bar[:, 0] * u[t, channel]
            direct = np.zeros(len(A), dtype=complex)
            for p in range(2, degree + 1):
                if t - p + 1 >= 0:
                    window = u[t - p + 1 : t + 1, channel]
                    direct = direct + inputs[p - 1] * np.prod(window ** times(p))
            y[t, channel] = (C @ (h + direct)).real + core.D[channel].item() * u[t, channel]
            if kernel == "kb":
                h = h + direct
    return y


@pytest.mark.parametrize("kernel", ["polyb", "kb"])
@pytest.mark.parametrize("powers", ["elementwise", "row-sum"])
@pytest.mark.parametrize(("degree", "length"), [(2, 1), (2, 37), (3, 2), (4, 37)])
def test_liquid_s4_equals_its_recurrence(kernel: str, powers: str, degree: int, length: int) -> None:
    core = double_block("liquid-s4", liquid_kernel=kernel, powers=powers, degree=degree).core
    u = signal(length)
    expected = liquid_by_hand(core, u[0].numpy(), kernel, powers, degree, lambda _p: 1)
    np.testing.assert_allclose(core(u)[0].detach().numpy(), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kernel", ["polyb", "kb"])
@pytest.mark.parametrize(("degree", "length"), [(3, 1), (3, 37), (4, 37)])
def test_shifted_products_have_binomial_powers(kernel: str, degree: int, length: int) -> None:
    """At degree 3 u_t u_{t-1}^2 u_{t-2}, as in the source's code."""
    core = double_block("liquid-s4", liquid_kernel=kernel, products="shifted", degree=degree).core
    u = signal(length)
    powers = {p: np.array([math.comb(p - 1, k) for k in range(p)]) for p in range(2, degree + 1)}
    expected = liquid_by_hand(core, u[0].numpy(), kernel, "elementwise", degree, powers.get)
    np.testing.assert_allclose(core(u)[0].detach().numpy(), expected, rtol=1e-9, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(stepped(core, u), core(u), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kernel", ["polyb", "kb", "allcombs"])
@pytest.mark.parametrize("powers", ["elementwise", "row-sum"])
def test_a_frozen_term_stays_that_of_the_start(kernel: str, powers: str) -> None:
    options: dict[str, Any] = {"liquid_kernel": kernel, "powers": powers, "degree": 3, "bidirectional": True}
    frozen, trained = (
        model_of("liquid-s4", state=8, liquid_term=t, **options) for t in ("frozen", "trained")
    )
    inputs, lengths = tokens(9, 17, 5)
    assert torch.equal(frozen(inputs, lengths), trained(inputs, lengths))
    names = [set(dict(model.named_parameters())) for model in (frozen, trained)]
    assert names[0] == names[1]
    kept = {key: value.clone() for key, value in frozen.state_dict().items() if key.endswith(".frozen")}
    assert len(kept) == 2
    frozen(inputs, lengths).square().sum().backward()
    optimizer = torch.optim.SGD(frozen.parameters(), lr=0.1)
    optimizer.step()
    assert all(torch.equal(frozen.state_dict()[key], value) for key, value in kept.items())
    trained.load_state_dict(frozen.state_dict(), strict=False)
    assert not torch.equal(frozen(inputs, lengths), trained(inputs, lengths))
    again = model_of("liquid-s4", seed=1, state=8, liquid_term="frozen", **options)
    again.load_state_dict(frozen.state_dict())
    assert torch.equal(again(inputs, lengths), frozen(inputs, lengths))


def combinations_by_hand(u: Any, degree: int) -> Any:
    """The source's: the last combinations of the last inputs, in the order of itertools, then in reverse."""
    length, found = len(u), []
    for p in range(2, degree + 1):
        last = [np.prod(u[list(places)], axis=0) for places in itertools.combinations(range(length), p)]
        rows = np.array(last[-length:][::-1]).reshape(-1, u.shape[1])
        found.append(np.concatenate([rows, np.zeros((length - len(rows), u.shape[1]))]))
    return found


@pytest.mark.parametrize("degree", [2, 3, 4])
@pytest.mark.parametrize("length", [1, 2, 3, 5, 6, 20, 27])
def test_products_of_all_combinations(length: int, degree: int) -> None:
    u = signal(length)
    found = multiply_combinations(u.flip(1), degree)
    for ours, theirs in zip(found, combinations_by_hand(u[0].numpy(), degree), strict=True):
        np.testing.assert_allclose(ours[0].numpy(), theirs, rtol=1e-12)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("powers", ["elementwise", "row-sum"])
def test_all_combinations_add_to_s4(bidirectional: bool, powers: str) -> None:
    options: dict[str, Any] = {"degree": 3, "powers": powers, "bidirectional": bidirectional}
    core = double_block("liquid-s4", liquid_kernel="allcombs", **options).core
    plain = double_block("s4", bidirectional=bidirectional).core
    plain.load_state_dict(core.state_dict())
    u, lengths = signal(30), torch.tensor([30, 19])
    u[1, 19:] = 0
    extra = (core(u, lengths) - plain(u)).detach().numpy()
    gains = core.system.compute_gains().detach().numpy()
    for row, length in enumerate(lengths.tolist()):
        expected = np.zeros((length, 6))
        for p, products in enumerate(combinations_by_hand(u[row, :length].numpy(), 3)):
            expected += gains[0, p] * products
            if bidirectional:
                expected += gains[1, p] * products[::-1]
        np.testing.assert_allclose(extra[row, :length], expected, rtol=1e-9, atol=1e-12)


def test_all_combinations_are_not_causal_and_have_no_steps() -> None:
    model = model_of("liquid-s4", liquid_kernel="allcombs", state=8)
    assert not models.find_family("liquid-s4").is_causal(model.config)
    assert models.find_family("liquid-s4").is_causal(config_of("liquid-s4"))
    with pytest.raises(ConfigError, match=r"liquid_kernel: allcombs.*no recurrent inference"):
        model.eval().start(1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"degree": 3, "liquid_kernel": "allcombs"}, "needs liquid_kernel: polyb or kb"),
        ({"degree": 2}, "needs degree: 3 or more"),
    ],
)
def test_shifted_products_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=f"products: shifted {message}"):
        config_of("liquid-s4", products="shifted", **options)


def test_liquid_s4_of_inputs_without_neighbours_is_s4() -> None:
    liquid, plain = double_block("liquid-s4").core, double_block("s4").core  # differ in b_clip, loaded below
    plain.load_state_dict(liquid.state_dict())
    u = signal(20)
    u[:, 1::2] = 0
    torch.testing.assert_close(liquid(u), plain(u))
    assert (liquid(signal(20)) - plain(signal(20))).abs().max() > 1e-4


def test_products_of_consecutive_inputs() -> None:
    u = torch.tensor([2.0, 3, 5, 7]).view(1, 4, 1)
    found = [p.flatten().tolist() for p in multiply_consecutive(u, 3)]
    assert found == [[2, 3, 5, 7], [0, 6, 15, 35], [0, 0, 30, 105]]
    assert [p.shape for p in multiply_consecutive(u[:, :1], 4)] == [(1, 1, 1)] * 4
