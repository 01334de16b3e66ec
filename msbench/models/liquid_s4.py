"""Liquid-S4 (Hasani, Lechner, Wang, Chahine, Amini and Rus, "Liquid Structural State-Space Models", 2022).

==================  ==================  ======================================================
code                paper               meaning
==================  ==================  ======================================================
``u^(p)``           u_i u_{i+1} ..      products of p consecutive inputs, u_t u_{t-1} .. u_{t-p+1}
``B_p``             B-bar^p             one vector for each p from 2 to `degree`
==================  ==================  ======================================================

The paper's state is h_t = (A_bar + B_bar u_t) h_{t-1} + B_bar u_t. Of its terms in products of inputs the
layer keeps those of consecutive inputs, through kernels in addition to S4's K (the rest is as in
`msbench.models.s4`)::

    kb      y += K^(p) * u^(p),    K^(p)_t = C A_bar^t B_p
    polyb   y += (C B_p) u^(p)                              (A_bar taken as 1, one lag)

From the paper: the two kernels, elementwise powers, consecutive products, degree 2. From the code: B_bar in
B_p is that of the diagonal part alone, dt B / (1 - dt/2 Lambda); and ``row-sum``, where B_p = B_{p-1} sum
B_{p-1}. Left out, because they look ahead and depend on padding: the code's products of all pairs of the last
inputs of a sequence (``allcombs``), and its products aligned with the sequence in reverse.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from msbench.config.linear import LiquidS4Config
from msbench.datasets.dataset import TaskInfo
from msbench.models.blocks import GluBlock
from msbench.models.classifier import Classifier, build_classifier
from msbench.models.family import Family
from msbench.models.lti import ConvolvedSystem, count_activations, count_states, to_complex
from msbench.models.s4 import DiscreteS4, DplrSystem, compute_krylov_kernel, stack_parts
from msbench.ops.convolution import long_convolution


class LiquidState(NamedTuple):
    """h (b, d, 2n), the last inputs (b, d) newest first, the discrete system, and B_p (degree - 1, d, 2n)."""

    h: Tensor
    past: tuple[Tensor, ...]
    discrete: DiscreteS4
    powers: Tensor


class LiquidSystem(DplrSystem):
    """S4's system with products of inputs as further inputs; `degree` kernels in total."""

    def __init__(self, config: LiquidS4Config) -> None:
        super().__init__(config)
        self.degree, self.whole = config.degree, config.liquid_kernel == "kb"
        self.row_sum = config.powers == "row-sum"

    def compute_powers(self) -> Tensor:
        """Return B_p (degree - 1, d, 2n)."""
        dt, R = self.compute_resolvent()
        B = dt * R * self.repeat_copies(to_complex(self.B))
        found = [B]
        for _ in range(self.degree - 1):
            # The sum runs over both halves of the conjugate pairs, so it is real.
            by = 2 * found[-1].real.sum(-1, keepdim=True) if self.row_sum else B
            found.append(found[-1] * by)
        return stack_parts(torch.stack(found[1:])).to(self.log_dt.dtype)

    def compute_kernel(self, length: int) -> Tensor:
        """Return K (length, s, d); with ``kb`` K and every K^(p), (length, s, degree, d)."""
        discrete = self.discretise()
        if not self.whole:
            return compute_krylov_kernel(discrete, length)
        inputs = [discrete.B_bar, *self.compute_powers()]
        return torch.stack([compute_krylov_kernel(discrete._replace(B_bar=B), length) for B in inputs], dim=2)

    def compute_gains(self) -> Tensor:
        """Return C B_p (s, degree - 1, d), by which ``polyb`` multiplies products."""
        C = self.compute_output().to(self.log_dt.dtype).unsqueeze(1)
        return (C * self.compute_powers()).sum(-1)  # no matrix product, as in `step`

    def start(self, x: Tensor) -> LiquidState:  # type: ignore[override]
        """See `LtiSystem`."""
        h, discrete = super().start(x)
        return LiquidState(h, (torch.zeros_like(x),) * (self.degree - 1), discrete, self.compute_powers())

    def step(self, x: Tensor, state: LiquidState) -> tuple[Tensor, LiquidState]:  # type: ignore[override]
        """See `LtiSystem`."""
        A_bar, B_bar, C = state.discrete
        # No matrix product: autocast would compute it in bfloat16.
        h = (A_bar * state.h.unsqueeze(-2)).sum(-1) + B_bar * x.unsqueeze(-1)
        seen, product = h, x
        for before, B_p in zip(state.past, state.powers, strict=True):
            product = product * before
            seen = seen + B_p * product.unsqueeze(-1)
        past = (x, *state.past[:-1])
        return (C[0] * seen).sum(-1), state._replace(h=seen if self.whole else h, past=past)


class LiquidConvolution(ConvolvedSystem):
    """S4's convolution and skip, plus the terms in products of inputs."""

    system: LiquidSystem

    def compute_response(self, u: Tensor, kernel: Tensor, direction: int) -> Tensor:
        """See `ConvolvedSystem`."""
        inputs = multiply_consecutive(u, self.system.degree)
        if self.system.whole:
            return long_convolution(torch.stack(inputs, dim=2), kernel).sum(2)
        y = long_convolution(u, kernel)
        for gain, product in zip(self.system.compute_gains()[direction], inputs[1:], strict=True):
            y = y + gain * product
        return y


def multiply_consecutive(u: Tensor, degree: int) -> list[Tensor]:
    """Return u^(1) .. u^(degree) of u, all (b, l, d); inputs before the first are 0."""
    found = [u]
    for p in range(1, degree):
        before = torch.cat([torch.zeros_like(u[:, :p]), u[:, : max(0, u.shape[1] - p)]], dim=1)
        found.append(found[-1] * before)
    return found


def build(config: LiquidS4Config, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per layer."""
    return build_classifier(
        config,
        info,
        lambda: GluBlock(
            config,
            LiquidConvolution(LiquidSystem(config), config.d_model),
            dropout=config.dropout_inside,
        ),
    )


def count_liquid_activations(config: LiquidS4Config, device: str) -> float:
    """See `Family`: adds the products and, with ``kb``, the inputs of their convolution."""
    more = config.degree * (1.1 if config.liquid_kernel == "polyb" else 1.5)
    return count_activations(config, device) + more * config.d_model * (1 + config.bidirectional)


FAMILY = Family(build, count_states, count_liquid_activations)
