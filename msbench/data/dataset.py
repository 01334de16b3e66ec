"""What a dataset offers to training: its facts, its splits, its batches. Arrays in, arrays out, no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

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
        """ValueError where there is nothing to encode."""
        needed = "channels" if self.real_valued else "vocabulary"
        if getattr(self, needed) < 1:
            raise ValueError(f"a task of {self.kind} needs {needed}: a model has nothing to encode")

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

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of every example (n,), in positions; of a pair, that of the longer sequence."""

    def __len__(self) -> int: ...

    def batch(self, indices: NDArray[np.int64], pad_to: int | None = None) -> Batch:
        """The examples of these numbers, padded to `pad_to` or to the longest of them."""


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


class RaggedTokens:
    """A split of token sequences of unequal length, kept end to end in one array.

    `tokens` (total,) uint8 may be a memory map; `offsets` (n + 1,) int64 says where each example starts.
    """

    def __init__(
        self, tokens: NDArray[np.uint8], offsets: NDArray[np.int64], labels: NDArray[np.uint8]
    ) -> None:
        self.tokens, self.offsets, self.labels = tokens, offsets, labels
        self.lengths: NDArray[np.int64] = np.diff(offsets)

    def __len__(self) -> int:
        return len(self.labels)

    def example(self, index: int) -> NDArray[np.uint8]:
        """Token ids of one example, without padding."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def batch(self, indices: NDArray[np.int64], pad_to: int | None = None) -> Batch:
        """The examples of these numbers, padded on the right with 0."""
        lengths = self.lengths[indices]
        width = int(lengths.max()) if pad_to is None else pad_to
        inputs = np.zeros((len(indices), width), dtype=np.int64)
        for row, index in enumerate(indices):
            inputs[row, : lengths[row]] = self.example(index)
        return Batch(inputs, lengths, self.labels[indices].astype(np.int64))
