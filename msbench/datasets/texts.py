"""Texts as token ids, a byte each, by one of two rules.

===============  =======  ==========  ===========  ===============================================
`tokens`         padding  unknown     ``<eos>``    all others
===============  =======  ==========  ===========  ===============================================
``characters``   0        1           2            3 and up: the characters of the training texts,
                                                   the most frequent first, on ties the lower
                                                   code point
``bytes``        0        none        255          the byte plus 1; UTF-8 has none above 244
===============  =======  ==========  ===========  ===============================================

Characters are counted in the truncated texts, as S4 does. Where a text is cut between the bytes of a
character, the first of them stay.
"""

from __future__ import annotations

import hashlib
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from msbench.datasets import manifest
from msbench.datasets.disk import require_space
from msbench.errors import DataError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import TextConfig
    from msbench.datasets.archive_dataset import DatasetBuild

REPORT_EVERY = 1000
UNKNOWN, EOS = 1, 2
FIRST = 3
"""The id of the most frequent character."""
BYTE_EOS = 255
BYTES = 257
"""Padding and 256 bytes: the vocabulary of Long Range Arena."""
CODES = 0x110000
"""Number of Unicode code points."""


def truncate_text(text: bytes, config: TextConfig) -> bytes:
    """Return the kept part of a UTF-8 text. Raises ValueError where it is not UTF-8."""
    decoded = text.decode()
    room = config.max_length - config.eos
    return text[:room] if config.tokens == "bytes" else decoded[:room].encode()


def describe_truncated(truncated: Mapping[str, int], config: TextConfig) -> dict[str, Any]:
    """Return the manifest fields on truncated texts, from their number by split."""
    counts = ", ".join(f"{count:,} of {split}" for split, count in truncated.items())
    remark = f"texts truncated to data.max_length {config.max_length:,}: {counts}"
    return {"truncated": dict(truncated), "remarks": [remark] if any(truncated.values()) else []}


def count_tokens(kept: bytes, config: TextConfig) -> int:
    """Return the number of tokens of the kept part of a text, ``<eos>`` included."""
    count = len(kept) if config.tokens == "bytes" or kept.isascii() else len(kept.decode())
    return count + config.eos


def count_token_ids(config: TextConfig, vocabulary: str) -> int:
    """Return the number of token ids, padding included."""
    return BYTES if config.tokens == "bytes" else FIRST + len(vocabulary)


class CharacterCounts:
    """Frequencies of all characters."""

    def __init__(self, config: TextConfig) -> None:
        self._config = config
        self._counts = np.zeros(CODES, np.int64)

    def add(self, kept: bytes) -> None:
        """Count the characters of a text, unless tokens are bytes."""
        if self._config.tokens == "bytes":
            return
        if kept.isascii():
            self._counts[:128] += np.bincount(np.frombuffer(kept, np.uint8), minlength=128)
        else:
            codes, counts = np.unique(_decode_characters(kept), return_counts=True)
            self._counts[codes] += counts

    def vocabulary(self) -> str:
        """Return the characters with an id, in its order; none for bytes. Raises DataError for too many."""
        config = self._config
        known = np.flatnonzero(self._counts >= config.min_frequency)
        if len(known) > 256 - FIRST:
            raise DataError(
                f"{config.dataset}: the training texts have {len(known):,} different characters, and a token"
                f" id has room for {256 - FIRST}: raise data.min_frequency, now {config.min_frequency}"
            )
        return "".join(map(chr, known[np.argsort(-self._counts[known], kind="stable")]))


class TokenEncoder:
    """Encoder from the kept part of a text to its token ids."""

    def __init__(self, config: TextConfig, vocabulary: str) -> None:
        self._bytes = config.tokens == "bytes"
        self._tail = bytes([BYTE_EOS if self._bytes else EOS]) if config.eos else b""
        if self._bytes:
            self._ids = np.arange(1, BYTES).astype(np.uint8)
        else:
            self._ids = np.full(CODES, UNKNOWN, np.uint8)
            self._ids[[ord(character) for character in vocabulary]] = FIRST + np.arange(len(vocabulary))

    def __call__(self, kept: bytes) -> NDArray[np.uint8]:
        """Return the token ids (l,)."""
        plain = self._bytes or kept.isascii()
        ids = self._ids[np.frombuffer(kept, np.uint8) if plain else _decode_characters(kept)]
        return np.concatenate([ids, np.frombuffer(self._tail, np.uint8)])


def _decode_characters(kept: bytes) -> NDArray[np.uint32]:
    return np.frombuffer(kept.decode().encode("utf-32-le"), "<u4")


class Spool:
    """Kept parts of many texts, on disk until the vocabulary is known; the file is deleted on closing."""

    def __init__(self, folder: Path, config: TextConfig) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (closed by `__exit__`)
        self._config = config
        self._bytes, self._lengths = array("q"), array("q")

    def add(self, kept: bytes) -> None:
        """Add one more text."""
        self._file.write(kept)
        self._bytes.append(len(kept))
        self._lengths.append(count_tokens(kept, self._config))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of tokens of each text (n,)."""
        return np.array(self._lengths, np.int64)

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        return (self._file.read(count) for count in self._bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def save_texts(
    build: DatasetBuild,
    split: str,
    kept: Iterable[bytes],
    lengths: NDArray[np.int64],
    encoder: TokenEncoder,
    labels: NDArray[np.uint8],
    names: bytes,
) -> dict[str, Any]:
    """Save texts, of `lengths` tokens (n,), as ``tokens`` and ``offsets`` of a split, and their `labels`.

    Returns its manifest entry; ``ids`` in it is a digest of `names`: those of the examples, in order.
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    manifest.save_array(build.folder, split, "offsets", offsets)
    require_space(build.folder, int(offsets[-1]), f"{split} in token ids")  # else SIGBUS on a full disk
    tokens = manifest.create_array(build.folder, split, "tokens", (int(offsets[-1]),), "uint8")
    for number, text in enumerate(kept):
        if number % REPORT_EVERY == 0:
            build.progress(f"encoding {split}", number, len(lengths))
        tokens[offsets[number] : offsets[number + 1]] = encoder(text)
    build.progress(f"encoding {split}", len(lengths), len(lengths))
    described = manifest.save_split(build.folder, split, lengths, labels=labels)
    return {**described, "ids": hashlib.sha256(names).hexdigest()}
