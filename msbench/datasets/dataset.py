"""What a dataset offers to training: its facts, its splits, its batches. Arrays in, arrays out, no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class TaskInfo:
    """The facts of a task that a model and a report need.

    Parameters
    ----------
    kind : what an example is: ``tokens`` a sequence of token ids, ``signal`` one of real numbers, ``patches``
        an image cut into patches in reading order (to a model, a signal with the numbers of a patch for
        channels), ``pairs`` two sequences of token ids that are to be compared
    vocabulary : how many token ids there are, 0 being padding; 0 where there are none
    classes : how many labels there are
    longest : the longest sequence, in positions
    chance : what the metric is without a model
    baselines : what trivial rules reach on the test split, by name, as fractions: a model at one of those
        values has learned that rule and no more
    channels : numbers of one position of a signal, or of one patch
    multi_label : whether any number of labels is right for an example, each a decision of its own
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

    def __post_init__(self) -> None:
        """ValueError where there is nothing to encode, or nothing that the metric could be of."""
        needed = "channels" if self.real_valued else "vocabulary"
        if getattr(self, needed) < 1:
            raise ValueError(f"a task of {self.kind} needs {needed}: a model has nothing to encode")
        if self.metric == "macro-auroc" and not self.multi_label:
            raise ValueError("macro AUROC is that of decisions: a task with it has several labels an example")

    @property
    def real_valued(self) -> bool:
        """True where a position is numbers, not a token."""
        return self.kind in ("signal", "patches")

    @property
    def sequences(self) -> int:
        """Sequences an example has."""
        return 2 if self.kind == "pairs" else 1

    @property
    def decisions(self) -> int:
        """Decisions an example asks for: which class, or of each class whether."""
        return self.classes if self.multi_label else 1


@dataclass(frozen=True)
class Batch:
    """Examples side by side, padded on the right with 0.

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
        """Positions of all sequences, padding included."""
        return int(np.prod(self.inputs.shape[: self.lengths.ndim + 1]))


class Split(Protocol):
    """One split, addressed by example number."""

    slow: bool
    """Whether a batch takes long to make, as where images are decoded: it is then made ahead of need."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of every example (n,), in positions; of a pair, that of the longer sequence."""

    @property
    def targets(self) -> NDArray[Any]:
        """Label of every example (n,), or with several labels (n, classes) of 0 and 1."""

    def __len__(self) -> int: ...

    def batch(self, indices: NDArray[np.int64], pad_to: int | None = None) -> Batch:
        """The examples of these numbers, padded to `pad_to` or to the longest of them."""

    def augmented(self, seed: int, epoch: int) -> "Split":
        """The split as it is to be trained on in this epoch: itself, where nothing about it is random."""


@dataclass(frozen=True)
class Dataset:
    """A dataset that is set up and verified.

    `digest` is the sha256 of all decoded examples in order; `manifest` is what set-up wrote down (counts,
    lengths, sources, what was dropped and why).
    """

    info: TaskInfo
    splits: Mapping[str, Split]
    digest: str
    manifest: Mapping[str, Any]


class Fixed:
    """A split that is at hand, and the same in every epoch."""

    slow = False

    def augmented(self, seed: int, epoch: int) -> Self:  # noqa: ARG002 (what a split with chance in it needs)
        """Itself."""
        return self


class Ragged(Fixed):
    """Token sequences of unequal length, kept end to end in one array.

    `tokens` (total,) uint8 may be a memory map; `offsets` int64 says where each sequence starts, and where
    the last one ends.
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
        """Token ids (n, width) of the sequences of these numbers, 0 behind each."""
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
        """Token ids of one example, without padding."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def batch(self, indices: NDArray[np.int64], pad_to: int | None = None) -> Batch:
        """The examples of these numbers, padded on the right with 0."""
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
        """The pairs of these numbers, both sides padded on the right with 0 to one width."""
        sides = np.stack([2 * indices, 2 * indices + 1], axis=1)
        lengths = self.offsets[sides + 1] - self.offsets[sides]
        inputs = self.padded(sides.reshape(-1), int(lengths.max()) if pad_to is None else pad_to)
        return Batch(inputs.reshape(*sides.shape, -1), lengths, self.labels[indices].astype(np.int64))


class Samples(Fixed):
    """A split of equally long sequences of real numbers: a signal, or an image pixel by pixel.

    `values` (n, l, channels) are of any type and may be a memory map; what a model sees is
    (values - shift) / scale in float32, both numbers or (channels,). `labels` are (n,), or (n, classes) of 0
    and 1. With `rows` the split has only the examples of these numbers, in this order.
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
        # In float64 and rounded once: a mean and a gain that were multiplied out are not rounded twice.
        self.factor = self._spread(1 / self.scale)
        self.offset = self._spread(self.shift / self.scale)

    def _spread(self, numbers: NDArray[np.float64]) -> NDArray[np.float32]:
        """Numbers, one a channel, as (l, channels): NumPy's inner loop would else be one position long."""
        shape = self.values.shape[1:] if numbers.ndim else ()
        return np.ascontiguousarray(np.broadcast_to(numbers, shape), np.float32).reshape(shape)

    def __len__(self) -> int:
        return len(self.labels if self.rows is None else self.rows)

    @property
    def bytes(self) -> int:
        """What the values of the split alone take."""
        return len(self) * int(np.prod(self.values.shape[1:])) * self.values.itemsize

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The one length, for every example (n,)."""
        return np.full(len(self), self.values.shape[1], np.int64)

    @property
    def targets(self) -> NDArray[np.uint8] | NDArray[np.uint16]:
        """Label of every example (n,) or (n, classes)."""
        return self.labels if self.rows is None else self.labels[self.rows]

    def batch(self, indices: NDArray[np.int64], pad_to: int | None = None) -> Batch:
        """The examples of these numbers; 0 beyond their length, up to `pad_to`."""
        numbers = indices if self.rows is None else self.rows[indices]
        inputs = self.values[numbers].astype(np.float32)
        inputs *= self.factor
        inputs -= self.offset
        length = inputs.shape[1]
        if pad_to is not None and pad_to > length:
            inputs = np.pad(inputs, ((0, 0), (0, pad_to - length), (0, 0)))
        lengths = np.full(len(indices), length, np.int64)
        return Batch(inputs, lengths, self.labels[numbers].astype(np.int64))
