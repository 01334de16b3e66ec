"""The selective scan in plain PyTorch operations: cache-sized blocks, states recomputed in the backward.

::

    h_t = exp(dt_t A) h_{t-1} + B_t v_t        v_t = dt_t u_t, or u_t without the step size
    y_t = <C_t, h_t> + mix_t skip u_t

Work buffers are time-major, (t, b, m, n, d) with d last: the recurrence is one fused multiply-add per step
over contiguous memory, and B, C and dt broadcast over whole rows. A buffer holds one block of examples,
channels and steps, so that it stays in cache; the states of a whole sequence never exist. The forward keeps
the state before every block of steps, from which the backward recomputes the block.

Outputs are linear in C, so the weighted sum of streams is one product with all their states: C and y have g
groups of k states, where g k = m n, and g is 1 (mixed, with C already weighted) or m.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from msbench.ops.scan.reference import Arguments

STEPS = 16
"""Steps per block, and between kept states."""
STEP_SIZE = 32_769
"""Elements per step of a block: the smallest operation that PyTorch splits among threads."""
CHANNELS = 128
"""Fewest channels of a block with many states: rows stay long enough for vector code."""
NEGLIGIBLE = 1e-30
"""Limit below which carried values become 0: subnormal numbers are many times slower."""


def prepare_inputs(arguments: Arguments) -> "ScanInputs":
    """Return the inputs with channels last in A, and C weighted by the mixer."""
    u, dt, A, B, C, skip, mix = arguments
    read = C if mix is None else (C * mix.unsqueeze(3)).flatten(2).unsqueeze(2)
    return ScanInputs(u, dt, A.mT.contiguous(), B, read, skip, None if skip is None else mix)


class ScanInputs(NamedTuple):
    """u, dt (b, l, m, d), A (m, n, d), B (b, l, m, n), C (b, l, g, k), skip (m, d), mix (b, l, m).

    `mix` weights the skips of mixed streams; both may be None. Views of some steps are time-major.
    """

    u: Tensor
    dt: Tensor
    A: Tensor
    B: Tensor
    C: Tensor
    skip: Tensor | None
    mix: Tensor | None

    def part(self, rows: slice, columns: slice) -> "ScanInputs":
        """Return the inputs of some examples and channels (views)."""
        return ScanInputs(
            self.u[rows, ..., columns],
            self.dt[rows, ..., columns],
            self.A[..., columns],
            self.B[rows],
            self.C[rows],
            None if self.skip is None else self.skip[..., columns],
            None if self.mix is None else self.mix[rows],
        )

    def spans(self) -> list["ScanInputs"]:
        """Return the inputs as successive spans of `STEPS` steps, time-major (views)."""
        u, dt, B, C = (split_steps(x) for x in (self.u, self.dt, self.B, self.C))
        mix = [None] * len(u) if self.mix is None else split_steps(self.mix)
        return [
            ScanInputs(u[i], dt[i], self.A, B[i], C[i], self.skip, mix[i])  # one span
            for i in range(len(u))
        ]


def split_steps(x: Tensor) -> list[Tensor]:
    """Return x (b, l, ...) as spans (t, b, ...) of `STEPS` steps."""
    return list(torch.split(x.transpose(0, 1), STEPS))


class StepBuffers:
    """Buffers (steps, b, m, n, d), and each of their steps as a view.

    `state` has one more step at the start: the state before the block.
    """

    def __init__(self, inputs: ScanInputs) -> None:
        b, length, m, d = inputs.u.shape
        steps, size = min(STEPS, length), (b, m, inputs.A.shape[1], d)
        self.decay, self.gradient = inputs.u.new_empty(2, steps, *size).unbind(0)
        self.state = inputs.u.new_empty(steps + 1, *size)
        self.decays, self.gradients = self.decay.unbind(0), self.gradient.unbind(0)
        self.states = self.state.unbind(0)


def cut_pieces(inputs: ScanInputs) -> Iterator[tuple[slice, slice]]:
    """Yield slices of examples and channels whose single step has about `STEP_SIZE` elements."""
    m, n, d = inputs.A.shape
    width = d if m * n * d <= 2 * STEP_SIZE else min(d, max(CHANNELS, STEP_SIZE // (m * n)))
    rows = -(-STEP_SIZE // (m * n * width))
    for row in range(0, inputs.u.shape[0], rows):
        for column in range(0, d, width):
            yield slice(row, row + rows), slice(column, column + width)


def cut_blocks(inputs: ScanInputs) -> Iterator[tuple[slice, slice, ScanInputs, StepBuffers]]:
    """Yield every piece with its inputs and buffers; pieces of one shape share buffers."""
    buffers: dict[torch.Size, StepBuffers] = {}
    for rows, columns in cut_pieces(inputs):
        part = inputs.part(rows, columns)
        if part.u.shape not in buffers:
            buffers[part.u.shape] = StepBuffers(part)
        yield rows, columns, part, buffers[part.u.shape]


def advance(block: StepBuffers, x: ScanInputs, v: Tensor) -> int:
    """Fill decays and states of one span from ``block.states[0]``; returns its number of steps."""
    steps = v.shape[0]
    torch.mul(x.dt.unsqueeze(3), x.A, out=block.decay[:steps]).exp_()
    torch.mul(x.B.unsqueeze(4), v.unsqueeze(3), out=block.state[1 : steps + 1])
    states, decays = block.states, block.decays
    for t in range(steps):
        states[t + 1].addcmul_(decays[t], states[t])
    return steps


def retreat(block: StepBuffers, x: ScanInputs, gy: Tensor, carry: Tensor) -> None:
    """Fill the gradients of a span's states, last step first; `carry` (b, m, n, d) is from the next span."""
    steps = gy.shape[0]
    grouped = block.gradient[:steps].view(*x.C.shape, -1)
    torch.mul(x.C.unsqueeze(4), gy.unsqueeze(3), out=grouped)
    gradients, decays = block.gradients, block.decays
    gradients[steps - 1].add_(carry)
    for t in range(steps - 2, -1, -1):
        gradients[t].addcmul_(decays[t + 1], gradients[t + 1])
    torch.mul(decays[0], gradients[0], out=carry)
    carry.copy_(torch.hardshrink(carry, NEGLIGIBLE))


