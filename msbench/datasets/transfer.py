"""HTTP download into a ``.part`` file, resumed where it ended, never joined with bytes of another file.

Next to the part, ``<name>.part.json`` records the version of the file: the server's ETag or Last-Modified,
which the next request sends back as If-Range, and the size. A server that then has another version, or does
not support ranges, sends all from the start, and the part begins anew.
"""

import itertools
import json
import os
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from email.message import Message
from pathlib import Path

from msbench.datasets.disk import shortage
from msbench.datasets.file_kinds import HEAD, is_kind, is_web_page, title
from msbench.datasets.http_feed import Answer, Fault, HttpResponse, Passing, incomplete
from msbench.datasets.progress import Progress

GAIN = 2**20
"""New bytes that make an attempt count as a success, after which the count of failed ones starts anew."""


@dataclass(frozen=True)
class Patience:
    """Timeout and retries of a download.

    `timeout` is the longest time in seconds without a byte; after a failed attempt there is a pause of
    `pause` seconds, doubled after each further one; after `attempts` failures in a row there is an error.
    """

    timeout: float = 30.0
    pause: float = 1.0
    attempts: int = 5


@dataclass(frozen=True)
class Wish:
    """Description of a download: its URL, its size in bytes if known, and the format of its first bytes.

    `certain` is True if a digest will verify the result: then bytes of a server that does not state their
    version may follow those received earlier.
    """

    url: str
    size: int | None
    kind: str
    certain: bool


@dataclass(frozen=True)
class Version:
    """File and version that a part belongs to; `total` is 0 where the server did not state it."""

    url: str
    validator: str
    total: int


def receive(wish: Wish, part: Path, progress: Progress, patience: Patience) -> bool:
    """Write the whole file into `part`; return True if its bytes came in more than one attempt.

    Raises Fault; received bytes are kept, and the next call resumes after them.
    """
    pieced, failed, furthest = False, 0, 0
    while True:
        pieced = pieced or _usable(wish, part) > 0
        try:
            _attempt(wish, part, progress, patience)
            return pieced
        except Passing as fault:
            reached = part.stat().st_size if part.exists() else 0
            failed = 1 if reached >= furthest + GAIN else failed + 1
            furthest = max(furthest, reached)
            if failed >= patience.attempts:
                raise Fault(f"{fault} (asked {failed} times)") from None
        _wait(patience.pause * 2 ** (failed - 1), progress)


def discard(part: Path) -> None:
    """Remove a part and its version file, where present; a folder without them need not be writable."""
    for path in (part, _version_file(part)):
        if path.exists():
            path.unlink(missing_ok=True)


def _attempt(wish: Wish, part: Path, progress: Progress, patience: Patience) -> None:
    offset = _usable(wish, part)
    version = _read_version(part)
    if offset and offset == (wish.size or version.total):
        return
    what = f"fetching {part.name.removesuffix('.part')}"
    with HttpResponse(_request(wish, offset, version), patience.timeout) as feed:
        answer = feed.answer(progress, what)
        if answer.status == 416 or (answer.status == 206 and not _continues(answer, offset, version)):
            discard(part)
            raise Passing("the server sent another part of the file than it was asked for")
        _refuse_status(answer)
        total = _total(answer, offset)
        if answer.status != 206:
            offset = 0
        done = _write(wish, answer, feed.chunks(progress, what, offset, total), part, offset, total)
    expected = total or wish.size or done
    if done < expected:
        raise Passing(f"{incomplete(done, expected)}: the connection ended")


def _usable(wish: Wish, part: Path) -> int:
    """Return the number of bytes of the part after which the download can resume."""
    version = _read_version(part)
    known = version.url == wish.url and (version.validator or wish.certain)
    size = part.stat().st_size if part.exists() else 0
    limit = wish.size or version.total
    return size if known and (not limit or size <= limit) else 0


