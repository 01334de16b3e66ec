"""Batches: the order of examples, and their loading onto the device.

The order is a pure function of lengths, seed and epoch, so that any step can be resumed. Batches are cut from
data that the device already holds, or prepared ahead.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from msbench.datasets.dataset import Batch, CroppedSamples, RaggedPairs, RaggedTokens, Samples, Split
from msbench.training.seeding import derive_seed

Indices = NDArray[np.int64]

POOL = 50
"""Batches in a bucketing pool: enough for even lengths, few enough to stay near random order."""
AHEAD = 2
"""Batches that are prepared while one is computed: one on its way, one in reserve."""


def draw_batches(
    lengths: Indices, batch_size: int, seed: int, epoch: int, *, bucketing: bool, repeats: int = 1
) -> list[Indices]:
    """Return batches of example numbers for one epoch; each example once, the last batch may be smaller.

    With `bucketing`, pools of `POOL` shuffled batches are sorted by length, cut into batches and shuffled
    again, so that a batch holds similar lengths while the order stays random. With `repeats` an epoch has so
    many of each of fewer examples, of one length all; those of an example are in one batch, or two in a row.
    """
    generator = np.random.default_rng([derive_seed(seed, "order"), epoch])
    order = generator.permutation(len(lengths)).astype(np.int64)
    if repeats > 1:
        first = order[: count_batches(len(order), repeats)]
        repeated = (first[:, None] + len(order) * np.arange(repeats)).reshape(-1)[: len(order)]
        # Not next to each other, where they would be mixed.
        batches = _cut_order(repeated, batch_size)
        return [batch[np.argsort(batch // len(order), kind="stable")] for batch in batches]
    if not bucketing:
        return _cut_order(order, batch_size)
    batches = [
        batch
        for pool in _cut_order(order, batch_size * POOL)
        for batch in _cut_order(pool[np.argsort(lengths[pool], kind="stable")], batch_size)
    ]
    return [batches[index] for index in generator.permutation(len(batches))]


def sort_into_batches(lengths: Indices, batch_size: int) -> list[Indices]:
    """Return batches for evaluation: all examples, longest first, so that a lack of memory shows at once."""
    return _cut_order(np.argsort(-lengths, kind="stable").astype(np.int64), batch_size)


def count_batches(examples: int, batch_size: int) -> int:
    """Return the number of batches in an epoch, the last small one included."""
    return -(-examples // batch_size)


def _cut_order(order: Indices, size: int) -> list[Indices]:
    return [order[start : start + size] for start in range(0, len(order), size)]


@dataclass(frozen=True)
class DeviceBatch:
    """A batch on the device, in the shapes of `Batch`; `tokens` are its positions without padding."""

    inputs: Tensor
    lengths: Tensor
    labels: Tensor
    tokens: int
    positions: int
    targets: Tensor | None = None
    """Shares of each label (b, classes) of an example that is mixed with another; else None."""


CutBatch = Callable[[Indices, int | None], DeviceBatch]


class BatchLoader:
    """Batches of one split on one device.

    A split of at most `room` bytes is kept on the device as it is stored, bytes or half the width of floats,
    and its batches are made there. Otherwise batches are made here, ahead of need if that runs in parallel to
    the device's own work or takes long (`Split.slow`). All ways give the same numbers.
    """

    def __init__(self, split: Split, device: torch.device, room: int = 0) -> None:
        self.split, self.device = split, device
        kept = make_resident(split, device, room)
        self.resident_bytes = kept.bytes if kept is not None else 0
        self._cut: CutBatch = kept or self._prepare
        at_once = kept is not None or (device.type == "cpu" and not split.slow)
        self._ahead = 0 if at_once else AHEAD
        # Of its own, so that copies run beside the work of the default stream.
        own = device.type == "cuda" and self._ahead > 0
        self._stream = torch.cuda.Stream(device) if own else None  # type: ignore[no-untyped-call]

    def turn_to(self, split: Split) -> bool:
        """Serve another epoch of the same split from what is on the device; return False if it cannot."""
        if split is not self.split:
            if not isinstance(self._cut, _ResidentSamples) or not self._cut.holds(split):
                return False
            self.split = self._cut.split = split
        return True

    def batches(
        self, chosen: Sequence[Indices], pad_to: int | Sequence[int | None] | None = None
    ) -> Iterator[DeviceBatch]:
        """Yield the batches of these example numbers, in order; `pad_to` is one for all, or one for each."""
        wanted = zip(chosen, pad_to if isinstance(pad_to, Sequence) else [pad_to] * len(chosen), strict=True)
        if not self._ahead:
            yield from (self._cut(indices, width) for indices, width in wanted)
            return
        # One thread: batches come in the order in which they are requested.
        with ThreadPoolExecutor(1, "batches") as thread:
            waiting: deque[Future[tuple[DeviceBatch, torch.cuda.Event | None]]] = deque()
            try:
                for indices, width in wanted:
                    waiting.append(thread.submit(self._cut_ahead, indices, width))
                    if len(waiting) > self._ahead:
                        yield _receive(*waiting.popleft().result())
                while waiting:
                    yield _receive(*waiting.popleft().result())
            finally:
                for future in waiting:
                    future.cancel()

    def _prepare(self, indices: Indices, pad_to: int | None) -> DeviceBatch:
        batch = self.split.batch(indices, pad_to)
        return send_batch(batch, self.device)

    def _cut_ahead(self, indices: Indices, pad_to: int | None) -> tuple[DeviceBatch, torch.cuda.Event | None]:
        """Return a batch, and the event of its arrival on a GPU."""
        # Not `stream(None)`: it would start CUDA for a run on the CPU.
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            batch = self._cut(indices, pad_to)
            return batch, None if self._stream is None else self._stream.record_event()


def _receive(batch: DeviceBatch, arrived: torch.cuda.Event | None) -> DeviceBatch:
    """Return a batch for work that is launched from now on, which waits on the device for its arrival."""
    if arrived is not None:
        stream = torch.cuda.current_stream(batch.inputs.device)
        stream.wait_event(arrived)
        for tensor in (batch.inputs, batch.lengths, batch.labels, batch.targets):
            if tensor is not None:
                tensor.record_stream(stream)  # its memory was allocated for the stream of the copy
    return batch


def split_batch(batch: DeviceBatch, size: int | None) -> Iterator[DeviceBatch]:
    """Yield the batch, or pieces of it of at most `size` examples, padded as the batch is."""
    examples = len(batch.labels)
    if size is None or size >= examples:
        yield batch
        return
    for start in range(0, examples, size):
        inputs, lengths, labels = (
            tensor[start : start + size] for tensor in (batch.inputs, batch.lengths, batch.labels)
        )
        targets = None if batch.targets is None else batch.targets[start : start + size]
        # Tokens are counted for the whole batch: reading those of a piece would wait for the device.
        tokens = batch.tokens if start == 0 else 0
        positions = batch.positions // examples * len(labels)
        yield DeviceBatch(inputs, lengths, labels, tokens, positions, targets)


def send_batch(batch: Batch, device: torch.device) -> DeviceBatch:
    """Copy a batch to the device."""
    tensors = [torch.from_numpy(array) for array in (batch.inputs, batch.lengths, batch.labels)]
    if device.type == "cuda":  # from pinned memory this thread need not wait for the copy
        tensors = [tensor.pin_memory() for tensor in tensors]
    inputs, lengths, labels = (tensor.to(device, non_blocking=True) for tensor in tensors)
    return DeviceBatch(inputs, lengths, labels, int(batch.lengths.sum()), batch.positions)


def make_resident(
    split: Split, device: torch.device, room: int
) -> "_ResidentSamples | _ResidentTokens | None":
    """Return a function that cuts batches from a copy of the split on the device; None if it does not fit."""
    if not count_resident_bytes(split, room):
        return None
    if isinstance(split, Samples):
        return _ResidentSamples(split, device)
    assert isinstance(split, RaggedTokens | RaggedPairs), "no other has a size on the device"
    return _ResidentTokens(split, device)


def count_resident_bytes(split: Split, room: int) -> int:
    """Return the bytes that a split takes if it is kept on a device: 0 if it does not fit into `room`."""
    if isinstance(split, Samples):
        size = split.bytes
    elif isinstance(split, RaggedTokens | RaggedPairs):
        size = split.tokens.nbytes
    else:
        return 0
    return size if size <= room else 0


class _ResidentSamples:
    """`Samples.batch` on the device."""

    def __init__(self, split: Samples, device: torch.device) -> None:
        self.split, self.device, self.bytes = split, device, split.bytes
        rows = slice(None) if split.rows is None else split.rows
        self.values = _copy(split.values[rows], device)
        self.labels = _copy(split.labels[rows].astype(np.int64), device)
        self.factor, self.offset = (torch.from_numpy(x).to(device) for x in (split.factor, split.offset))

    def holds(self, split: Split) -> TypeGuard[CroppedSamples]:
        """Return True for another epoch's crops of what is held."""
        mine = self.split
        return (
            isinstance(split, CroppedSamples)
            and isinstance(mine, CroppedSamples)
            and split.whole is mine.whole
        )

    def __call__(self, indices: Indices, pad_to: int | None) -> DeviceBatch:
        chosen = send_array(indices, self.device)
        values, labels = self.values, self.labels[chosen]
        if isinstance(self.split, CroppedSamples):
            starts = send_array(self.split.starts[indices], self.device).unsqueeze(-1)
            positions = starts + torch.arange(self.split.length, device=self.device)
            inputs = values[chosen[:, None, None], positions].flatten(0, 1)
            labels = labels.repeat_interleave(self.split.crops, dim=0)
        else:
            inputs = values[chosen]
        inputs = inputs.to(torch.float32).mul_(self.factor).sub_(self.offset)
        count, length = inputs.shape[:2]
        if pad_to is not None and pad_to > length:
            inputs = torch.nn.functional.pad(inputs, (0, 0, 0, pad_to - length))
        lengths = torch.full((count,), length, dtype=torch.int64, device=self.device)
        return DeviceBatch(inputs, lengths, labels, count * length, count * inputs.shape[1])


