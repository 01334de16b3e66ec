"""HiPPO-LegS in its eigenbasis against the matrix itself."""

import pytest
import torch
from linear_cases import legs_matrix

from msbench.models.lti import compute_legs


@pytest.mark.parametrize("states", [2, 4, 16, 64])
def test_the_eigenbasis_gives_legs_back(states: int) -> None:
    poles, p, b, V = compute_legs(states)
    whole = V @ torch.diag(poles) @ V.mH
    low = V @ p
    A = (whole + whole.conj()).real - torch.outer((low + low.conj()).real, (low + low.conj()).real)
    torch.testing.assert_close(A, legs_matrix(states), rtol=1e-10, atol=1e-9)
    B = (2 * torch.arange(states) + 1).double().sqrt()
    torch.testing.assert_close(2 * (V @ b).real, B, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("states", [2, 8, 64])
def test_kept_is_the_upper_half_of_orthonormal_vectors(states: int) -> None:
    poles, p, b, V = compute_legs(states)
    torch.testing.assert_close(poles.real, torch.full_like(poles.real, -0.5))
    assert bool((poles.imag > 0).all())
    assert bool((poles.imag.diff() > 0).all())
    identity = torch.eye(states // 2, dtype=torch.complex128)
    torch.testing.assert_close(V.mH @ V, identity, rtol=0, atol=1e-12)
    torch.testing.assert_close(V.mT @ V, torch.zeros_like(identity), rtol=0, atol=1e-12)
    assert bool((p.real > 0).all())
    assert not p.imag.any()
    torch.testing.assert_close(b, 2**0.5 * p)


def test_eigenvalues_of_the_diagonal_part() -> None:
    """The normal part's eigenvalues, by a solver that knows nothing of its structure."""
    p = (torch.arange(16) + 0.5).double().sqrt()
    found = torch.linalg.eigvals(legs_matrix(16) + torch.outer(p, p))
    upper = found[found.imag > 0]
    torch.testing.assert_close(upper[upper.imag.argsort()], compute_legs(16).poles, rtol=1e-10, atol=1e-10)
