"""Interface of a dataset to training: its facts, its splits, its batches. Arrays in, arrays out, no torch."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

SPLITS = ("train", "validation", "test")
Progress = Callable[[str, int, int], None]
"""Callback of long work with the current step, the amount done and the total."""


def ignore_progress(_stage: str, _done: int, _total: int) -> None:
    """Ignore the report."""


@dataclass(frozen=True)
class TaskInfo:
    """The facts of a task that a model and a report need.

    Parameters
    ----------
    kind : kind of example: ``tokens`` a sequence of token ids, ``signal`` one of real numbers, ``patches``
        an image cut into patches in reading order (to a model, a signal whose channels are the numbers of a
        patch), ``pairs`` two sequences of token ids that are to be compared
    vocabulary : number of token ids, 0 being padding; 0 where there are none
    classes : number of labels
    longest : length of the longest sequence, in positions
    chance : value of the metric without a model
    baselines : results of trivial rules on the test split, by name, as fractions: a model at one of those
        values has learned that rule and no more
    channels : numbers of one position of a signal, or of one patch
    multi_label : True if an example may have any number of labels, each a separate decision
    patch : width of an image's patches in pixels, whose numbers are in reading order; 0 where there are none
    """

    kind: Literal["tokens", "signal", "patches", "pairs"]
    vocabulary: int
    classes: int
    longest: int
    metric: Literal["accuracy", "macro-auroc"]
    chance: float
    baselines: Mapping[str, float]
    channels: int = 0
    multi_label: bool = False
    patch: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError where there is nothing to encode, or the metric does not fit the labels."""
        needed = "channels" if self.real_valued else "vocabulary"
        if getattr(self, needed) < 1:
            raise ValueError(f"a task of {self.kind} needs {needed}: a model has nothing to encode")
        if self.metric == "macro-auroc" and not self.multi_label:
            raise ValueError("macro AUROC is that of decisions: a task with it has several labels an example")

    @property
    def real_valued(self) -> bool:
        """True where a position holds numbers, not a token."""
        return self.kind in ("signal", "patches")

    @property
    def sequences(self) -> int:
        """Number of sequences of an example."""
        return 2 if self.kind == "pairs" else 1

    @property
    def decisions(self) -> int:
        """Number of decisions per example: one class, or yes or no for each class."""
        return self.classes if self.multi_label else 1


@dataclass(frozen=True)
class Batch:
    """A batch of examples, padded on the right with 0.

    ===========================  ==================================  ==========
    kind                         inputs                              lengths
    ===========================  ==================================  ==========
    ``tokens``                   (b, l) int64                        (b,)
    ``signal``, ``patches``      (b, l, channels) float32            (b,)
    ``pairs``                    (b, 2, l) int64, one l for both     (b, 2)
    ===========================  ==================================  ==========

    `lengths` are int64. `labels` are int64 too: (b,), or with several labels (b, classes) of 0 and 1.
    """

    inputs: NDArray[np.int64] | NDArray[np.float32]
    lengths: NDArray[np.int64]
    labels: NDArray[np.int64]

    @property
    def positions(self) -> int:
        """Number of positions of all sequences, padding included."""
        return int(np.prod(self.inputs.shape[: self.lengths.ndim + 1]))


class Split(Protocol):
    """One split, addressed by example number."""

    slow: bool
    """True if making a batch takes long, as with decoded images: batches are then made ahead of need."""

    @property
    def crops(self) -> int:
        """Number of crops of each example in a batch, in order; the largest of their logits are its own."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of every example (n,), in positions; of a pair, that of the longer sequence."""

    @property
    def targets(self) -> NDArray[Any]:
        """Label of every example (n,), or with several labels (n, classes) of 0 and 1."""

    @property
    def repeats(self) -> int:
        """Times that an example is in an epoch of training, with numbers that are len(self) apart."""

    def __len__(self) -> int: ...

    def batch(self, indices: NDArray[np.int64], pad_to: int | None = None) -> Batch:
        """Return the examples with these numbers, padded to `pad_to` or to the longest of them."""

    def augmented(self, seed: int, epoch: int) -> "Split":
        """Return the split for training in this epoch: itself, where it has no randomness."""


@dataclass(frozen=True)
class Dataset:
    """A dataset that is set up and verified.

    `digest` is the sha256 of all decoded examples in order; `manifest` is the record of set-up (counts,
    lengths, sources, dropped examples and the reasons).
    """

    info: TaskInfo
    splits: Mapping[str, Split]
    digest: str
    manifest: Mapping[str, Any]


