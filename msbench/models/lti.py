"""Time-invariant systems as long convolutions: one system a channel (S4, S4D, DSS).

==================  ==========  ==============================================================
code                papers      meaning
==================  ==========  ==============================================================
``b, l, d``                     examples, positions, channels (the papers' H)
``s``                           directions: 1, or 2 where bidirectional
``n``               N / 2       complex states of a channel
``r``               log A-bar   complex exponents of the modes, one step each
``w``               C B-bar     weights of the modes
``kernel``          K-bar       response to an impulse, by lag
==================  ==========  ==============================================================

::

    K[t] = Re sum_n w e^{r t}        y = K * u + D u

With two directions ``y_t`` has ``sum_j K'[j] u_{t+1+j}`` besides: the second kernel has its own C and reads
the strict future, as S4's code has it.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from msbench.models.selective import decays, full_precision
from msbench.ops import long_convolution

Kernel = Callable[[int], Tensor]
"""From a length to what has that many lags."""


def complex_of(pairs: Tensor) -> Tensor:
    """(..., 2) real pairs to complex128.

    In double, for phases grow with the lag: to 25,000 radians before the fastest mode of 64 states has died
    away, where float32 is off by 0.002. There are few such numbers, so it costs nothing.
    """
    values: Tensor = torch.view_as_complex(full_precision(pairs).double().contiguous())
    return values


def pairs_of(values: Tensor) -> nn.Parameter:
    """A parameter of float32 pairs (..., 2) from complex numbers."""
    return nn.Parameter(torch.view_as_real(values.resolve_conj()).float().contiguous())


def complex_normal(*size: int) -> Tensor:
    """Complex numbers of variance 1: each part has 1/2."""
    return torch.randn(size, dtype=torch.complex64)


def poles_of(A_log: Tensor, A_imag: Tensor) -> Tensor:
    """Poles -exp(A_log) + i A_imag, complex128: their real parts are negative by this form."""
    return torch.complex(decays(A_log).double(), full_precision(A_imag).double())


def log_uniform(low: float, high: float, *size: int) -> Tensor:
    """Logarithms of step sizes, uniform between those of `low` and `high`."""
    start, end = math.log(low), math.log(high)
    return start + (end - start) * torch.rand(size)


def mode_kernel(r: Tensor, w: Tensor, length: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """``Re sum_n w e^{r t}`` for t below `length`: r (d, n) and w (s, d, n), complex -> (length, s, d), real.

    With t = j + k q the sum is a product of two matrices, e^{r k q} by n and n by e^{r j}, of about
    sqrt(length) rows each: nothing of size (length, d, n) exists, and so few exponentials are taken that they
    can be double. Only the product is in `dtype`.
    """
    inner = max(1, round(length**0.5))
    outer = -(-length // inner)
    j, q = (torch.arange(size, device=r.device, dtype=torch.float64) for size in (inner, outer))
    near = torch.exp(r.unsqueeze(-1) * j)
    far = w.unsqueeze(-2) * torch.exp(r.unsqueeze(-2) * (inner * q).unsqueeze(-1))
    rows = torch.cat([far.real, -far.imag], -1).to(dtype)
    columns = torch.cat([near.real, near.imag], -2).to(dtype)
    return (rows @ columns).flatten(-2)[..., :length].movedim(-1, 0)


class System(Protocol):
    """A linear system a channel. States and outputs of a step are those of the first direction."""

    def kernel(self, length: int) -> Tensor:
        """K (length, s, d), exact at any length."""

    def discrete_poles(self) -> Tensor:
        """The diagonal of A-bar (d, n), complex; of conjugate pairs one half."""

    def start(self, x: Tensor) -> Any:
        """See `msbench.models.stepping.Recurrent`."""

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """See `msbench.models.stepping.Recurrent`."""


class ModeState(NamedTuple):
    """h (b, d, n), and what moves it: decay e^r and weights (d, n); all complex."""

    h: Tensor
    decay: Tensor
    w: Tensor


class Diagonal(nn.Module):
    """A `System` whose states do not see each other; a family says what its `modes` are."""

    log_dt: nn.Parameter

    def modes(self) -> tuple[Tensor, Tensor]:
        """Exponents r (d, n) and weights w (s, d, n), complex128."""
        raise NotImplementedError

    def discrete_poles(self) -> Tensor:
        """See `System`."""
        return torch.exp(self.modes()[0])

    def kernel(self, length: int) -> Tensor:
        """See `System`."""
        r, w = self.modes()
        return mode_kernel(r, w, length, self.log_dt.dtype)

    def start(self, x: Tensor) -> ModeState:
        """See `System`."""
        r, w = self.modes()
        dtype = torch.promote_types(self.log_dt.dtype, torch.complex64)
        h = torch.zeros(x.shape[0], *r.shape, dtype=dtype, device=x.device)
        return ModeState(h, torch.exp(r).to(dtype), w[0].to(dtype))

    def step(self, x: Tensor, state: ModeState) -> tuple[Tensor, ModeState]:
        """See `System`."""
        h = state.decay * state.h + x.unsqueeze(-1)
        return (state.w * h).sum(-1).real, state._replace(h=h)


class Convolved(nn.Module):
    """``K * u + D u`` for all channels: (b, l, d) -> (b, l, d)."""

    def __init__(self, system: nn.Module, d_model: int) -> None:
        super().__init__()
        self.system: Any = system
        self.D = nn.Parameter(torch.randn(d_model))
        # A skip does not decay, but its rate is the common one, as in S4's code.
        self.optimizer_groups = {"D": "plain"}

    def forward(self, u: Tensor) -> Tensor:
        """u (b, l, d) -> (b, l, d); padding behind a sequence must be 0."""
        ahead, *back = self.kernels(u.shape[1]).unbind(1)
        y = self.respond(u, ahead, 0)
        if back:
            y = y + one_step_earlier(self.respond(u.flip(1), back[0], 1).flip(1))
        return y + full_precision(self.D) * u

    def respond(self, u: Tensor, kernel: Tensor, direction: int) -> Tensor:  # noqa: ARG002 (for others)
        """What u (b, l, d) and its past give through the kernel (l, d) of one direction."""
        return long_convolution(u, kernel)

    def kernels(self, length: int) -> Tensor:
        """The system's kernel (length, s, d)."""
        return made_again(self.system.kernel, length, training=self.training)

    def start(self, x: Tensor) -> Any:
        """See `msbench.models.stepping.Recurrent`."""
        return self.system.start(x)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """See `msbench.models.stepping.Recurrent`."""
        y, state = self.system.step(x, state)
        return y + self.D * x, state


def made_again(function: Kernel, length: int, *, training: bool) -> Tensor:
    """function(length) `in_full`, in training again in the backward: what it is made of is larger than it."""
    if training and torch.is_grad_enabled():
        kernel: Tensor = checkpoint(in_full, function, length, use_reentrant=False, preserve_rng_state=False)
        return kernel
    return in_full(function, length)


def in_full(function: Kernel, length: int) -> Tensor:
    """function(length), without autocast: in bfloat16 a kernel is off by 0.4 % a step."""
    with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        return function(length)


def one_step_earlier(y: Tensor) -> Tensor:
    """y (b, l, d) one step earlier: y_{t+1} at t, and 0 at the end."""
    return torch.cat([y[:, 1:], torch.zeros_like(y[:, :1])], dim=1)
