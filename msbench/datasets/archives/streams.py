"""Forward-only decompression of files, with nothing missing and nothing after the end.

Python's own readers of xz and bzip2 ignore whatever follows the end of the data; these do not.
"""

import bz2
import io
import lzma
import zlib
from typing import BinaryIO, Protocol

from msbench.datasets.dataset import Progress

FEED = 2**15
MOST = 2**20
"""Bytes that are decompressed at once: bzip2 can make a million of one."""
REPORT_EVERY = 2**23


class Decoder(Protocol):
    """Interface shared by the decompressors of zlib, lzma and bz2."""

    @property
    def eof(self) -> bool:
        """True where the end mark was reached, and the checksum before it is right."""

    @property
    def unused_data(self) -> bytes:
        """Bytes after the end mark."""

    @property
    def needs_input(self) -> bool:
        """False while more output can be made of the input so far."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return at most `max_length` bytes of the output that `data` adds."""


class _Gzip:
    """zlib's decompressor with the `Decoder` interface: it keeps the input that zlib has not used yet."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(16 + zlib.MAX_WBITS)  # 16: with gzip's header, CRC and length

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


def _decoder(kind: str) -> Decoder:
    if kind == "gzip":
        return _Gzip()
    return lzma.LZMADecompressor(lzma.FORMAT_XZ) if kind == "xz" else bz2.BZ2Decompressor()


class Counted(io.RawIOBase):
    """File that reports to `progress` how much of it was read."""

    def __init__(self, raw: BinaryIO, what: str, size: int, progress: Progress) -> None:
        super().__init__()
        self._raw, self._what, self._size, self._progress = raw, what, max(size, 1), progress
        self._next, self._ended = REPORT_EVERY, False

    def read(self, size: int = -1) -> bytes:
        """Read from the file."""
        data = self._raw.read(size)
        if (done := self._raw.tell()) >= self._next or (not data and not self._ended):
            self._ended = not data
            self._next = done + REPORT_EVERY
            self._progress(self._what, min(done, self._size), self._size)
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        """Seek in the file."""
        return self._raw.seek(position, whence)

    def tell(self) -> int:
        """Return the position in the file."""
        return self._raw.tell()


class Decompressed:
    """Content of a gzip, xz or bzip2 file; concatenated streams are read as one, as their tools do."""

    def __init__(self, raw: Counted, kind: str) -> None:
        self._raw, self._kind = raw, kind
        self._decoder: Decoder | None = _decoder(kind)
        self._rest = b""
        self._buffer = bytearray()

    def read(self, size: int) -> bytes:
        """Return `size` bytes, or fewer at the end. Raises EOFError where the file is truncated."""
        while len(self._buffer) < size and self._fill():
            pass
        with memoryview(self._buffer) as view:  # a slice of the buffer itself would be a second copy
            data = bytes(view[:size])
        del self._buffer[:size]
        return data

    def _fill(self) -> bool:
        """Decompress a little more; return False at the end."""
        if self._decoder is not None and not self._decoder.needs_input:
            return self._decompress(self._decoder, b"")
        data = self._rest or self._raw.read(FEED)
        self._rest = b""
        if not data:
            if self._decoder is not None:
                raise EOFError("it ends before its end mark")
            return False
        if self._decoder is None:
            data = data.lstrip(b"\0")  # padding, which gzip and xz allow between streams
            if not data:
                return True
            self._decoder = _decoder(self._kind)
        return self._decompress(self._decoder, data)

    def _decompress(self, decoder: Decoder, data: bytes) -> bool:
        self._buffer += decoder.decompress(data, MOST)
        if decoder.eof:
            self._rest, self._decoder = decoder.unused_data, None
        return True
