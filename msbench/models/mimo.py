"""The base of S5 and the LRU: time-invariant systems with many inputs and outputs, scanned.

==================  ======================================================================
code                meaning
==================  ======================================================================
``b, l, d``         examples, positions, channels
``s``               directions: 1, or 2 where bidirectional
``n``               complex states of a layer, shared by all channels
``a, B, C``         decays (n,), input (n, d) and output (s, d, n), complex
==================  ======================================================================

::

    h_t = a h_{t-1} + B u_t          y = sum_s Re(C_s h^s) + D u

The h of the second direction runs over the reversed sequence, with the same a and B.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.linear import FlaxConfig, LinearConfig
from msbench.models.classifier import Classifier
from msbench.models.layers import require_full_precision, restart_as_lecun
from msbench.ops.linear_scan import linear_scan


class DiscreteMimo(NamedTuple):
    """A system in discrete time: a (n,), B (n, d), C (s, d, n), all complex."""

    a: Tensor
    B: Tensor
    C: Tensor


class MimoState(NamedTuple):
    """h (b, n), complex, and the system in discrete time."""

    h: Tensor
    discrete: DiscreteMimo


class MimoSystem(nn.Module):
    """The layer's recurrence, (b, l, d) -> (b, l, d); subclasses define its `discrete` system."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.D = nn.Parameter(torch.randn(d_model))

    def discretise(self) -> DiscreteMimo:
        """Return the system in discrete time, in the parameters' precision."""
        raise NotImplementedError

    def forward(self, u: Tensor) -> Tensor:
        """Map u (b, l, d) to (b, l, d); padding must be 0."""
        with torch.autocast(u.device.type, enabled=False):
            a, B, C = self.discretise()
            inputs, outputs = to_input_rows(B), to_output_columns(C)
        driven = to_complex(functional.linear(u, inputs), a.real.dtype)
        count_states = [linear_scan(a, driven)]
        if len(C) > 1:
            count_states.append(linear_scan(a, driven.flip(1)).flip(1))
        seen = torch.cat([torch.view_as_real(h).flatten(-2) for h in count_states], -1)
        return functional.linear(seen, outputs) + require_full_precision(self.D) * u

    def start(self, x: Tensor) -> MimoState:
        """See `msbench.models.layers.Recurrent`."""
        discrete = self.discretise()
        return MimoState(discrete.a.new_zeros(x.shape[0], len(discrete.a)), discrete)

    def step(self, x: Tensor, state: MimoState) -> tuple[Tensor, MimoState]:
        """See `msbench.models.layers.Recurrent`."""
        a, B, C = state.discrete
        h = a * state.h + x.to(B.dtype) @ B.mT
        return (h @ C[0].mT).real + self.D * x, state._replace(h=h)


def to_input_rows(B: Tensor) -> Tensor:
    """Return B (n, d) as the real matrix (2n, d) whose products are pairs (real part, imaginary part)."""
    return torch.view_as_real(B.resolve_conj()).transpose(1, 2).flatten(0, 1)


def to_output_columns(C: Tensor) -> Tensor:
    """Return C (s, d, n) as the real matrix (d, s 2n) that maps such pairs, of all directions, to Re(C h)."""
    pairs = torch.stack([C.real, -C.imag], -1)
    return pairs.transpose(0, 1).flatten(1)


def to_complex(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert pairs (..., 2n) to complex (..., n), in at least the precision of `dtype`."""
    wide = rows.to(torch.promote_types(rows.dtype, dtype))
    return torch.view_as_complex(wide.view(*wide.shape[:-1], -1, 2))


def start_dense(model: Classifier) -> Classifier:
    """Return the model, with its linear maps drawn anew if its config has ``dense_init: lecun``."""
    if isinstance(model.config, FlaxConfig) and model.config.dense_init == "lecun":
        restart_as_lecun(model)
    return model


def count_states(config: LinearConfig) -> int:
    """See `Family`: the layer's states divided by its channels, rounded up."""
    return math.ceil(config.state * (1 + config.bidirectional) / config.d_model)
