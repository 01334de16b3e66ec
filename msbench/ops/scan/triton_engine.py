"""The selective scan on a GPU in Triton: preparation of arguments, kernel launches, sums of partial results.

float64 falls back to PyTorch operations.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from msbench.ops.gpu.launch import load_kernels, use_device_of
from msbench.ops.scan import torch_engine, triton_shape
from msbench.ops.scan.reference import Arguments, apply_each, space_rows
from msbench.ops.scan.triton_shape import (
    PLACES,
    SCHEDULERS,
    BackwardShape,
    ForwardShape,
    ScanSizes,
    choose_backward_shape,
    choose_forward_shape,
    make_packing_shape,
)

FORWARD = "msbench.ops.scan.triton_forward_kernels"
BACKWARD = "msbench.ops.scan.triton_backward_kernels"
PACKING = "msbench.ops.gpu.scan_packing_kernels"
AHEAD = 4
"""Steps after the last one of which the kernels load B and C, without using them."""
PARTS = 32 * 2**20
"""Bytes of partial gradients of B and C per launch of the backward: they stay in 50 MB of L2 until summed."""


class TritonScanEngine:
    """See `msbench.ops.scan.torch_engine.TorchScanEngine`; the state before every `every` steps is kept.

    Results are bit-equal in every run: all sums have a fixed order, and blocks depend on sizes alone.
    """

    def __init__(self, every: int = triton_shape.EVERY, schedulers: int = SCHEDULERS) -> None:
        self.every, self.schedulers = every, schedulers

    def forward(self, arguments: Arguments, *, scaled: bool, keep: bool) -> tuple[Tensor, Tensor]:
        """See `msbench.ops.scan.torch_engine.TorchScanEngine`."""
        if arguments[0].dtype == torch.float64:
            return torch_engine.ENGINE.forward(arguments, scaled=scaled, keep=keep)
        tensors = arrange_rows(arguments)
        u, dt, A, _, _, skip, mix = tensors
        b, length, _, d = u.shape
        shape = choose_forward_shape(self._problem(tensors, scaled), keep=keep)
        y = A.new_empty(b, length, shape.M, d)
        kept = A.new_empty(self.kept_shape(u, A) if keep else 0)
        with use_device_of(u):
            ready = u, dt, A, pack_pairs(tensors, shape), u if skip is None else skip
            load_kernels(FORWARD).scan_forward[(b * shape.M * shape.BLOCKS,)](
                *(*ready, u if mix is None else mix, y, kept),
                *(length, 0 if mix is None else mix.stride(2), 1, shape),
                num_warps=1,
                maxnreg=shape.limit_registers(),
            )
        if mix is not None:
            return (y.squeeze(2) if shape.M == 1 else y.sum(2)), kept
        return sum_groups(y, shape.GROUPS), kept

    def backward(self, arguments: Arguments, kept: Tensor, gy: Tensor, *, scaled: bool) -> Arguments:
        """See `msbench.ops.scan.torch_engine.TorchScanEngine`."""
        if arguments[0].dtype == torch.float64:
            return torch_engine.ENGINE.backward(arguments, kept, gy, scaled=scaled)
        u, dt, A, B, C, skip, mix = self.find_gradients(arguments, kept, gy, scaled=scaled)
        return u, sum_groups(dt, dt.shape[2] // u.shape[2]), A, B, C, skip, mix

    def find_gradients(self, arguments: Arguments, kept: Tensor, gy: Tensor, *, scaled: bool) -> Arguments:
        """Return the gradients, each in the dtype of its argument; that of dt by groups, (b, l, M, d)."""
        tensors = arrange_rows(arguments)
        shape = choose_backward_shape(self._problem(tensors, scaled))
        with use_device_of(gy):
            return PartialGradients(tensors, shape).compute(kept.contiguous(), gy.contiguous())

    def kept_shape(self, u: Tensor, A: Tensor) -> tuple[int, ...]:
        """Return the shape of the kept states: one per `every` steps, channels last, groups zero-padded."""
        if u.dtype == torch.float64:
            return torch_engine.ENGINE.kept_shape(u, A)
        m, d, n = A.shape
        parts = triton_shape.count_groups(n)
        return (u.shape[0], -(-u.shape[1] // self.every), m * parts, -(-n // parts), d)

    def _problem(self, tensors: Arguments, scaled: bool) -> ScanSizes:
        u, _, A, _, _, skip, mix = tensors
        b, _, m, d = u.shape
        return ScanSizes(
            b, m, d, A.shape[2], mix is not None, skip is not None, scaled, self.every, self.schedulers
        )


ENGINE = TritonScanEngine()


class Launch(NamedTuple):
    """Examples and spans of one launch of the backward: the first, and the number or the last."""

    example: int
    examples: int
    first: int
    last: int


class PartialGradients:
    """The partial gradients, one per program, summed in a fixed order: those of B and C after each launch."""

    def __init__(self, tensors: Arguments, shape: BackwardShape) -> None:
        u, dt, A, B, C, skip, mix = tensors
        b, length, _, d = u.shape
        self.tensors, self.shape, self.words = tensors, shape, pack_pairs(tensors, shape)
        self.u, self.dt = (x.new_empty(b, length, shape.M, d) for x in (u, dt))
        self.states, self.A = A.new_empty(b, shape.M, shape.N, d), A.new_empty(b, *A.shape)
        self.skip = None if skip is None else skip.new_empty(b, *skip.shape)
        self.B, self.C = (x.new_empty(x.shape) for x in (B, C))
        self.mix = None if mix is None else mix.new_empty(mix.shape)
        self.packing = make_packing_shape(shape)

    def compute(self, kept: Tensor, gy: Tensor) -> Arguments:
        """Return all gradients."""
        for launch in self.list_launches():
            self.run(launch, kept, gy)
        u, skip = sum_groups(self.u, self.shape.GROUPS), None if self.skip is None else self.skip.sum(0)
        return u, self.dt, self.A.sum(0), self.B, self.C, skip, self.mix

    def list_launches(self) -> Iterator[Launch]:
        """Yield the launches of the backward, each example's from its end.

        The parts of a launch have at most `PARTS` bytes. If not even one span of all examples fits, examples
        are cut too, into numbers that occupy the GPU for few rounds of programs.
        """
        b, length = self.tensors[0].shape[:2]
        spans = -(-length // self.shape.EVERY)
        most = PARTS // (self.packing.count_part_bytes() * min(length, self.shape.EVERY))
        examples = b if most >= b else choose_examples(self.shape, max(1, most), b)
        count = max(1, most // examples)
        for example in range(0, b, examples):
            for last in range(spans - 1, -1, -count):
                yield Launch(example, min(examples, b - example), max(0, last - count + 1), last)

    def run(self, launch: Launch, kept: Tensor, gy: Tensor) -> None:
        """Compute the gradients at some spans of some examples; those of A and skip and of states go on."""
        u, dt, A, _, C, skip, mix = self.tensors
        shape, packing, length = self.shape, self.packing, u.shape[1]
        first_step = launch.first * shape.EVERY
        steps = min((launch.last + 1) * shape.EVERY, length) - first_step
        programs = launch.examples * shape.M * shape.BLOCKS
        parts = A.new_empty(launch.examples * steps * packing.count_part_bytes() // 8, dtype=torch.int64)
        saved = A.new_empty(programs, shape.SLOTS * shape.KN * shape.K * 32)
        load_kernels(BACKWARD).scan_backward[(programs,)](
            *(u, dt, A, self.words, u if skip is None else skip, u if mix is None else mix, kept, gy, saved),
            *(self.states, self.u, self.dt, self.A, parts, u if self.skip is None else self.skip),
            *(length, 0 if mix is None else mix.stride(2)),
            *(launch.example, launch.first, launch.last, 1, shape),
            num_warps=1,
            maxnreg=shape.limit_registers(read_capability(u.device)),
        )
        load_kernels(PACKING).sum_parts[(-(-launch.examples * steps * packing.M // packing.ROWS),)](
            *(
                parts.view(torch.float32),
                C,
                C if mix is None else mix,
                self.B,
                self.C,
                self.C if self.mix is None else self.mix,
            ),
            *(launch.examples, steps, length, launch.example, first_step),
            *(C.stride(2), 0 if mix is None else mix.stride(2), packing),
        )


def read_capability(device: torch.device) -> tuple[int, int]:
    """Return a GPU's compute capability; an H100's where kernels are interpreted."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (9, 0)


