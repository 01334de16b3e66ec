"""Associative recall with one query: a test of memory over a known distance, generated.

::

    key value  key value ..  key value  noise .. noise  <query>  key      label: the value of that key

The distance of an example is the number of positions from the value asked for to the last token. It is drawn
first and the asked pair independently of it; then there is as much noise as makes the distance exact. With
one pair the task is recall at a distance. The task is that of Arora et al. (2024, MQAR) with one query.

=============  ==========================================
ids            tokens
=============  ==========================================
0              ``<pad>``: right padding
1              ``<query>``: the next token is the query
from 2         values
next           keys
last           noise
=============  ==========================================

Two rules are baselines that a model must exceed, beside that of the most frequent class:

* ``most frequent of its values``: the value that most pairs of the example have; of several such values one
  at random, whose expected accuracy is stated. Without the keys and the length of the example no rule is
  better, since each pair is asked for with the same probability. From the length, a rule that knows the
  distances of the test split could tell which pair it is.
* ``value of its last pair``.

With one pair both would solve the task, so they are left out.

Data are a function of the config alone. Each split has its own stream, ``PCG64(SeedSequence(seed,
spawn_key=(i,)))``, where i is 0 for test, 1 for validation and 2 for train. They are drawn in this order, so
that the size of one changes no example of those before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from msbench.datasets import manifest
from msbench.datasets.archive_dataset import GENERATED, ArchiveDataset, DatasetBuild, DatasetDescription
from msbench.datasets.dataset import SPLITS, RaggedTokens, TaskInfo, score_majority_rule
from msbench.datasets.manifest import Arrays
from msbench.errors import DataError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import RecallConfig

VERSION = 1
QUERY, FIRST_VALUE = 1, 2
ATTEMPTS = 1_000
"""Most draws of one example that is in another split: enough even if only one in a hundred is free."""

Indices = NDArray[np.int64]


def fill(config: RecallConfig, build: DatasetBuild) -> None:
    """Generate the three splits."""
    splits, redrawn = _draw_splits(config, build)
    facts = {
        "dataset": "recall",
        "config": config.model_dump(mode="json"),
        "licence": build.licence,
        "sources": [],
        "generator": {"version": VERSION, "numpy": np.__version__, "redrawn": redrawn},
        "duplicates_kept": manifest.count_duplicates(splits.values()),
        "baselines": score_baselines(config, splits["train"], splits["test"]),
    }
    manifest.write_token_splits(build.folder, splits, facts)


def view(
    config: RecallConfig, arrays: Arrays, facts: Mapping[str, Any]
) -> tuple[TaskInfo, dict[str, RaggedTokens]]:
    """Return the facts of the task and its splits."""
    splits = {name: RaggedTokens(**arrays[name]) for name in SPLITS}
    longest = max(int(split.lengths.max()) for split in splits.values())
    return _describe_task(config, longest, facts["baselines"]), splits


def _describe_task(config: RecallConfig, longest: int, rules: Mapping[str, float]) -> TaskInfo:
    return TaskInfo(
        kind="tokens",
        vocabulary=config.vocabulary,
        classes=config.values,
        longest=longest,
        metric="accuracy",
        chance=1 / config.values,
        baselines=rules,
    )


def _draw_splits(config: RecallConfig, build: DatasetBuild) -> tuple[dict[str, RaggedTokens], int]:
    """Return the splits, which share no example, and the number of draws that this took in addition."""
    drawn: dict[str, RaggedTokens] = {}
    taken: set[bytes] = set()
    redrawn = 0
    sizes = {"test": config.test, "validation": config.validation, "train": config.train}
    build.progress("generating recall", 0, sum(sizes.values()))
    for number, (name, size) in enumerate(sizes.items()):
        sequence = np.random.SeedSequence(config.seed, spawn_key=(number,))
        rng = np.random.Generator(np.random.PCG64(sequence))
        if name == "test":
            distances = np.repeat(config.test_distances, size // len(config.test_distances))
        else:
            distances = draw_distances(config.smallest_distance, config.distance, size, rng)
        drawn[name], more = draw_split(config, distances, rng, taken)
        redrawn += more
        if name != "train":
            taken.update(drawn[name].example(index).tobytes() for index in range(size))
        build.progress("generating recall", sum(map(len, drawn.values())), sum(sizes.values()))
    return {name: drawn[name] for name in SPLITS}, redrawn


def draw_distances(low: int, high: int, count: int, rng: np.random.Generator) -> Indices:
    """Draw whole numbers (count,) from `low` to `high`, log-uniformly: d has a weight of log((d + 1) / d)."""
    drawn = low * np.exp(rng.random(count) * np.log((high + 1) / low))
    distances: Indices = drawn.astype(np.int64)
    return np.clip(distances, low, high, out=distances)  # the rounding of exp can reach high + 1


def draw_split(
    config: RecallConfig, distances: Indices, rng: np.random.Generator, taken: set[bytes]
) -> tuple[RaggedTokens, int]:
    """Draw an example at each distance (n,), none of them in `taken`; return how many were drawn anew, too.

    An example that is taken is replaced by another that asks for the same pair at the same distance. Raises
    DataError where none is found.
    """
    asked = rng.integers(config.pairs, size=len(distances))
    split = draw_examples(config, distances, asked, rng)
    repeated, redrawn = _find_taken(split, np.arange(len(split)), taken), 0
    for _ in range(ATTEMPTS):
        if not len(repeated):
            return split, redrawn
        other = draw_examples(config, distances[repeated], asked[repeated], rng)
        for number, index in enumerate(repeated):
            split.example(index)[:] = other.example(number)
        split.labels[repeated] = other.labels
        redrawn += len(repeated)
        repeated = _find_taken(split, repeated, taken)
    raise DataError(
        f"recall: too few different examples at distance {distances[repeated[0]]}: of {ATTEMPTS:,} drawn,"
        " each is in another split; raise data.keys, data.values or the distance, or ask for fewer examples"
    )


def _find_taken(split: RaggedTokens, indices: Indices, taken: set[bytes]) -> Indices:
    return np.array([each for each in indices if split.example(each).tobytes() in taken], np.int64)


def draw_examples(
    config: RecallConfig, distances: Indices, asked: Indices, rng: np.random.Generator
) -> RaggedTokens:
    """Draw examples at these distances (n,), which ask for the pairs with these numbers (n,), from 0."""
    count, pairs = len(distances), config.pairs
    first_key = FIRST_VALUE + config.values
    # Row by row a permutation of all keys, so that those of an example differ.
    keys = rng.permuted(np.tile(np.arange(config.keys, dtype=np.uint8), (count, 1)), axis=1)[:, :pairs]
    values = rng.integers(config.values, size=(count, pairs), dtype=np.uint8)
    # The value asked for is at 2 asked + 1, the query `distance` positions behind it.
    offsets = np.append(0, np.cumsum(2 * asked + 2 + distances))
    tokens = rng.integers(config.noise, size=int(offsets[-1]), dtype=np.uint8)
    tokens += np.uint8(first_key + config.keys)
    heads = offsets[:-1, None] + 2 * np.arange(pairs)
    tokens[heads] = keys + np.uint8(first_key)
    tokens[heads + 1] = values + np.uint8(FIRST_VALUE)
    tokens[offsets[1:] - 2] = QUERY
    tokens[offsets[1:] - 1] = keys[np.arange(count), asked] + np.uint8(first_key)
    return RaggedTokens(tokens, offsets, values[np.arange(count), asked])


def score_baselines(config: RecallConfig, train: RaggedTokens, test: RaggedTokens) -> dict[str, float]:
    """Return the accuracy on `test`, as a fraction, of each trivial rule."""
    rules = {"majority": score_majority_rule(train.labels, test.labels)}
    if config.pairs == 1:
        return rules
    values = test.tokens[test.offsets[:-1, None] + np.arange(1, 2 * config.pairs, 2)] - FIRST_VALUE
    right = values == test.labels[:, None]
    counts = np.count_nonzero(values[:, :, None] == values[:, None, :], axis=2)
    most = counts == counts.max(axis=1, keepdims=True)
    expected = np.count_nonzero(right & most, axis=1) / np.count_nonzero(most, axis=1)
    return {
        **rules,
        "most frequent of its values": float(expected.mean()),
        "value of its last pair": float(right[:, -1].mean()),
    }


def measure_examples(split: RaggedTokens) -> dict[str, Indices]:
    """Return the ``distance`` of every example (n,), and the number of the pair ``asked`` for, from 1."""
    starts, ends = split.offsets[:-1], split.offsets[1:]
    is_asked = split.tokens == np.repeat(split.tokens[ends - 1], split.lengths)
    places = np.flatnonzero(is_asked)
    keys = places[np.searchsorted(places, starts)] - starts
    return {"distance": split.lengths - 2 - keys, "asked": keys // 2 + 1}


RECALL: ArchiveDataset[RecallConfig] = ArchiveDataset(
    name="recall",
    version=VERSION,
    about=DatasetDescription(what="generated examples", licence=GENERATED, where="msbench setup recall"),
    fill=fill,
    view=view,
    outline=lambda config: _describe_task(config, config.longest, {}),
    describe_examples=measure_examples,
    is_generated=lambda _config: True,
)