class Fixed:
    """A split that needs no computation and is the same in every epoch."""

    slow = False
    crops = repeats = 1

    def augmented(self, seed: int, epoch: int) -> Self:  # noqa: ARG002 (needed by splits with randomness)
        """Return the split itself."""
        return self


class Ragged(Fixed):
    """Token sequences of unequal length, concatenated in one array.

    `tokens` (total,) uint8 may be a memory map; `offsets` int64 holds the start of each sequence, and the end
    of the last one.
    """

    def __init__(
        self, tokens: NDArray[np.uint8], offsets: NDArray[np.int64], labels: NDArray[np.uint8]
    ) -> None:
        self.tokens, self.offsets, self.labels = tokens, offsets, labels

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def targets(self) -> NDArray[np.uint8]:
        """Label of every example (n,)."""
        return self.labels

    def padded(self, sequences: NDArray[np.int64], width: int) -> NDArray[np.int64]:
        """Return token ids (n, width) of the sequences with these numbers, padded on the right with 0."""
        inputs = np.zeros((len(sequences), width), dtype=np.int64)
        for row, number in zip(inputs, sequences, strict=True):
            start, end = self.offsets[number : number + 2]
            row[: end - start] = self.tokens[start:end]
        return inputs


class RaggedTokens(Ragged):
    """A split of token sequences; `offsets` are (n + 1,)."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of every example (n,)."""
        return np.diff(self.offsets)

    def example(self, index: int) -> NDArray[np.uint8]:
        """Return the token ids of one example, without padding."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def batch(self, indices: NDArray[np.int64], pad_to: int | None = None) -> Batch:
        """Return the examples with these numbers, padded on the right with 0."""
        lengths = self.offsets[indices + 1] - self.offsets[indices]
        inputs = self.padded(indices, int(lengths.max()) if pad_to is None else pad_to)
        return Batch(inputs, lengths, self.labels[indices].astype(np.int64))


class RaggedPairs(Ragged):
    """A split of pairs of token sequences, one after the other; `offsets` are (2 n + 1,)."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of the longer sequence of every pair (n,)."""
        longer: NDArray[np.int64] = np.diff(self.offsets).reshape(-1, 2).max(axis=1)
        return longer

    def batch(self, indices: NDArray[np.int64], pad_to: int | None = None) -> Batch:
        """Return the pairs with these numbers, both sides padded on the right with 0 to one width."""
        sides = np.stack([2 * indices, 2 * indices + 1], axis=1)
        lengths = self.offsets[sides + 1] - self.offsets[sides]
        inputs = self.padded(sides.reshape(-1), int(lengths.max()) if pad_to is None else pad_to)
        return Batch(inputs.reshape(*sides.shape, -1), lengths, self.labels[indices].astype(np.int64))


