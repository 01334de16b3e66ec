"""Bytes over HTTP into a ``.part`` file: gone on with where they ended, never glued to another file's.

Beside the part, ``<name>.part.json`` says of which version of which file it is: the server's ETag or
Last-Modified, which the next request sends back as If-Range, and the size. A server that then has another
version, or knows no ranges, sends all from the start, and the part begins anew.
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
"""So many new bytes make an attempt count as a success, after which the count of failed ones starts anew."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server, and how often to ask it again.

    `timeout` is how many seconds may pass without a byte; after an attempt that failed there are `pause`
    seconds, twice as many after each further one; after `attempts` that failed in a row there is an error.
    """

    timeout: float = 30.0
    pause: float = 1.0
    attempts: int = 5


@dataclass(frozen=True)
class Wish:
    """What is to be received: from where, how many bytes if known, beginning like which kind.

    `certain` says that a digest will show whether the result is right: then bytes of a server that does not
    say which version they are of may follow those that came earlier.
    """

    url: str
    size: int | None
    kind: str
    certain: bool


@dataclass(frozen=True)
class Version:
    """Which version of which file a part is of; `total` is 0 where the server did not say."""

    url: str
    validator: str
    total: int


def receive(wish: Wish, part: Path, progress: Progress, patience: Patience) -> bool:
    """Write all of the file into `part`; True where its bytes came in more than one attempt.

    Raises Fault; what came stays, and the next call goes on from its end.
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
    """Remove a part and what was known of it, where they are; asks nothing of a folder without them."""
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
    """How many bytes of the part can be gone on from."""
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
    """True where a partial answer begins at `offset` and is, as far as it says, of the same version."""
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
    """Size of the whole file, or 0 where the server does not say."""
    if answer.status == 206:
        total = answer.headers.get("Content-Range", "").rpartition("/")[2]
        if total.isdecimal():
            return int(total)
    length = answer.headers.get("Content-Length", "")
    return int(length) + (offset if answer.status == 206 else 0) if length.isdecimal() else 0


def _validator(headers: Message) -> str:
    etag = headers.get("ETag", "")
    # a weak one says that two versions mean the same, not that they have the same bytes
    return etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")


def _write(wish: Wish, answer: Answer, chunks: Iterator[bytes], part: Path, offset: int, total: int) -> int:
    """Write what comes; how many bytes the part has then."""
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
    """The same bytes, after a look at the first. Raises Fault where they are of no file of that kind."""
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
    """Words for a file of another size than was published; empty where it is the same."""
    if size == published:
        return ""
    if size < published:
        return f"is {incomplete(size, published)}"
    return f"has {size:,} bytes, the published one {published:,}: it is not what was published"


def wrong_kind(head: bytes, kind: str, prefix: str, *, page: bool) -> str:
    """Words for a file that begins as no `kind` does."""
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
    """What is known of the part; nothing where that was not written or not to its end."""
    try:
        values = json.loads(_version_file(part).read_bytes())
        return Version(str(values["url"]), str(values["validator"]), int(values["total"]))
    # Any other OSError ends the fetch: what came in hours would begin again from its first byte.
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return Version("", "", 0)
