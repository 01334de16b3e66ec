"""HiPPO-RNN, UR-GRU and the Lipschitz RNN: a loop over positions, with neither norms nor residuals.

===============  ==================  =====================================================================
code             paper               meaning
===============  ==================  =====================================================================
``h``            h                   state and output of a cell, zeros at the start
``u``            f                   HiPPO-RNN (Gu, Dao et al. 2020): the number that its memory takes in
``m``            c                   its memory: coefficients of all u so far, N = ``memory``
``legs``         -A                  matrix of HiPPO-LegS
``f, r, s``      f, r, reset gate    UR-GRU (Gu, Gulcehre et al. 2020): forget, refine and reset gates
``M_A, M_W``     M_A, M_W            LipschitzRNN (Erichson et al. 2021): what A and W are computed from
``euler_step``   epsilon             its step
===============  ==================  =====================================================================

::

    HiPPO-RNN     u_t = write(x_t, h_{t-1})
                  (2 t + legs) (m_t + m_{t-1}) = 4 t m_{t-1} + 2 B u_t      t = 1, 2, ..   m_0 = (u_0, 0, ..)
                  g_t = sigmoid(gate(x_t, m_t))                             B_n = sqrt(2 n + 1)
                  h_t = (1 - g_t) h_{t-1} + g_t tanh(hidden(x_t, m_t))
    UR-GRU        f, r, s = sigmoid(gates(x_t, h_{t-1}))                    g = (1 - 2 r) f^2 + 2 r f
                  h_t = g h_{t-1} + (1 - g) tanh(candidate(x_t, s h_{t-1}))
    LipschitzRNN  h_t = h_{t-1} + epsilon (A h_{t-1} + tanh(W h_{t-1} + input(x_t)))
                  A = (1 - beta) (M_A + M_A^T) + beta (M_A - M_A^T) - gamma I;    W likewise, of M_W

Each is published as one layer between the inputs and a linear classifier of its last state. Here inputs go
through the encoder first: for numbers one more linear map, after which a cell computes what it could before.

HiPPO-RNN: the second line is the bilinear discretisation of dm/dt = (A m + B u) / t with step 1, and the rule
of the first position is that of the authors' code, which tabulates these systems up to a longest length and
repeats the last one. Here there is no table: a triangular system is solved at each position. Weights start as
in that code: `write` Kaiming-uniform, `hidden` Xavier-normal, its parts for x and for m each by itself, and
`gate` Kaiming-normal; biases as torch's.

UR-GRU: no code of the authors is public. The biases of f and r start at b and -b with sigmoid(b) uniform in
(1 / d, 1 - 1 / d); then they are trained. Everything else starts uniform in +-1 / sqrt(d), as torch's GRU.

LipschitzRNN: the code multiplies rows by A, where the paper multiplies columns: the same with M_A transposed.
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.baselines import HippoRnnConfig, LipschitzRnnConfig, RecurrentConfig, UrGruConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import Classifier
from msbench.models.family import Family
from msbench.models.layers import require_full_precision

Weights = tuple[Tensor, ...]


class RecurrentCell(nn.Module, ABC):
    """One step of a recurrent network of width d."""

    @abstractmethod
    def prepare(self) -> Weights:
        """Return what all steps share, computed from the parameters; the first tensor has their dtype."""

    @abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """Return the part of x (..., d) in the step's linear maps: of all positions at once, (..., k)."""

    @abstractmethod
    def start(self, h: Tensor) -> Any:
        """Return the state before the first position, for h (b, d) of zeros."""

    @abstractmethod
    def step(self, part: Tensor, state: Any, weights: Weights) -> tuple[Tensor, Any]:
        """Return the output (b, d) for `part` (b, k) of `project`, and the new state."""


class SolveLegs(torch.autograd.Function):
    """y (b, N) with y (legs + 2 t I)^T = x (b, N).

    The matrix, one for each position, is built again in the backward, since all of them would need l N^2.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, legs: Tensor, t: Tensor) -> Tensor:
        ctx.save_for_backward(legs, t)
        y: Tensor = torch.linalg.solve_triangular(_shift(legs, t).mT, x, upper=True, left=False)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        return (
            torch.linalg.solve_triangular(_shift(*ctx.saved_tensors), g, upper=False, left=False),
            None,
            None,
        )


def _shift(legs: Tensor, t: Tensor) -> Tensor:
    return legs + 2 * t * torch.eye(len(legs), dtype=legs.dtype, device=legs.device)


def build_legs(like: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return -A (N, N) and B (N,) of HiPPO-LegS, with the dtype and device of a tensor."""
    n = torch.arange(size, dtype=like.dtype, device=like.device)
    b = (2 * n + 1).sqrt()
    return torch.outer(b, b).tril() - n.diag(), b