class RaggedSamples(Fixed):
    """Sequences of real numbers of unequal length, one after the other in one array.

    `values` (total, channels) are of any type and may be a memory map; `offsets` (n + 1,) int64 holds the
    start of each sequence, and the end of the last one. The input of a model is (values - shift) / scale in
    float32, both numbers or (channels,). `labels` are (n,), or (n, classes) of 0 and 1.
    """

    def __init__(
        self,
        values: NDArray[Any],
        offsets: NDArray[np.int64],
        labels: NDArray[np.uint8],
        shift: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
    ) -> None:
        self.values, self.offsets, self.labels = values, offsets, labels
        self.shift, self.scale = np.asarray(shift, np.float64), np.asarray(scale, np.float64)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of every example (n,)."""
        return np.diff(self.offsets)

    @property
    def targets(self) -> NDArray[np.uint8]:
        """Label of every example (n,) or (n, classes)."""
        return self.labels

    def batch(self, indices: NDArray[np.int64], pad_to: int | None = None) -> Batch:
        """Return the examples with these numbers, padded on the right with 0."""
        lengths = self.offsets[indices + 1] - self.offsets[indices]
        width = int(lengths.max()) if pad_to is None else pad_to
        inputs = np.zeros((len(indices), width, self.values.shape[1]), np.float32)
        for row, number, length in zip(inputs, indices, lengths, strict=True):
            start = self.offsets[number]
            row[:length] = (self.values[start : start + length] - self.shift) / self.scale
        return Batch(inputs, lengths, self.labels[indices].astype(np.int64))


class Samples(Fixed):
    """A split of equally long sequences of real numbers: a signal, or an image pixel by pixel.

    `values` (n, l, channels) are of any type and may be a memory map; the input of a model is
    (values - shift) / scale in float32, both numbers or (channels,). `labels` are (n,), or (n, classes) of 0
    and 1. With `rows` the split has only the examples with these numbers, in this order.
    """

    def __init__(
        self,
        values: NDArray[Any],
        labels: NDArray[np.uint8] | NDArray[np.uint16],
        shift: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        rows: NDArray[np.int64] | None = None,
    ) -> None:
        self.values, self.labels, self.rows = values, labels, rows
        self.shift, self.scale = np.asarray(shift, np.float64), np.asarray(scale, np.float64)
        # Computed in float64 and rounded once, so that a mean multiplied by a gain is not rounded twice.
        self.factor = self._spread(1 / self.scale)
        self.offset = self._spread(self.shift / self.scale)

    def _spread(self, numbers: NDArray[np.float64]) -> NDArray[np.float32]:
        """Broadcast numbers, one a channel, to (l, channels): NumPy's inner loop is else one position."""
        shape = (self.length, *self.values.shape[2:]) if numbers.ndim else ()
        return np.ascontiguousarray(np.broadcast_to(numbers, shape), np.float32).reshape(shape)

    def __len__(self) -> int:
        return len(self.labels if self.rows is None else self.rows)

    @property
    def length(self) -> int:
        """Number of positions of a sequence."""
        return int(self.values.shape[1])

    @property
    def bytes(self) -> int:
        """Bytes of the values of this split alone."""
        return len(self) * int(np.prod(self.values.shape[1:])) * self.values.itemsize

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The common length, for every example (n,)."""
        return np.full(len(self), self.length, np.int64)

    @property
    def targets(self) -> NDArray[np.uint8] | NDArray[np.uint16]:
        """Label of every example (n,) or (n, classes)."""
        return self.labels if self.rows is None else self.labels[self.rows]

    def batch(self, indices: NDArray[np.int64], pad_to: int | None = None) -> Batch:
        """Return the examples with these numbers; 0 beyond their length, up to `pad_to`."""
        inputs, labels = self.select(indices)
        inputs = inputs.astype(np.float32)
        inputs *= self.factor
        inputs -= self.offset
        count, length = inputs.shape[:2]
        if pad_to is not None and pad_to > length:
            inputs = np.pad(inputs, ((0, 0), (0, pad_to - length), (0, 0)))
        return Batch(inputs, np.full(count, length, np.int64), labels.astype(np.int64))

    def select(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return stored values and labels of the examples with these numbers."""
        numbers = indices if self.rows is None else self.rows[indices]
        return self.values[numbers], self.labels[numbers]


class CroppedSamples(Samples):
    """Samples that a model sees in crops of `length` positions.

    In training an epoch has one crop of each example, drawn by `augmented`. Otherwise an example has all
    crops that start at a multiple of `step` and end within it, and the largest of their logits are its own.
    """

    def __init__(self, whole: Samples, length: int, step: int) -> None:
        self.whole, self._length = whole, length
        super().__init__(whole.values, whole.labels, whole.shift, whole.scale, whole.rows)
        starts = np.arange(0, whole.length - length + 1, step, dtype=np.int64)
        self.starts: NDArray[np.int64] = np.broadcast_to(starts, (len(self), len(starts)))
        """First position of every crop (n, crops)."""

    @property
    def length(self) -> int:
        """Number of positions of a crop."""
        return self._length

    @property
    def crops(self) -> int:  # type: ignore[override]
        """Number of crops of each example."""
        return int(self.starts.shape[1])

    def augmented(self, seed: int, epoch: int) -> Self:
        """Return one crop of each example, which depends on seed, epoch and number of the example alone."""
        drawn, last = copy(self), self.whole.length - self.length
        drawn.starts = np.random.default_rng([seed, epoch]).integers(last + 1, size=(len(self), 1))
        return drawn

    def select(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return values and labels of all crops of these examples, those of one example in a row."""
        numbers = indices if self.rows is None else self.rows[indices]
        positions = self.starts[indices][..., None] + np.arange(self.length)
        values = self.values[numbers[:, None, None], positions]
        return values.reshape(-1, *values.shape[2:]), np.repeat(self.labels[numbers], self.crops, axis=0)


def score_majority_rule(train: NDArray[Any], test: NDArray[Any]) -> float:
    """Return the accuracy on labels `test` (n,) of always predicting the most frequent class of `train`.

    A fraction; on ties the rule predicts the first class.
    """
    return float(np.mean(test == np.bincount(train).argmax()))