def _request(wish: Wish, offset: int, version: Version) -> urllib.request.Request:
    headers = {"User-Agent": "msbench", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if version.validator:
            headers["If-Range"] = version.validator
    return urllib.request.Request(wish.url, headers=headers)


def _continues(answer: Answer, offset: int, version: Version) -> bool:
    """Return True if a partial answer begins at `offset` and is, as far as it states, of the same version."""
    if not answer.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
        return False
    now = _validator(answer.headers)
    same_total = not version.total or _total(answer, offset) in (0, version.total)
    return same_total and (not now or not version.validator or now == version.validator)


def _refuse_status(answer: Answer) -> None:
    status = answer.status
    if status in (200, 206):
        return
    if status in (404, 410):
        raise Fault(f"the server has no such file (HTTP {status})")
    if status in (401, 403):
        raise Fault(f"the server refuses it (HTTP {status})")
    if status == 429 or status >= 500:
        raise Passing(f"the server is busy or broken (HTTP {status} {answer.reason})")
    raise Fault(f"the server answers HTTP {status} {answer.reason}")


def _total(answer: Answer, offset: int) -> int:
    """Return the size of the whole file, or 0 where the server does not state it."""
    if answer.status == 206:
        total = answer.headers.get("Content-Range", "").rpartition("/")[2]
        if total.isdecimal():
            return int(total)
    length = answer.headers.get("Content-Length", "")
    return int(length) + (offset if answer.status == 206 else 0) if length.isdecimal() else 0


def _validator(headers: Message) -> str:
    etag = headers.get("ETag", "")
    # a weak ETag promises equivalent versions, not equal bytes
    return etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")


def _write(wish: Wish, answer: Answer, chunks: Iterator[bytes], part: Path, offset: int, total: int) -> int:
    """Write the received bytes; return the size of the part."""
    if offset == 0:
        chunks = _with_right_head(wish, answer, chunks)
    if wish.size is not None and total and (wrong := wrong_size(total, wish.size)):
        raise Fault(f"the server's file {wrong}")
    if lacking := shortage(part.parent, total - offset):
        raise Fault(lacking)
    try:
        with part.open("ab" if offset else "wb") as stream:
            if offset == 0:
                version = Version(wish.url, _validator(answer.headers), total)
                _version_file(part).write_text(json.dumps(asdict(version)), encoding="utf-8")
            for chunk in chunks:
                offset += stream.write(chunk)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise Fault(f"{part} cannot be written: {error.strerror}") from None
    return offset


def _with_right_head(wish: Wish, answer: Answer, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Return the same bytes, after checking the first. Raises Fault where they are of another file kind."""
    head = b""
    while len(head) < HEAD and (chunk := next(chunks, b"")):
        head += chunk
    if not head:
        raise Passing("the server sent nothing")
    if not is_kind(head, wish.kind):
        page = is_web_page(head) or answer.headers.get("Content-Type", "").startswith("text/html")
        raise Fault(wrong_kind(head, wish.kind, "the server sent", page=page))
    return itertools.chain((head,), chunks)


def wrong_size(size: int, published: int) -> str:
    """Describe a file of another size than was published; return an empty string for equal sizes."""
    if size == published:
        return ""
    if size < published:
        return f"is {incomplete(size, published)}"
    return f"has {size:,} bytes, the published one {published:,}: it is not what was published"


def wrong_kind(head: bytes, kind: str, prefix: str, *, page: bool) -> str:
    """Describe a file that does not begin as a `kind`."""
    name = f" ({title(head)})" if title(head) else ""
    return f"{prefix} {f'a web page{name}' if page else 'something'} that is no {kind} file"


def _wait(seconds: float, progress: Progress) -> None:
    """Sleep, but let `progress` stop it."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        progress("waiting to ask the server again", 0, 1)
        time.sleep(min(left, 1.0))


def _version_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_version(part: Path) -> Version:
    """Read the version of the part; return an empty one where it was not written completely."""
    try:
        values = json.loads(_version_file(part).read_bytes())
        return Version(str(values["url"]), str(values["validator"]), int(values["total"]))
    # Any other OSError ends the download: else hours of it would start again from the first byte.
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return Version("", "", 0)