def forward(inputs: ScanInputs, *, scaled: bool, keep: bool) -> tuple[Tensor, Tensor]:
    """Return y (b, l, g, d), and with `keep` the states before every block of steps, (blocks, b, m, n, d).

    `scaled`: the input is multiplied by its step size.
    """
    b, length, m, d = inputs.u.shape
    y = inputs.u.new_empty(b, length, inputs.C.shape[2], d)
    kept = inputs.u.new_empty(-(-length // STEPS) if keep else 0, b, m, inputs.A.shape[1], d)
    for rows, columns, part, block in cut_blocks(inputs):
        block.states[0].zero_()
        outputs = split_steps(y[rows, ..., columns])
        for index, (x, output) in enumerate(zip(part.spans(), outputs, strict=True)):
            if keep:
                kept[index, rows, ..., columns] = block.states[0]
            steps = advance(block, x, x.dt * x.u if scaled else x.u)
            output.copy_(sum_weighted(x.C, block.state[1 : steps + 1].view(*x.C.shape, -1)))
            if x.skip is not None:
                skipped = x.u * x.skip
                output.add_(
                    skipped if x.mix is None else sum_weighted(x.mix.unsqueeze(2), skipped.unsqueeze(2))
                )
            block.states[0].copy_(torch.hardshrink(block.states[steps], NEGLIGIBLE))
    return y, kept


def backward(inputs: ScanInputs, kept: Tensor, gy: Tensor, *, scaled: bool) -> ScanInputs:
    """Return the gradients of all inputs from that of y; `kept` is from `forward`."""
    u, dt, A, B, C, skip, mix = inputs
    total = ScanInputs(
        u.new_empty(u.shape),
        dt.new_empty(dt.shape),
        *(x.new_zeros(x.shape) for x in (A, B, C)),
        *(None if x is None else x.new_zeros(x.shape) for x in (skip, mix)),
    )
    for rows, columns, part, block in cut_blocks(inputs):
        carry = torch.zeros_like(block.states[0])
        before = kept[:, rows, ..., columns].unbind(0)
        outputs = split_steps(gy[rows, ..., columns])
        spans = list(zip(part.spans(), total.part(rows, columns).spans(), outputs, before, strict=True))
        for x, result, g, state in reversed(spans):
            block.states[0].copy_(state)
            v = x.dt * x.u if scaled else x.u
            advance(block, x, v)
            retreat(block, x, g, carry)
            collect(block, x, v, g, result)
            collect_input(x, g, result, scaled=scaled)
    return total


def collect(block: StepBuffers, x: ScanInputs, v: Tensor, gy: Tensor, out: ScanInputs) -> None:
    """Add one span's share to the gradients `out`, with that of v in u; overwrites the buffers."""
    steps = v.shape[0]
    decay, before, gradient = block.decay[:steps], block.state[:steps], block.gradient[:steps]
    out.C.add_(multiply_inner(block.state[1 : steps + 1].view(*x.C.shape, -1), gy))
    out.B.add_(multiply_inner(gradient, v))
    out.u.copy_(sum_weighted(x.B, gradient))
    log_decay = decay.mul_(before).mul_(gradient)
    out.dt.copy_(torch.mul(log_decay, x.A, out=gradient).sum(3))
    out.A.add_(log_decay.mul_(x.dt.unsqueeze(3)).sum((0, 1)))


def collect_input(x: ScanInputs, gy: Tensor, out: ScanInputs, *, scaled: bool) -> None:
    """Convert the gradient of v in ``out.u`` to that of u, and add the gradients through the skips."""
    if scaled:
        out.dt.addcmul_(out.u, x.u)
        out.u.mul_(x.dt)
    if x.skip is None or out.skip is None:
        return
    passed = gy
    if x.mix is not None and out.mix is not None:
        out.mix.add_(multiply_inner((x.u * x.skip).unsqueeze(2), gy).squeeze(2))
        passed = x.mix.unsqueeze(3) * gy
    out.u.addcmul_(passed, x.skip)
    out.skip.add_((passed * x.u).sum((0, 1)))


def sum_weighted(weights: Tensor, x: Tensor) -> Tensor:
    """Return the sum over k of weights (..., k) times x (..., k, d)."""
    return torch.matmul(weights.unsqueeze(-2), x).squeeze(-2)


def multiply_inner(x: Tensor, y: Tensor) -> Tensor:
    """Return the inner products of x (..., k, d) with y (..., d): (..., k)."""
    # As row times matrix: matrix times column takes the BLAS twice as long.
    return torch.matmul(y.unsqueeze(-2), x.mT).squeeze(-2)


class TorchScanEngine:
    """The scan and its gradients in PyTorch operations, for arguments of one dtype (float32 or float64)."""

    def forward(self, arguments: Arguments, *, scaled: bool, keep: bool) -> tuple[Tensor, Tensor]:
        """Return the output, contiguous, and the tensor that `backward` needs (empty unless `keep`).

        `scaled`: the input is multiplied by its step size.
        """
        y, kept = forward(prepare_inputs(arguments), scaled=scaled, keep=keep)
        return (y if arguments[6] is None else y.squeeze(2)), kept if keep else y.new_empty(0)

    def backward(self, arguments: Arguments, kept: Tensor, gy: Tensor, *, scaled: bool) -> Arguments:
        """Return contiguous gradients of all arguments from `gy`, that of the output."""
        C, mix = arguments[4], arguments[6]
        u, dt, A, B, g_read, skip, g_mix = backward(
            prepare_inputs(arguments), kept, gy if mix is None else gy.unsqueeze(2), scaled=scaled
        )
        if mix is None:
            return u, dt, A.mT.contiguous(), B, g_read, skip, None
        g_read = g_read.view_as(C)
        through_read = (g_read * C).sum(3)
        g_mix = through_read if g_mix is None else g_mix.add_(through_read)
        return u, dt, A.mT.contiguous(), B, g_read * mix.unsqueeze(3), skip, g_mix

    def kept_shape(self, u: Tensor, A: Tensor) -> tuple[int, ...]:
        """Return the shape of the states before every block of steps, channels last."""
        return (-(-u.shape[1] // STEPS), u.shape[0], *A.mT.shape)


ENGINE = TorchScanEngine()