def sum_groups(x: Tensor, groups: int) -> Tensor:
    """Return x (b, l, m groups, d) summed over the groups of a stream."""
    return x if groups == 1 else x.view(*x.shape[:2], -1, groups, x.shape[3]).sum(3)


def choose_examples(shape: BackwardShape, most: int, b: int) -> int:
    """Return the number of examples of a launch, at most `most`, for the fewest rounds of programs."""
    programs = shape.M * shape.BLOCKS

    def count_rounds(examples: int) -> tuple[int, int]:
        rounds = -(-examples * programs // PLACES) * (b // examples)
        return rounds + -(-(b % examples) * programs // PLACES), -examples

    return min(range(-(-most // 2), most + 1), key=count_rounds)


def pack_pairs(tensors: Arguments, shape: ForwardShape | BackwardShape) -> Tensor:
    """Return B and C, weighted by the mixer, as halves of 64-bit words (rows, groups, pairs).

    They are padded with zeros; so is each example to a multiple of 4 rows, and AHEAD rows follow the last.
    """
    _, _, _, B, C, _, mix = tensors
    packing = make_packing_shape(shape)
    b, length = B.shape[:2]
    rows, count = B.shape[:3].numel(), (b * 4 * -(-length // 4) + AHEAD) * shape.M
    words = torch.empty(count, packing.WIDTH, dtype=torch.int64, device=B.device)
    load_kernels(PACKING).pack_pairs[(-(-count // packing.ROWS),)](
        *(B, C, C if mix is None else mix, words, length, rows, count),
        *(B.stride(2), C.stride(2), 0 if mix is None else mix.stride(2), packing),
    )
    return words


def arrange_rows(arguments: Arguments) -> Arguments:
    """Return the arguments as the kernels read them: B, C and mix may be slices of a projection's rows."""
    u, dt, A, B, C, skip, mix = arguments
    whole = apply_each(Tensor.contiguous, (u, dt, A, skip))
    return *whole[:3], space_rows(B), space_rows(C), whole[3], None if mix is None else space_rows(mix)