class _ResidentTokens:
    """The `batch` of `RaggedTokens` and `RaggedPairs`, on the device."""

    def __init__(self, split: RaggedTokens | RaggedPairs, device: torch.device) -> None:
        self.device, self.bytes, self.offsets = device, split.tokens.nbytes, split.offsets
        self.sides = 2 if isinstance(split, RaggedPairs) else None
        self.tokens = _copy(split.tokens, device)
        self.labels = _copy(split.labels.astype(np.int64), device)

    def __call__(self, indices: Indices, pad_to: int | None) -> DeviceBatch:
        sequences = indices if self.sides is None else indices[:, None] * self.sides + np.arange(self.sides)
        # Lengths are looked up here: reading the longest from the device would wait for all its work.
        starts = self.offsets[sequences]
        lengths = self.offsets[sequences + 1] - starts
        width = int(lengths.max()) if pad_to is None else pad_to
        on_device = send_array(lengths, self.device)
        positions = torch.arange(width, device=self.device)
        places = send_array(starts, self.device).unsqueeze(-1) + positions
        inputs = self.tokens[places.clamp_(max=len(self.tokens) - 1)].to(torch.int64)
        inputs *= positions < on_device.unsqueeze(-1)
        labels = self.labels[send_array(indices, self.device)]
        return DeviceBatch(inputs, on_device, labels, int(lengths.sum()), lengths.size * width)


def _copy(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Copy the array to the device; first here if it is a memory map, which torch does not take."""
    return torch.from_numpy(np.require(array, requirements=["W"])).to(device)


def send_array(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """Copy an array to the device; the host does not wait for a GPU."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
