"""Text of Long Range Arena: 50,000 film reviews (Maas et al. 2011), positive or negative.

::

    aclImdb/{train,test}/{neg,pos}/<id>_<rating>.txt

Reviews are in the order of their labels, neg before pos, then of their ids. There is no published validation
split, and both Long Range Arena and S4 select the checkpoint on the test half. Ours is a part of the train
half: of each label the reviews whose sha256 of ``<split_seed> <label>/<id>`` is lowest.

A copy on the Hugging Face Hub has no ids. Its rows are in the order of the archive's tar, from which it was
made: in each folder by 128 ids at a time, each time from the highest to the lowest. The published texts,
sorted so, have the sha256 that is known for the Hub's rows.

Characters are counted in the whole train half, validation included, as S4 does: that reveals nothing of a
label, and gives the published 135 ids. ``train/unsup`` is ignored.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from msbench.datasets import manifest, texts
from msbench.datasets.archive import read_members
from msbench.datasets.archive_dataset import ArchiveDataset, DatasetBuild, DatasetDescription, compare_counts
from msbench.datasets.dataset import SPLITS, RaggedTokens, Split, TaskInfo, score_majority_rule
from msbench.datasets.download import RemoteFile
from msbench.datasets.hub import HubCopy, HubLayout
from msbench.datasets.manifest import Arrays
from msbench.errors import DataError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import ImdbConfig

ARCHIVE = RemoteFile(
    url="http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    name="aclImdb_v1.tar.gz",
    digest="md5:7c2ac02c03563afcf9b574c7e56c153a",
    kind="gzip",
    dataset="imdb",
)
LABELS = ("neg", "pos")
RATINGS = {"neg": range(1, 5), "pos": range(7, 11)}
"""Out of ten stars; reviews with five or six are in neither folder."""
PUBLISHED = {"train": 25_000, "test": 25_000}
CHARACTERS = 135
"""Number of token ids of the complete data at the default settings, to build a model without data."""
FOLDER = re.compile(r"(?:aclImdb/)?(train|test)/(neg|pos)/([0-9][^/]*\.txt)")
"""Files that are reviews; others, such as Thumbs.db, are not looked at."""
FILE = re.compile(r"(0|[1-9][0-9]{0,8})_([0-9]{1,2})\.txt")


class Review(NamedTuple):
    """Identifier of a review, ordered by label, then by id."""

    label: int
    number: int

    def __str__(self) -> str:
        return f"{LABELS[self.label]}/{self.number}"


HUB = HubLayout(
    name="stanfordnlp/imdb",
    column="text",
    classes=LABELS,
    digests={
        "train": ("4639bf1063fddebc3d7a446004a1032832227b0d3d28b01f58f99a4f94c0ab8a",),
        "test": ("48168f7787435514498e777646a1312897c1207d239c61acdde5e049bc3f1a3f",),
    },
)
HUB_BLOCK = 128
"""Ids that are next to each other in a folder of the tar, in descending order."""
LARGEST_REVIEW = 2**20
"""Bytes: the longest published review has fewer than 14,000 characters."""
Half = dict[Review, bytes]
"""The truncated text of each review, in order."""


def fill(config: ImdbConfig, build: DatasetBuild) -> None:
    """Write the three splits. Raises DataError naming the file that is wrong."""
    halves, truncated = read_halves(config, build)
    chosen = choose_validation(halves["train"], config.validation, config.split_seed)
    splits = {
        "train": {review: text for review, text in halves["train"].items() if review not in chosen},
        "validation": {review: halves["train"][review] for review in sorted(chosen)},
        "test": halves["test"],
    }
    counts = texts.CharacterCounts(config)
    for text in halves["train"].values():
        counts.add(text)
    vocabulary = counts.vocabulary()
    encoder = texts.TokenEncoder(config, vocabulary)
    described = {name: _save_split(config, build, name, split, encoder) for name, split in splits.items()}
    counts_of_halves = {half: len(reviews) for half, reviews in halves.items()}
    notes = compare_counts(counts_of_halves, PUBLISHED, "reviews", "the published data")
    duplicates = _count_duplicates(splits)
    in_halves = {"train": "train", "validation": "train", "test": "test"}
    counts_truncated = {
        name: len(truncated[in_halves[name]] & split.keys()) for name, split in splits.items()
    }
    facts = texts.describe_truncated(counts_truncated, config)
    build.finish(config, described, vocabulary=vocabulary, duplicates=duplicates, notes=notes, **facts)


def read_halves(config: ImdbConfig, build: DatasetBuild) -> tuple[dict[str, Half], dict[str, set[Review]]]:
    """Read both published halves, in order, and the reviews in each that had to be truncated.

    Raises DataError naming the file that is wrong.
    """
    source = build.sources[0] if build.copy is None else build.copy.where
    found: dict[str, dict[Review, tuple[str, bytes]]] = {half: {} for half in PUBLISHED}
    truncated: dict[str, set[Review]] = {half: set() for half in PUBLISHED}
    for name, text in _read_archive(build) if build.copy is None else _read_copy(build.copy):
        try:
            half, review = parse_name(name)
            if review in found[half]:
                raise ValueError(f"{found[half][review][0]} has the same id")
            if not text:
                raise ValueError("is empty")
            kept = texts.truncate_text(text, config)
            found[half][review] = name, kept
            truncated[half].update([review] if len(kept) < len(text) else [])
        except ValueError as error:
            raise DataError(f"{source}: {name}: {error}") from None
    for half, label in ((half, label) for half in PUBLISHED for label in range(len(LABELS))):
        if not any(review.label == label for review in found[half]):
            raise DataError(f"{source}: holds no aclImdb/{half}/{LABELS[label]}/ID_RATING.txt")
    halves = {half: {review: found[half][review][1] for review in sorted(found[half])} for half in PUBLISHED}
    return halves, truncated


def _read_archive(build: DatasetBuild) -> Iterator[tuple[str, bytes]]:
    def is_review(name: str) -> bool:
        return FOLDER.fullmatch(name) is not None

    return read_members(build.sources[0], is_review, build.progress, largest=LARGEST_REVIEW)


def _read_copy(copy: HubCopy) -> Iterator[tuple[str, bytes]]:
    """Yield the reviews of a copy under the names that their files have, but for the rating."""
    for half in PUBLISHED:
        total, counts = hashlib.sha256(), [0] * len(LABELS)
        rows: list[tuple[int, bytes]] = []
        for number, (text, label) in enumerate(copy.read_rows(half)):
            if not isinstance(text, str) or label not in range(len(LABELS)):
                raise copy.fault(half, number, f"is no text with the label 0 or 1, but {label}")
            if label < (rows[-1][0] if rows else 0):
                raise copy.fault(
                    half, number, "is neg after pos: the copy is sorted otherwise than on the Hub"
                )
            row = json.dumps({"label": label, "text": text}, ensure_ascii=False, separators=(",", ":"))
            total.update(f"{row}\n".encode())
            counts[label] += 1
            rows.append((label, text.encode()))
        copy.require_published(half, total.hexdigest())
        ids = [number for count in counts for number in order_as_tar(count)]
        for number, (label, content) in zip(ids, rows, strict=True):
            yield f"{half}/{LABELS[label]}/{number}_{RATINGS[LABELS[label]][0]}.txt", content


def order_as_tar(count: int) -> list[int]:
    """Return the ids 0 to `count` - 1 of a folder in the order of the published tar, and of the Hub."""
    starts = range(0, count, HUB_BLOCK)
    return [number for start in starts for number in reversed(range(start, min(start + HUB_BLOCK, count)))]


def parse_name(name: str) -> tuple[str, Review]:
    """Return half and review of a file. Raises ValueError for an invalid file name."""
    folder = FOLDER.fullmatch(name)
    file = FILE.fullmatch(folder[3]) if folder else None
    if folder is None or file is None:
        raise ValueError("is no review: those are named ID_RATING.txt")
    if int(file[2]) not in RATINGS[folder[2]]:
        allowed = RATINGS[folder[2]]
        raise ValueError(f"rating {file[2]} in {folder[2]}, which has {allowed[0]} to {allowed[-1]}")
    return folder[1], Review(LABELS.index(folder[2]), int(file[1]))


def choose_validation(reviews: Iterable[Review], fraction: float, seed: int) -> set[Review]:
    """Choose a fraction of each label's reviews, rounded. Raises DataError where that is none, or all."""
    chosen: set[Review] = set()
    pool = list(reviews)
    for label, name in enumerate(LABELS):
        drawn = sorted(
            (review for review in pool if review.label == label), key=lambda each: _hash_review(each, seed)
        )
        count = round(fraction * len(drawn))
        if not 0 < count < len(drawn):
            raise DataError(
                f"imdb: of {len(drawn)} training reviews in {name}, data.validation {fraction} takes {count}"
            )
        chosen.update(drawn[:count])
    return chosen