class HippoCell(RecurrentCell):
    """The step of HiPPO-RNN; its state is h, m (b, N), and t, the number of positions before this one."""

    def __init__(self, config: HippoRnnConfig) -> None:
        super().__init__()
        d, self.memory = config.d_model, config.memory_size
        self.write = nn.Linear(2 * d, 1)
        self.hidden = nn.Linear(d + self.memory, d)
        self.gate = nn.Linear(d + self.memory, d)
        nn.init.kaiming_uniform_(self.write.weight, nonlinearity="linear")
        for part in torch.split(self.hidden.weight.detach(), [d, self.memory], dim=1):
            nn.init.xavier_normal_(part)
        nn.init.kaiming_normal_(self.gate.weight, nonlinearity="linear")

    def prepare(self) -> Weights:
        """See `RecurrentCell`: w_u (d, 1), w_m (N, 2 d), -A and B."""
        w = require_full_precision(self.write.weight)
        d = w.shape[1] // 2
        w_m = torch.cat((self.hidden.weight[:, d:], self.gate.weight[:, d:]))
        return w[:, d:].mT, w_m.mT, *build_legs(w, self.memory)

    def project(self, x: Tensor) -> Tensor:
        """See `RecurrentCell`: parts of u (..., 1), of the hidden state and of its gate."""
        maps, d = (self.write, self.hidden, self.gate), x.shape[-1]
        weight = torch.cat([each.weight[:, :d] for each in maps])
        return functional.linear(x, weight, torch.cat([each.bias for each in maps]))

    def start(self, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See `RecurrentCell`."""
        return h, h.new_zeros(len(h), self.memory), h.new_zeros(())

    def step(
        self, part: Tensor, state: tuple[Tensor, Tensor, Tensor], weights: Weights
    ) -> tuple[Tensor, Any]:
        """See `RecurrentCell`."""
        (h, m, t), (w_u, w_m, legs, b) = state, weights
        u = torch.addmm(part[:, :1], h, w_u)
        # At t = 0 half of B: legs^-1 B is the first unit vector, so that m is (u, 0, ..).
        right = torch.addcmul(4 * t * m, u, b * (1 + t.clamp(max=1)))
        m = SolveLegs.apply(right, legs, t) - m
        hidden, gate = torch.addmm(part[:, 1:], m, w_m).chunk(2, dim=1)
        h = torch.lerp(h, hidden.tanh(), gate.sigmoid())
        return h, (h, m, t + 1)


class UrGruCell(RecurrentCell):
    """The step of UR-GRU; its state is h."""

    def __init__(self, config: UrGruConfig) -> None:
        super().__init__()
        d = config.d_model
        self.gates = nn.Linear(2 * d, 3 * d)
        self.candidate = nn.Linear(2 * d, d)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(d**-0.5), d**-0.5)
        b = torch.logit(draw_uniform_gates(d))
        with torch.no_grad():
            self.gates.bias[: 2 * d] = torch.cat((b, -b))

    def prepare(self) -> Weights:
        """See `RecurrentCell`: the weights of h for the gates (d, 3 d) and for the candidate (d, d)."""
        gates, candidate = require_full_precision(self.gates.weight), self.candidate.weight
        d = len(candidate)
        return gates[:, d:].mT, candidate[:, d:].mT

    def project(self, x: Tensor) -> Tensor:
        """See `RecurrentCell`: parts of f, r, s and the candidate."""
        d = x.shape[-1]
        weight = torch.cat((self.gates.weight[:, :d], self.candidate.weight[:, :d]))
        return functional.linear(x, weight, torch.cat((self.gates.bias, self.candidate.bias)))

    def start(self, h: Tensor) -> Tensor:
        """See `RecurrentCell`."""
        return h

    def step(self, part: Tensor, state: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """See `RecurrentCell`."""
        h, (w_gates, w_candidate) = state, weights
        gates, candidate = torch.split(part, [3 * h.shape[1], h.shape[1]], dim=1)
        f, r, s = torch.addmm(gates, h, w_gates).sigmoid().chunk(3, dim=1)
        square = f * f
        g = torch.addcmul(square, r, f - square, value=2)
        h = torch.lerp(torch.addmm(candidate, s * h, w_candidate).tanh(), h, g)
        return h, h


def draw_uniform_gates(width: int) -> Tensor:
    """Draw values of gates (d,) uniformly from 1 / d to 1 - 1 / d, where d is at least 2."""
    margin = 1 / max(width, 2)
    return torch.empty(width).uniform_(margin, 1 - margin)


class LipschitzCell(RecurrentCell):
    """The step of the Lipschitz RNN; its state is h."""

    def __init__(self, config: LipschitzRnnConfig) -> None:
        super().__init__()
        d = config.d_model
        self.euler_step, self.beta, self.gamma = config.euler_step, config.beta, config.gamma
        self.M_A = nn.Parameter(torch.empty(d, d).normal_(std=config.init_std / d))
        self.M_W = nn.Parameter(torch.empty(d, d).normal_(std=config.init_std / d))
        self.input = nn.Linear(d, d)

    def prepare(self) -> Weights:
        """See `RecurrentCell`: (I + epsilon A^T, W^T), of shape (d, 2 d)."""
        A, W = (self._build_matrix(require_full_precision(M)) for M in (self.M_A, self.M_W))
        eye = torch.eye(len(A), dtype=A.dtype, device=A.device)
        return (torch.cat((eye + self.euler_step * A, W)).mT,)

    def _build_matrix(self, M: Tensor) -> Tensor:
        symmetric, skew = M + M.mT, M - M.mT
        damping = self.gamma * torch.eye(len(M), dtype=M.dtype, device=M.device)
        return (1 - self.beta) * symmetric + self.beta * skew - damping

    def project(self, x: Tensor) -> Tensor:
        """See `RecurrentCell`: U x + b."""
        part: Tensor = self.input(x)
        return part

    def start(self, h: Tensor) -> Tensor:
        """See `RecurrentCell`."""
        return h

    def step(self, part: Tensor, state: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
        """See `RecurrentCell`."""
        linear, inner = (state @ weights[0]).chunk(2, dim=1)
        h = torch.add(linear, (inner + part).tanh(), alpha=self.euler_step)
        return h, h


class RecurrentLoop(nn.Module):
    """A cell over a sequence, in float32, or float64 for such weights, regardless of autocast."""

    def __init__(self, cell: RecurrentCell) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """Map (b, l, d) to (b, l, d)."""
        with torch.autocast(inputs.device.type, enabled=False):
            weights = self.cell.prepare()
            x = inputs.to(weights[0].dtype)
            state, outputs = self.cell.start(torch.zeros_like(x[:, 0])), []
            for part in self.cell.project(x).unbind(1):
                h, state = self.cell.step(part, state, weights)
                outputs.append(h)
            return torch.stack(outputs, dim=1)

    def start(self, x: Tensor) -> Any:
        """See `msbench.models.layers.Recurrent`."""
        return self.cell.start(torch.zeros_like(x, dtype=next(self.parameters()).dtype))

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """See `msbench.models.layers.Recurrent`."""
        with torch.autocast(x.device.type, enabled=False):
            weights = self.cell.prepare()
            return self.cell.step(self.cell.project(x.to(weights[0].dtype)), state, weights)


def build_cell(config: RecurrentConfig) -> RecurrentCell:
    """Return the cell of a config's class."""
    if isinstance(config, HippoRnnConfig):
        return HippoCell(config)
    if isinstance(config, UrGruConfig):
        return UrGruCell(config)
    assert isinstance(config, LipschitzRnnConfig)
    return LipschitzCell(config)


def build(config: RecurrentConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: each layer a cell over the sequence, without norms and residuals."""
    layers = [[RecurrentLoop(build_cell(config))] for _ in range(config.layers)]
    return Classifier(config, info, layers, residuals=False)


def count_states(config: RecurrentConfig) -> int:
    """See `Family`: h, and of HiPPO-RNN's memory the share of a channel, rounded up."""
    return 1 + (-(-config.memory_size // config.d_model) if isinstance(config, HippoRnnConfig) else 0)


FAMILY = Family(build, count_states, loop="positions")
