"""HiPPO-LegS in the basis where it is diagonal plus low rank (Gu, Goel and Re 2022, theorem 1).

==========  ==============================================================================
code        meaning
==========  ==============================================================================
``A``       -sqrt(2i+1) sqrt(2j+1) below the diagonal, -(i+1) on it, 0 above
``p, b``    P_i = sqrt(i + 1/2), B_i = sqrt(2i+1)
``basis``   V: eigenvectors of A + P P^T, which is -1/2 I plus a skew matrix
==========  ==============================================================================

``A = V (Lambda - (V* P)(V* P)*) V*`` with Lambda = -1/2 + i w. Eigenvalues come in conjugate pairs; the half
with w > 0 is kept.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Legs(NamedTuple):
    """The half spectrum of an n-state LegS: all complex128 of n/2, `basis` (n, n/2)."""

    poles: Tensor
    p: Tensor
    b: Tensor
    basis: Tensor


@cache
def legs(states: int) -> Legs:
    """Return HiPPO-LegS of an even number of states, slowest oscillation first; callers share the tensors.

    An eigenvector's phase is arbitrary, and LAPACK's choice is not portable: here V* B, and so V* P, is
    positive.
    """
    i = np.arange(states)
    p = np.sqrt(i + 0.5)
    below = np.tril(np.outer(p, p), -1)
    # A + P P^T is -1/2 I + (below^T - below), whose eigenvalues are i w: times -i the matrix is Hermitian.
    w, vectors = np.linalg.eigh(-1j * (below.T - below))
    w, vectors = w[states // 2 :], vectors[:, states // 2 :]
    projected = vectors.conj().T @ p
    vectors = vectors * (projected / np.abs(projected))
    low = torch.from_numpy(np.abs(projected)).to(torch.complex128)
    return Legs(torch.from_numpy(-0.5 + 1j * w), low, 2**0.5 * low, torch.from_numpy(vectors))