def _hash_review(review: Review, seed: int) -> bytes:
    return hashlib.sha256(f"{seed} {review}".encode()).digest()


def _save_split(
    config: ImdbConfig, build: DatasetBuild, name: str, split: Half, encoder: texts.TokenEncoder
) -> dict[str, Any]:
    """Write a split and return its manifest entry."""
    lengths = np.array([texts.count_tokens(text, config) for text in split.values()], np.int64)
    labels = np.array([review.label for review in split], np.uint8)
    manifest.save_array(build.folder, name, "ids", np.array([review.number for review in split], np.int32))
    named = "".join(f"{review}\n" for review in split).encode()
    return texts.save_texts(build, name, split.values(), lengths, encoder, labels, named)


def _count_duplicates(splits: Mapping[str, Half]) -> dict[str, int]:
    """Count reviews that repeat an earlier one's kept text: within each split, and of train in the others."""
    distinct = {name: set(split.values()) for name, split in splits.items()}
    within = {name: len(split) - len(distinct[name]) for name, split in splits.items()}
    of_train = {
        f"{name} in train": len(distinct[name] & distinct["train"]) for name in ("validation", "test")
    }
    return {**within, **of_train}


def view(
    config: ImdbConfig, arrays: Arrays, facts: Mapping[str, Any]
) -> tuple[TaskInfo, Mapping[str, Split]]:
    """Return the facts of the task and its splits."""
    splits = {name: _make_split(arrays[name]) for name in SPLITS}
    longest = max(int(split.lengths.max()) for split in splits.values())
    rules = {"majority": score_majority_rule(splits["train"].labels, splits["test"].labels)}
    return _describe_task(texts.count_token_ids(config, facts["vocabulary"]), longest, rules), splits


def _make_split(arrays: Mapping[str, NDArray[Any]]) -> RaggedTokens:
    return RaggedTokens(arrays["tokens"], arrays["offsets"], arrays["labels"])


def outline(config: ImdbConfig) -> TaskInfo:
    """Return the facts known without data, with the number of characters of the published data."""
    vocabulary = texts.BYTES if config.tokens == "bytes" else CHARACTERS
    return _describe_task(vocabulary, config.max_length, {})


def _describe_task(vocabulary: int, longest: int, rules: Mapping[str, float]) -> TaskInfo:
    return TaskInfo("tokens", vocabulary, len(LABELS), longest, "accuracy", 1 / len(LABELS), rules)


ABOUT = DatasetDescription(
    what="50,000 film reviews, aclImdb_v1.tar.gz (Maas et al. 2011), or the folder aclImdb that is in it",
    licence="none is stated: published for research, to be cited; msbench does not pass the reviews on",
    where="https://ai.stanford.edu/~amaas/data/sentiment/, then: msbench setup imdb --from PATH",
)

IMDB: ArchiveDataset[ImdbConfig] = ArchiveDataset(
    name="imdb", about=ABOUT, fill=fill, view=view, outline=outline, remotes=(ARCHIVE,), hub=HUB
)
