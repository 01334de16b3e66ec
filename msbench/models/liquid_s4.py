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

    kb         y += K^(p) * u^(p),    K^(p)_t = C A_bar^t B_p
    polyb      y += (C B_p) u^(p)                              (A_bar taken as 1, one lag)
    allcombs   y += (C B_p) v^(p)

From the paper: the first two kernels, elementwise powers, consecutive products, degree 2. From the code: the
B_bar of B_p is that of the diagonal part, dt B / (1 - dt/2 Lambda); ``row-sum``: B_p = B_{p-1} sum B_{p-1};
``shifted`` products, where u^(p)_t = u^(p-1)_t u^(p-1)_{t-1}; ``frozen``, where C and B_p of these terms are
constants; and ``allcombs``. With v = u_{l-1}, u_{l-2}, .. u_0, the input in reverse, v^(p) lists the products
of all combinations of p of its entries: v_1 v_0, v_2 v_0, v_2 v_1, v_3 v_0, .. for p = 2. So the product at a
step is one of inputs near the end of the sequence, whatever the step. The code counts from the end of the
padded batch; here l is the true length, so that padding changes nothing, and an unpadded sequence has the
code's numbers. The second direction adds the same products, mirrored.

Left out: the code's reversal of consecutive products, which looks ahead, and its ``kb``, whose Fourier
transforms of products and kernel have different frequencies.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from msbench.config.linear import LiquidS4Config
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError
from msbench.models.blocks import GluBlock
from msbench.models.classifier import Classifier, Layer, build_classifier
from msbench.models.family import Family
from msbench.models.layers import reverse
from msbench.models.lti import ConvolvedSystem, count_states, to_complex
from msbench.models.s4 import DiscreteS4, DplrSystem, compute_krylov_kernel, stack_parts
from msbench.ops.convolution import long_convolution


class LiquidState(NamedTuple):
    """h (b, d, 2n), the last inputs newest first, the discrete system, and the products' factors.

    `past` has tensors (b, d), for ``shifted`` products those of the last step; `factors` are B_p
    (degree - 1, d, 2n) or, for ``polyb``, C B_p (degree - 1, d).
    """

    h: Tensor
    past: tuple[Tensor, ...]
    discrete: DiscreteS4
    factors: Tensor


class LiquidSystem(DplrSystem):
    """S4's system with products of inputs as further inputs; `degree` kernels in total."""

    frozen: Tensor | None

    def __init__(self, config: LiquidS4Config) -> None:
        super().__init__(config)
        self.degree, self.kernel = config.degree, config.liquid_kernel
        self.whole, self.shifted = self.kernel == "kb", config.products == "shifted"
        self.row_sum = config.powers == "row-sum"
        # The convolutions of ``kb`` read the powers alone, the other kernels the gains.
        derive = self._derive_powers if self.whole else self._derive_gains
        with torch.no_grad():
            frozen = derive() if config.liquid_term == "frozen" else None
        self.register_buffer("frozen", frozen)

    def compute_powers(self) -> Tensor:
        """Return B_p (degree - 1, d, 2n)."""
        return self._derive_powers() if self.frozen is None else self.frozen

    def compute_gains(self) -> Tensor:
        """Return C B_p (s, degree - 1, d), by which ``polyb`` and ``allcombs`` multiply products."""
        return self._derive_gains() if self.frozen is None else self.frozen

    def _derive_gains(self) -> Tensor:
        C = self.compute_output().to(self.log_dt.dtype).unsqueeze(1)
        return (C * self._derive_powers()).sum(-1)  # no matrix product, as in `step`

    def _derive_powers(self) -> Tensor:
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

    def start(self, x: Tensor) -> LiquidState:  # type: ignore[override]
        """See `LtiSystem`; raises ConfigError for products that look ahead."""
        if self.kernel == "allcombs":
            raise ConfigError(
                "liquid_kernel: allcombs multiplies the last inputs of a sequence at its first steps: it has"
                " no recurrent inference; train one with liquid_kernel: polyb"
            )
        h, discrete = super().start(x)
        factors = self.compute_powers() if self.whole else self.compute_gains()[0]
        return LiquidState(h, (torch.zeros_like(x),) * (self.degree - 1), discrete, factors)

    def step(self, x: Tensor, state: LiquidState) -> tuple[Tensor, LiquidState]:  # type: ignore[override]
        """See `LtiSystem`."""
        A_bar, B_bar, C = state.discrete
        # No matrix product: autocast would compute it in bfloat16.
        h = (A_bar * state.h.unsqueeze(-2)).sum(-1) + B_bar * x.unsqueeze(-1)
        products = [x]
        for before in state.past:
            products.append(products[-1] * before)
        past = tuple(products[:-1]) if self.shifted else (x, *state.past[:-1])
        pairs = list(zip(state.factors, products[1:], strict=True))
        if self.whole:
            for B_p, product in pairs:
                h = h + B_p * product.unsqueeze(-1)
            return (C[0] * h).sum(-1), state._replace(h=h, past=past)
        y = (C[0] * h).sum(-1)
        for gain, product in pairs:
            y = y + gain * product
        return y, state._replace(h=h, past=past)


