"""S4 (Gu, Goel and Re, "Efficiently Modeling Long Sequences with Structured State Spaces", 2022).

==================  ==================  ======================================================
code                paper               meaning
==================  ==================  ======================================================
``d``, ``n``        H, N / 2            channels; complex states of a channel, 2n real ones
``A_log, A_imag``   Lambda              diagonal part: -exp(A_log) + i A_imag
``P``               P                   low-rank part, rank 1: A = Lambda - P P*
``B``, ``C``        B, C                input and output; C is the plain one, for any length
``log_dt``          log Delta           step sizes, one per channel
``A_bar, B_bar``    A-bar, B-bar        the bilinear discretisation
==================  ==================  ======================================================

::

    A_bar = (1 - dt/2 A)^-1 (1 + dt/2 A)     B_bar = (1 - dt/2 A)^-1 dt B
    h_t = A_bar h_{t-1} + B_bar u_t          y = 2 Re(C h) + D u

One of each conjugate pair is kept, as a pair of real numbers, so a system is real and has 2n states. A starts
as HiPPO-LegS. Lambda + Lambda* and -P P* are negative, so A_bar is a contraction for any parameters. B starts
as HiPPO's, clipped at `b_clip` in this basis as in S4's code (2); the paper has no such bound.

The paper gets its kernel K_t = C A_bar^t B_bar from the generating function at the roots of unity, truncated
by C (1 - A_bar^L), which ties C to the length L and needs A_bar^L. Here (1 - dt/2 A)^-1 is the Woodbury
identity of the paper, and K is the product of [C A_bar^{kq}] and [A_bar^j B_bar] for t = j + kq, each
computed by doubling: exact at every length, with no node at -1, and real.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from msbench.config.linear import S4Config
from msbench.datasets.dataset import TaskInfo
from msbench.models import lti
from msbench.models.classifier import Classifier
from msbench.models.family import Family


class DiscreteS4(NamedTuple):
    """Real systems in discrete time: A_bar (d, 2n, 2n), B_bar (d, 2n), C (s, d, 2n)."""

    A_bar: Tensor
    B_bar: Tensor
    C: Tensor


class DplrState(NamedTuple):
    """h (b, d, 2n), and the system in discrete time."""

    h: Tensor
    discrete: DiscreteS4


class DplrSystem(nn.Module):
    """S4's system for every channel, see `msbench.models.lti.LtiSystem`.

    The diagonal of A starts `offset`, a number or one per copy (copies, 1), below that of HiPPO-LegS:
    eigenvalues are -1 - offset, -2 - offset, ..
    """

    def __init__(self, config: S4Config, offset: Tensor | float = 0.0) -> None:
        super().__init__()
        d, copies = config.d_model, config.copies or config.d_model
        start = lti.compute_legs(config.state)
        poles, p, b = (
            x.expand(copies, -1) for x in (start.poles, start.p, lti.clip_input(start.b, config.b_clip))
        )
        self.repeats = d // copies
        self.log_dt = nn.Parameter(lti.draw_log_uniform(config.dt_min, config.dt_max, d))
        self.A_log = nn.Parameter((offset - poles.real).log().float())
        self.A_imag = nn.Parameter(poles.imag.float().contiguous())
        self.P, self.B = lti.to_pairs(p), lti.to_pairs(b)
        self.C = lti.to_pairs(lti.draw_complex_normal(1 + config.bidirectional, d, config.state // 2))
        self.optimizer_groups = dict.fromkeys(("A_log", "A_imag", "P", "B"), "ssm")

    def compute_resolvent(self) -> tuple[Tensor, Tensor]:
        """Return dt (d, 1) and 1 / (1 - dt/2 Lambda) (d, n)."""
        dt = self.log_dt.double().exp().unsqueeze(-1)
        poles = lti.compute_poles(self.A_log, self.A_imag)
        return dt, 1 / (1 - dt / 2 * self.repeat_copies(poles))

    def repeat_copies(self, shared: Tensor) -> Tensor:
        """Repeat (copies, n) to (d, n)."""
        return shared.repeat(self.repeats, 1)

    def compute_output(self) -> Tensor:
        """Return C as real rows (s, d, 2n): 2 Re(C h) of conjugate pairs."""
        return 2 * stack_parts(lti.to_complex(self.C).conj())

    def discretise(self) -> DiscreteS4:
        """Return the bilinear discretisation by the Woodbury identity, in the parameters' precision.

        With A = Lambda - P P*, and R = 1 / (1 - dt/2 Lambda): the inverse of 1 - dt/2 A is
        R - dt R P (R* P)^T / (1 + dt Re sum |P|^2 R) of pairs; A_bar is twice that minus 1.
        """
        dt, R = self.compute_resolvent()
        P, B = self.repeat_copies(lti.to_complex(self.P)), self.repeat_copies(lti.to_complex(self.B))
        scale = dt / (1 + dt * (P.abs().square() * R.real).sum(-1, keepdim=True))
        low = (scale * stack_parts(R * P)).unsqueeze(-1) * stack_parts(R.conj() * P).unsqueeze(-2)
        inverse = build_rotations(R) - low
        B_bar = dt * (inverse @ stack_parts(B).unsqueeze(-1)).squeeze(-1)
        A_bar = 2 * inverse - torch.eye(low.shape[-1], dtype=low.dtype, device=low.device)
        return DiscreteS4(*(x.to(self.log_dt.dtype) for x in (A_bar, B_bar, self.compute_output())))

    def compute_discrete_poles(self) -> Tensor:
        """Return the poles of Lambda alone.

        Eigenvalues of the whole matrix are not informative: those of LegS are so ill-conditioned that, with
        12 of them, rounding the parameters to float32 moves one by 1.1.
        """
        return 2 * self.compute_resolvent()[1] - 1

    def compute_kernel(self, length: int) -> Tensor:
        """See `LtiSystem`."""
        return compute_krylov_kernel(self.discretise(), length)

    def start(self, x: Tensor) -> DplrState:
        """See `LtiSystem`; the dense matrices are computed here, once."""
        discrete = self.discretise()
        return DplrState(discrete.B_bar.new_zeros(x.shape[0], *discrete.B_bar.shape), discrete)

    def step(self, x: Tensor, state: DplrState) -> tuple[Tensor, DplrState]:
        """See `LtiSystem`."""
        A_bar, B_bar, C = state.discrete
        # No matrix product: autocast would compute it in bfloat16.
        h = (A_bar * state.h.unsqueeze(-2)).sum(-1) + B_bar * x.unsqueeze(-1)
        return (C[0] * h).sum(-1), state._replace(h=h)


def stack_parts(x: Tensor) -> Tensor:
    """Return complex (..., n) as real (..., 2n): real parts, then imaginary parts."""
    return torch.cat([x.real, x.imag], -1)


def build_rotations(x: Tensor) -> Tensor:
    """Return the real matrices (..., 2n, 2n) that multiply the vectors of `stack_parts` by x (..., n)."""
    re, im = torch.diag_embed(x.real), torch.diag_embed(x.imag)
    return torch.cat([torch.cat([re, -im], -1), torch.cat([im, re], -1)], -2)


def compute_krylov_kernel(discrete: DiscreteS4, length: int) -> Tensor:
    """Return ``C A_bar^t B_bar`` for t below `length`, (length, s, d)."""
    A_bar, B_bar, C = discrete
    columns, power, inner = B_bar.unsqueeze(-1), A_bar, 1
    while inner * inner < length:
        columns = torch.cat([columns, power @ columns], -1)
        power, inner = power @ power, 2 * inner
    rows, outer = C.movedim(0, 1), 1
    # Rows C power^k for each direction, doubled until they reach the length.
    while outer * inner < length:
        rows = torch.cat([rows, rows @ power], 1)
        power, outer = power @ power, 2 * outer
    kernel = (rows @ columns).view(len(rows), outer, -1, inner).transpose(1, 2).flatten(2)
    return kernel[..., :length].permute(2, 1, 0)


def build(config: S4Config, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per layer, with dropout on both sides of GELU as in S4's code."""
    return lti.build_convolved(config, info, lambda: DplrSystem(config), early_dropout=config.dropout_inside)


FAMILY = Family(build, lti.count_states, cost="l log l")
