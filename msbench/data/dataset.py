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

    `vocabulary` counts token ids (0 is padding); `longest` is the longest sequence in tokens. `baselines`
    maps the name of a trivial rule to its accuracy on the test split, as a fraction: a model at one of
    those values has learned that rule and no more.
    """

    kind: Literal["tokens"]
    vocabulary: int
    classes: int
    longest: int
    metric: Literal["accuracy"]
    chance: float
    baselines: Mapping[str, float]


@dataclass(frozen=True)
class Batch:
    """`inputs` (b, l) int64, padded on the right with 0; `lengths` (b,) and `labels` (b,) int64."""

    inputs: NDArray[np.int64]
    lengths: NDArray[np.int64]
    labels: NDArray[np.int64]


class Split(Protocol):
    """One split, addressed by example number."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length in tokens of every example."""

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