class LiquidConvolution(ConvolvedSystem):
    """S4's convolution and skip, plus the terms in products of inputs."""

    system: LiquidSystem

    def forward(self, u: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Map u (b, l, d) to (b, l, d); padding must be 0. Only ``allcombs`` needs `lengths`."""
        y = super().forward(u)
        if self.system.kernel != "allcombs":
            return y
        assert lengths is not None
        # Padding is 0, stays behind the end, and makes 0 of every product that it is part of.
        products = multiply_combinations(reverse(u, lengths), self.system.degree)
        for gains, product in zip(self.system.compute_gains().unbind(1), products, strict=True):
            y = y + gains[0] * product
            if len(gains) > 1:
                y = y + gains[1] * reverse(product, lengths)
        return y

    def compute_response(self, u: Tensor, kernel: Tensor, direction: int) -> Tensor:
        """See `ConvolvedSystem`."""
        if self.system.kernel == "allcombs":
            return long_convolution(u, kernel)
        inputs = multiply_consecutive(u, self.system.degree, shifted=self.system.shifted)
        if self.system.whole:
            return long_convolution(torch.stack(inputs, dim=2), kernel).sum(2)
        y = long_convolution(u, kernel)
        for gain, product in zip(self.system.compute_gains()[direction], inputs[1:], strict=True):
            y = y + gain * product
        return y


class LiquidBlock(GluBlock):
    """A block whose core needs the lengths of the sequences."""

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map (b, l, d) to (b, l, d)."""
        return self._mix(self.core(inputs, lengths))


def multiply_consecutive(u: Tensor, degree: int, *, shifted: bool = False) -> list[Tensor]:
    """Return u^(1) .. u^(degree) of u, all (b, l, d); inputs before the first are 0."""
    found = [u]
    for p in range(1, degree):
        factor, lag = (found[-1], 1) if shifted else (u, p)
        before = torch.cat([torch.zeros_like(u[:, :lag]), factor[:, : max(0, u.shape[1] - lag)]], dim=1)
        found.append(found[-1] * before)
    return found


def multiply_combinations(v: Tensor, degree: int) -> list[Tensor]:
    """Return v^(2) .. v^(degree) of v, all (b, l, d); 0 where a short v has no further combination."""
    return [_list_products(v, p, v.shape[1]) for p in range(2, degree + 1)]


def _list_products(v: Tensor, p: int, count: int) -> Tensor:
    """Return the first `count` products of p entries of v: those of the smallest largest index first."""
    if p == 1:
        return v[:, :count]
    # Entry a comes with each product of p - 1 entries before it.
    sizes: list[int] = []
    while sum(sizes) < count and len(sizes) + p <= v.shape[1]:
        sizes.append(math.comb(len(sizes) + p - 1, p - 1))
    smaller = _list_products(v, p - 1, max(sizes, default=0))
    rows = [v[:, a : a + 1] * smaller[:, :size] for a, size in enumerate(sizes, start=p - 1)]
    products = torch.cat([*rows, torch.zeros_like(v)], dim=1)
    return products[:, :count]


def build(config: LiquidS4Config, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per layer."""

    def build_block() -> Layer:
        core = LiquidConvolution(LiquidSystem(config), config.d_model)
        return LiquidBlock(config, core, dropout=config.dropout_inside)

    return build_classifier(config, info, build_block)


def is_causal(config: LiquidS4Config) -> bool:
    """See `Family`."""
    return not config.bidirectional and config.liquid_kernel != "allcombs"


FAMILY = Family(build, count_states, is_causal=is_causal, cost="l log l")
