"""Linear recurrences on a GPU in Triton: kernel launches, and sums of partial results in a fixed order."""

from typing import Any

import torch
from torch import Tensor

from msbench.ops.gpu.launch import load_kernels, use_device_of
from msbench.ops.gpu.recurrence_shape import (
    BUSY_PROGRAMS,
    EVERY,
    SCHEDULERS,
    LinearShape,
    SystemSizes,
    choose_gradient_shape,
    choose_input_shape,
    choose_linear_shape,
    choose_output_shape,
)
from msbench.ops.operators import register_differentiable
from msbench.ops.scan.reference import make_contiguous

KERNELS = "msbench.ops.gpu.recurrence_kernels"
TABLE_SIZE = 256
"""States per program of the kernel that tabulates poles."""

System = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]
"""u (b, l, m, d) in any precision up to float32; log_decay, weight, skip and mix in float32."""


class TritonLtiEngine:
    """Constant systems of real states, `msbench.ops.lti_scan.lti_scan`; nothing is kept for the backward.

    A state takes 2 instructions per step in the forward and 7 in the backward, and all inputs, outputs and
    gradients move through memory once. Transforms of a convolution move four times the bytes.
    """

    def __init__(self, every: int = EVERY, schedulers: int = SCHEDULERS) -> None:
        self.every, self.schedulers = every, schedulers

    def describe_limit(self, tensors: System) -> str:
        """Return the reason that the system is too large for the kernels, or an empty string."""
        sizes = self._measure(tensors)
        fits = choose_output_shape(sizes) and choose_gradient_shape(sizes, of_mix=sizes.mixed)
        return "" if fits else f"{sizes.n} states in {sizes.m} streams are too many for the registers"

    def forward(self, tensors: System) -> Tensor:
        """Return the output, contiguous, in the dtype of u."""
        ready: System = make_contiguous(tensors)
        u, log_decay, weight, skip, mix = ready
        b, length, m, d = u.shape
        shape = choose_output_shape(self._measure(ready))
        assert shape is not None
        out = u.new_empty((b, length, m, d) if mix is None else (b, length, d))
        tables = self._tabulate(log_decay, weight)
        with use_device_of(u):
            load_kernels(KERNELS).run_system[(b * m // shape.STREAMS * shape.BLOCKS,)](
                u, tables, *_fill_in(u, skip, mix), out, length, 1, shape, num_warps=1
            )
        return out

    def backward(self, g: Tensor, tensors: System, *, of_mix: bool) -> System:
        """Return contiguous gradients; that of mix only with `of_mix`."""
        ready: System = make_contiguous(tensors)
        u, log_decay, weight, skip, mix = ready
        g, sizes = g.contiguous(), self._measure(ready)
        (b, length, m, d), n = u.shape, sizes.n
        inputs, others = choose_input_shape(sizes), choose_gradient_shape(sizes, of_mix=of_mix)
        assert inputs is not None
        assert others is not None
        tables, optional, g_u = (
            self._tabulate(log_decay, weight),
            _fill_in(u, skip, mix),
            u.new_empty(u.shape),
        )
        states = tables.new_empty(2, b, m, n, d)
        g_skip = tables.new_empty((b, m, d) if skip is not None else (0,))
        g_mix = tables.new_empty((b, length, m, others.BLOCKS) if of_mix else (0,))
        kernels = load_kernels(KERNELS)
        with use_device_of(u):
            kernels.run_system[(b * m * inputs.BLOCKS,)](
                g, tables, *optional, g_u, length, 1, inputs, num_warps=1
            )
            kernels.differentiate_system[(b * m * others.BLOCKS,)](
                u, g, tables, *optional, *states.unbind(0), g_skip, g_mix, length, 1, others, num_warps=1
            )
        g_decay, g_weight = (x.mT.contiguous() for x in states.sum(1).unbind(0))
        skips = g_skip.sum(0) if skip is not None else None
        return g_u, g_decay, g_weight, skips, g_mix.sum(3) if of_mix else None

    def _measure(self, tensors: System) -> SystemSizes:
        u, log_decay, _, skip, mix = tensors
        b, _, m, d = u.shape
        parts = mix is not None, skip is not None
        return SystemSizes(b, m, d, log_decay.shape[2], *parts, self.every, self.schedulers)

    def _tabulate(self, log_decay: Tensor, weight: Tensor) -> Tensor:
        """Return decays, their corrections, and weights, (3, m, n, d)."""
        m, d, n = log_decay.shape
        tables = log_decay.new_empty(3, m, n, d)
        with use_device_of(log_decay):
            load_kernels(KERNELS).tabulate_poles[(-(-m * d * n // TABLE_SIZE),)](
                log_decay, weight, tables, n, d, m * d * n, self.every, TABLE_SIZE
            )
        return tables


def _fill_in(u: Tensor, skip: Tensor | None, mix: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return tensors for arguments of a kernel that it does not read where they are None."""
    return u if skip is None else skip, u if mix is None else mix


LTI_ENGINE = TritonLtiEngine()


def gpu_system(
    u: Tensor, log_decay: Tensor, weight: Tensor, skip: Tensor | None, mix: Tensor | None, of_mix: bool
) -> Tensor:
    """Return the output of a constant system; with `of_mix` the backward has the gradient of mix too."""
    del of_mix
    return LTI_ENGINE.forward((u, log_decay, weight, skip, mix))


def fake_gpu_system(u: Tensor, *rest: Any) -> Tensor:
    """Return an empty tensor with the shape of `gpu_system`."""
    b, length, _, d = u.shape
    return u.new_empty(u.shape if rest[3] is None else (b, length, d))


def gpu_system_backward(
    g: Tensor,
    u: Tensor,
    log_decay: Tensor,
    weight: Tensor,
    skip: Tensor | None,
    mix: Tensor | None,
    of_mix: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the five tensors; that of mix is empty without `of_mix`."""
    gradients = LTI_ENGINE.backward(g, (u, log_decay, weight, skip, mix), of_mix=of_mix)
    return tuple(g.new_empty(0) if x is None else x for x in gradients)  # type: ignore[return-value]


def fake_gpu_system_backward(g: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    """Return empty tensors with the shapes of `gpu_system_backward`."""
    u, log_decay, weight, skip, mix, of_mix = rest
    like = (u, log_decay, weight, skip, mix if of_mix else None)
    return tuple(g.new_empty(0) if x is None else x.new_empty(x.shape) for x in like)


run_gpu_system = register_differentiable(
    gpu_system,
    fake_gpu_system,
    gpu_system_backward,
    outputs=("out",),
    instead="lti_scan_reference",
    fake_backward=fake_gpu_system_backward,
)


class TritonLinearEngine:
    """Single states, `msbench.ops.linear_scan.linear_scan`: a (b or 1, l or 1, d) and x (b, l, d).

    Both are float32 or both complex64. The forward reads a and x and writes h, the backward reads a, h and
    the gradient and writes two: each moves through memory once.
    """

    def __init__(self, busy: int = BUSY_PROGRAMS) -> None:
        self.busy = busy

    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        """Return h, contiguous."""
        a, x = _make_plain(a), _make_plain(x)
        h, shape = x.new_empty(x.shape), self._choose(a, x)
        with use_device_of(x):
            load_kernels(KERNELS).run_recurrence[(len(x) * shape.BLOCKS,)](
                *map(_view_words, (a, x, h)), _stride_examples(a), x.shape[1], 1, shape, num_warps=1
            )
        return h

    def backward(self, g: Tensor, a: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of a and x, contiguous, from that of h."""
        g, a, h = map(_make_plain, (g, a, h))
        b, length, d = h.shape
        shape = self._choose(a, h)
        g_a, g_x = h.new_empty(b, 1 if shape.CONSTANT else length, d), h.new_empty(h.shape)
        with use_device_of(h):
            load_kernels(KERNELS).differentiate_recurrence[(b * shape.BLOCKS,)](
                *map(_view_words, (a, h, g, g_a, g_x)), _stride_examples(a), length, 1, shape, num_warps=1
            )
        return (g_a if len(a) == b else g_a.sum(0, keepdim=True)), g_x

    def _choose(self, a: Tensor, x: Tensor) -> LinearShape:
        b, _, d = x.shape
        return choose_linear_shape(b, d, is_complex=x.is_complex(), constant=a.shape[1] == 1, busy=self.busy)


def _make_plain(x: Tensor) -> Tensor:
    """Return x contiguous, with lazy conjugates and negatives resolved."""
    return x.resolve_conj().resolve_neg().contiguous()


def _view_words(x: Tensor) -> Tensor:
    """Return complex64 numbers as words of 64 bits, others as they are."""
    return x.view(torch.int64) if x.is_complex() else x


def _stride_examples(a: Tensor) -> int:
    """Return the distance between two examples' decays: 0 if they share them."""
    return a.shape[1] * a.shape[2] if len(a) > 1 else 0


LINEAR_ENGINE = TritonLinearEngine()


def gpu_recurrence(a: Tensor, x: Tensor) -> Tensor:
    """Return the states."""
    return LINEAR_ENGINE.forward(a, x)


def fake_gpu_recurrence(a: Tensor, x: Tensor) -> Tensor:
    """Return an empty tensor with the shape of `gpu_recurrence`."""
    del a
    return x.new_empty(x.shape)


def gpu_recurrence_backward(gh: Tensor, a: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of a and x; x itself is not kept."""
    return LINEAR_ENGINE.backward(gh, a, h)


run_gpu_recurrence = register_differentiable(
    gpu_recurrence,
    fake_gpu_recurrence,
    gpu_recurrence_backward,
    outputs=("h",),
    instead="linear_scan_reference",
)
