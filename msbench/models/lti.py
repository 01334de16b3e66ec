"""Time-invariant systems as long convolutions: one system per channel (S4, S4D, DSS).

==================  ==========  ==============================================================
code                papers      meaning
==================  ==========  ==============================================================
``b, l, d``                     examples, positions, channels (the papers' H)
``s``                           directions: 1, or 2 where bidirectional
``n``               N / 2       complex states of a channel
``r``               log A-bar   complex exponents of the modes, per step
``w``               C B-bar     weights of the modes
``kernel``          K-bar       response to an impulse, by lag
==================  ==========  ==============================================================

::

    K[t] = Re sum_n w e^{r t}        y = K * u + D u

With two directions ``y_t`` also has the term ``sum_j K'[j] u_{t+1+j}``: the second kernel has its own C and
reads the strict future, as in S4's code.

HiPPO-LegS in the basis where it is diagonal plus low rank (Gu, Goel and Re 2022, theorem 1):

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

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from msbench.config.linear import LinearConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.blocks import Gate, GluBlock
from msbench.models.classifier import Classifier, Layer, build_classifier
from msbench.models.layers import compute_decays, require_full_precision, shift_earlier
from msbench.ops.convolution import long_convolution

Kernel = Callable[[int], Tensor]
"""Function from a length to a kernel with that many lags."""


def to_complex(pairs: Tensor) -> Tensor:
    """Convert real pairs (..., 2) to complex128.

    Double precision, because phases grow with the lag: to 25,000 radians before the fastest mode of 64 states
    has decayed, where float32 is off by 0.002. There are few such numbers, so the cost is negligible.
    """
    values: Tensor = torch.view_as_complex(require_full_precision(pairs).double().contiguous())
    return values


def to_pairs(values: Tensor) -> nn.Parameter:
    """Return a parameter of float32 pairs (..., 2) from complex numbers."""
    return nn.Parameter(torch.view_as_real(values.resolve_conj()).float().contiguous())


def draw_complex_normal(*size: int) -> Tensor:
    """Draw complex numbers of variance 1: 1/2 in each part."""
    return torch.randn(size, dtype=torch.complex64)


def compute_poles(A_log: Tensor, A_imag: Tensor) -> Tensor:
    """Return the poles -exp(A_log) + i A_imag, complex128, whose real parts are negative by construction."""
    return torch.complex(compute_decays(A_log).double(), require_full_precision(A_imag).double())


def draw_log_uniform(low: float, high: float, *size: int) -> Tensor:
    """Draw logarithms of step sizes, uniform between those of `low` and `high`."""
    start, end = math.log(low), math.log(high)
    return start + (end - start) * torch.rand(size)


class Legs(NamedTuple):
    """The half spectrum of an n-state LegS: all complex128 of n/2, `basis` (n, n/2)."""

    poles: Tensor
    p: Tensor
    b: Tensor
    basis: Tensor


def compute_legs(states: int) -> Legs:
    """Return HiPPO-LegS of an even number of states, slowest oscillation first; callers share the tensors.

    An eigenvector's phase is arbitrary, and LAPACK's choice is not portable: here V* B, and so V* P, is
    positive.
    """
    device = torch.get_default_device()  # the meta device, where only sizes are wanted
    return Legs(*(each.to(device) for each in _diagonalise_legs(states)))


@cache
def _diagonalise_legs(states: int) -> Legs:
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


def clip_input(b: Tensor, bound: float | None) -> Tensor:
    """Return the B of `Legs` with no entry above `bound`.

    S4's code clips imaginary parts, as the phase that LAPACK chooses makes its B imaginary; ours is positive.
    """
    return b if bound is None else torch.complex(b.real.clamp(max=bound), b.imag)


def compute_mode_kernel(r: Tensor, w: Tensor, length: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return ``Re sum_n w e^{r t}`` for t below `length`, (length, s, d), for complex r (d, n), w (s, d, n).

    With t = j + k q the sum is a product of two matrices, e^{r k q} by n and n by e^{r j}, of about
    sqrt(length) rows each: no array of size (length, d, n) exists, and the exponentials are few enough to be
    double. Only the product is in `dtype`.
    """
    inner = max(1, round(length**0.5))
    outer = -(-length // inner)
    j, q = (torch.arange(size, device=r.device, dtype=torch.float64) for size in (inner, outer))
    near = torch.exp(r.unsqueeze(-1) * j)
    far = w.unsqueeze(-2) * torch.exp(r.unsqueeze(-2) * (inner * q).unsqueeze(-1))
    rows = torch.cat([far.real, -far.imag], -1).to(dtype)
    columns = torch.cat([near.real, near.imag], -2).to(dtype)
    return (rows @ columns).flatten(-2)[..., :length].movedim(-1, 0)


class LtiSystem(Protocol):
    """One linear system per channel. States and outputs of a step are those of the first direction."""

    def compute_kernel(self, length: int) -> Tensor:
        """Return K (length, s, d), exact at any length."""

    def compute_discrete_poles(self) -> Tensor:
        """Return the diagonal of A-bar (d, n), complex; one of each conjugate pair."""

    def start(self, x: Tensor) -> Any:
        """See `msbench.models.layers.Recurrent`."""

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """See `msbench.models.layers.Recurrent`."""


class ModeState(NamedTuple):
    """h (b, d, n), with the decay e^r and the weights (d, n); all complex."""

    h: Tensor
    decay: Tensor
    w: Tensor


class DiagonalSystem(nn.Module):
    """A `LtiSystem` with a diagonal A; subclasses define its `modes`."""

    log_dt: nn.Parameter

    def compute_modes(self) -> tuple[Tensor, Tensor]:
        """Return exponents r (d, n) and weights w (s, d, n), complex128."""
        raise NotImplementedError

    def compute_discrete_poles(self) -> Tensor:
        """See `LtiSystem`."""
        return torch.exp(self.compute_modes()[0])

    def compute_kernel(self, length: int) -> Tensor:
        """See `LtiSystem`."""
        r, w = self.compute_modes()
        return compute_mode_kernel(r, w, length, self.log_dt.dtype)

    def start(self, x: Tensor) -> ModeState:
        """See `LtiSystem`."""
        r, w = self.compute_modes()
        dtype = torch.promote_types(self.log_dt.dtype, torch.complex64)
        h = torch.zeros(x.shape[0], *r.shape, dtype=dtype, device=x.device)
        return ModeState(h, torch.exp(r).to(dtype), w[0].to(dtype))

    def step(self, x: Tensor, state: ModeState) -> tuple[Tensor, ModeState]:
        """See `LtiSystem`."""
        h = state.decay * state.h + x.unsqueeze(-1)
        return (state.w * h).sum(-1).real, state._replace(h=h)


class ConvolvedSystem(nn.Module):
    """``K * u + D u`` for all channels: (b, l, d) -> (b, l, d)."""

    def __init__(self, system: nn.Module, d_model: int) -> None:
        super().__init__()
        self.system: Any = system
        self.D = nn.Parameter(torch.randn(d_model))
        # No weight decay for the skip, but the common learning rate, as in S4's code.
        self.optimizer_groups = {"D": "plain"}

    def forward(self, u: Tensor) -> Tensor:
        """Map u (b, l, d) to (b, l, d); padding must be 0."""
        ahead, *back = self.compute_kernels(u.shape[1]).unbind(1)
        y = self.compute_response(u, ahead, 0)
        if back:
            y = y + shift_earlier(self.compute_response(u.flip(1), back[0], 1).flip(1))
        return y + require_full_precision(self.D) * u

    def compute_response(self, u: Tensor, kernel: Tensor, direction: int) -> Tensor:  # noqa: ARG002 (for others)
        """Return the response to u (b, l, d) through the kernel (l, d) of one direction."""
        return long_convolution(u, kernel)

    def compute_kernels(self, length: int) -> Tensor:
        """Return the system's kernel (length, s, d)."""
        return checkpoint_kernel(self.system.compute_kernel, length, training=self.training)

    def start(self, x: Tensor) -> Any:
        """See `msbench.models.layers.Recurrent`."""
        return self.system.start(x)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """See `msbench.models.layers.Recurrent`."""
        y, state = self.system.step(x, state)
        return y + self.D * x, state


def checkpoint_kernel(function: Kernel, length: int, *, training: bool) -> Tensor:
    """Return function(length), recomputed in the backward in training: its intermediates are large."""
    if training and torch.is_grad_enabled():
        kernel: Tensor = checkpoint(
            compute_without_autocast, function, length, use_reentrant=False, preserve_rng_state=False
        )
        return kernel
    return compute_without_autocast(function, length)


def compute_without_autocast(function: Kernel, length: int) -> Tensor:
    """Return function(length) without autocast: in bfloat16 a kernel is off by 0.4 % per step."""
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        return function(length)


def build_convolved(
    config: LinearConfig,
    info: TaskInfo,
    system: Callable[[], nn.Module],
    *,
    gate: Gate = "full",
    early_dropout: float = 0.0,
) -> Classifier:
    """Build a classifier of S4's blocks: a convolution with a new `system`, GELU, and a map of the channels.

    See `GluBlock` for `gate` and `early_dropout`.
    """

    def build_block() -> Layer:
        core = ConvolvedSystem(system(), config.d_model)
        return GluBlock(config, core, gate=gate, dropout=config.dropout_inside, early_dropout=early_dropout)

    return build_classifier(config, info, build_block)


def count_states(config: LinearConfig) -> int:
    """See `Family`."""
    return config.state * (1 + config.bidirectional)
