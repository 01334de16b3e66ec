"""Download of published files, once: a file is stored whole and as published, or not at all.

::

    <folder>/<name>             verified: its first bytes, and its digest where one is published
    <folder>/<name>.part        received so far; the next attempt resumes at its end
    <folder>/<name>.part.json   version of that file: the server's ETag or Last-Modified, and the size
    <folder>/.<name>.lock       held by the downloading process; others wait, then find the file

A resumed request sends the version as If-Range, so that bytes of two versions are never joined: a server
that has another version, or does not support ranges, sends all from the start, and the part begins anew.
The calls of a request that wait for the network run in a thread of its own, because neither a read from a
socket nor a name lookup can be interrupted: the caller's `progress` is called all the while, and may raise.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from email.message import Message
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from msbench.datasets.archive import HEAD, is_kind, is_web_page
from msbench.datasets.dataset import Progress, ignore_progress
from msbench.datasets.disk import HashCache, describe_shortage, lock_path, sync_folder
from msbench.environment import read_switch
from msbench.errors import DataError
from msbench.results.files import open_regular, parse_json, read_bytes

T = TypeVar("T")


@dataclass(frozen=True)
class RemoteFile:
    """A published file.

    `digest` is ``md5:`` or ``sha256:`` and hexadecimal digits, or None where it is not published. `kind` is
    the format that its first bytes must have: a key of `archive.MAGIC`, or ``tar``. `dataset` is the name for
    ``msbench setup``. `largest` is a bound of its size in bytes: a server may send without end.
    """

    url: str
    name: str
    digest: str | None
    kind: str
    dataset: str = "DATASET"
    largest: int = 2**32


def is_offline() -> bool:
    """Return True if ``MSBENCH_OFFLINE`` forbids network access."""
    return read_switch("MSBENCH_OFFLINE")


def fetch_file(
    remote: RemoteFile,
    folder: Path,
    progress: Progress = ignore_progress,
    policy: RetryPolicy | None = None,
) -> Path:
    """Return the path of the file in `folder`, downloading it where absent.

    An interrupted download leaves a ``.part``, from which the next call resumes. Raises DataError saying what
    is wrong with the network, the server, the file or the disk, and how to import the file manually.
    """
    path, part = folder / remote.name, folder / f"{remote.name}.part"
    with _explain_faults(remote):
        if not path.exists():
            if is_offline():
                raise DownloadFault(f"it is not in {folder}, and MSBENCH_OFFLINE forbids downloading it")
            with lock_path(path, progress):
                if not path.exists():
                    _download(remote, part, path, progress, policy or RetryPolicy())
        if wrong := _describe_difference(remote, path, HashCache(folder), progress):
            raise DownloadFault(f"{path}: {wrong}; delete it to download it again")
        discard_part(part)
    return path


def _download(remote: RemoteFile, part: Path, path: Path, progress: Progress, policy: RetryPolicy) -> None:
    """Receive, verify, rename: in this order, so that only a verified file ever has the final name."""
    hashes, wrong = HashCache(path.parent), ""
    for _ in range(2):
        pieced = receive_file(remote, part, progress, policy)
        wrong = _describe_difference(remote, part, hashes, progress)
        if not wrong:
            hashes.rename(part, path)
            return sync_folder(path.parent)
        discard_part(part)
        if not pieced:
            break
        # Perhaps pieces of two versions, or holes from a power cut: once more, from the start.
    raise DownloadFault(wrong)


def _describe_difference(remote: RemoteFile, path: Path, hashes: HashCache, progress: Progress) -> str:
    """Describe how the file differs from the published one; empty where it does not, as far as is known."""
    with open(path, "rb", opener=open_regular) as stream:
        head = stream.read(HEAD)
    if not is_kind(head, remote.kind):
        return describe_wrong_kind(remote.kind, "it is", page=is_web_page(head))
    algorithm, _, expected = (remote.digest or "").partition(":")
    found = hashes.digest(path, algorithm, progress) if expected else expected
    if found == expected:
        return ""
    return f"its {algorithm} hash differs, expected {expected} got {found}: it is not what was published"


@contextmanager
def _explain_faults(remote: RemoteFile) -> Iterator[None]:
    """Turn a fault into one DataError with the cause, the file and a remedy that always works."""
    try:
        yield
    except (DownloadFault, OSError) as error:
        named = isinstance(error, OSError) and error.filename is not None
        what = f"{error.filename}: {error.strerror}" if named else error  # type: ignore[union-attr]
        raise DataError(
            f"{remote.dataset}: {remote.url}: {what}; if you have {remote.name} from elsewhere: "
            f"msbench setup {remote.dataset} --from PATH"
        ) from error


GAIN = 2**20
"""New bytes that make an attempt count as a success, after which the count of failed ones starts anew."""


@dataclass(frozen=True)
class RetryPolicy:
    """Timeout and retries of a download.

    `timeout` is the longest time in seconds without a byte; after a failed attempt there is a pause of
    `pause` seconds, doubled after each further one; after `attempts` failures in a row there is an error.
    """

    timeout: float = 30.0
    pause: float = 1.0
    attempts: int = 5


@dataclass(frozen=True)
class FileVersion:
    """File and version that a part belongs to; `total` is 0 where the server did not state it."""

    url: str
    validator: str
    total: int


def receive_file(remote: RemoteFile, part: Path, progress: Progress, policy: RetryPolicy) -> bool:
    """Write the whole file into `part`; return True if its bytes came in more than one attempt.

    Raises DownloadFault; received bytes are kept, and the next call resumes after them.
    """
    pieced, failed, furthest = False, 0, 0
    while True:
        pieced = pieced or _count_usable(remote, part) > 0
        try:
            _attempt(remote, part, progress, policy)
            return pieced
        except TemporaryFault as fault:
            reached = part.stat().st_size if part.exists() else 0
            failed = 1 if reached >= furthest + GAIN else failed + 1
            furthest = max(furthest, reached)
            if failed >= policy.attempts:
                raise DownloadFault(f"{fault} (after {failed} attempts)") from None
        _wait(policy.pause * 2 ** (failed - 1), progress)


def discard_part(part: Path) -> None:
    """Remove a part and its version file, where present; a folder without them need not be writable."""
    for path in (part, _version_file(part)):
        if path.exists():
            path.unlink(missing_ok=True)


def _attempt(remote: RemoteFile, part: Path, progress: Progress, policy: RetryPolicy) -> None:
    """Receive what the part lacks. Raises DownloadFault, or TemporaryFault for one that may pass."""
    offset, version = _count_usable(remote, part), _read_version(part)
    if offset and offset == version.total:
        return
    report = partial(progress, f"fetching {remote.name}")
    with _open_url(_build_request(remote, offset, version), report, policy.timeout) as (answer, waiter):
        if answer.status == 416 or (answer.status == 206 and not _is_continuation(answer, offset, version)):
            discard_part(part)
            raise TemporaryFault("the server sent another part of the file than requested")
        _refuse_status(answer)
        if answer.status != 206:
            offset = 0
        total = _find_total(answer, offset) or (version.total if offset else 0)
        read = partial(waiter.call, partial(answer.read1, SOCKET_CHUNK), timeout=policy.timeout)
        chunks = _read_chunks(read, report, offset, total)
        done = _write_part(remote, answer, chunks, part, offset, total)
    if done < total:
        raise TemporaryFault(f"{describe_incomplete(done, total)}: the connection ended")


def _count_usable(remote: RemoteFile, part: Path) -> int:
    """Return the number of bytes of the part after which the download can resume.

    Bytes of a server that does not state their version may only follow earlier ones if a digest will verify
    the result.
    """
    version = _read_version(part)
    known = version.url == remote.url and (version.validator or remote.digest)
    size = part.stat().st_size if part.exists() else 0
    return size if known and (not version.total or size <= version.total) else 0


def _build_request(remote: RemoteFile, offset: int, version: FileVersion) -> urllib.request.Request:
    headers = {"User-Agent": "msbench", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
        if version.validator:
            headers["If-Range"] = version.validator
    return urllib.request.Request(remote.url, headers=headers)


@contextmanager
def _open_url(
    request: urllib.request.Request, report: Callable[[int, int], None], timeout: float
) -> Iterator[tuple[HTTPResponse, WaitingThread]]:
    """Yield the answer to a request, whatever its status, and the thread to read it in."""
    with closing(WaitingThread()) as waiter:
        try:
            send = partial(urllib.request.urlopen, request, timeout=timeout)
            answer = waiter.call(send, partial(report, 0, 1), timeout)
        except urllib.error.HTTPError as error:
            answer = error  # has the status, the reason and the headers too
        except NETWORK_ERRORS as error:
            raise _convert_error(error) from None
        try:
            yield answer, waiter
        finally:  # in the thread too, after a read that was abandoned
            waiter.submit(answer.close)


def _is_continuation(answer: HTTPResponse, offset: int, version: FileVersion) -> bool:
    """Return True if a partial answer begins at `offset` and is, as far as it states, of the same version."""
    if not answer.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
        return False
    now = _find_validator(answer.headers)
    same_total = not version.total or _find_total(answer, offset) in (0, version.total)
    return same_total and (not now or not version.validator or now == version.validator)


def _refuse_status(answer: HTTPResponse) -> None:
    status = answer.status
    if status == 429 or status >= 500:
        raise TemporaryFault(f"the server is busy or broken (HTTP {status} {answer.reason})")
    if status in REFUSALS:
        raise DownloadFault(f"{REFUSALS[status]} (HTTP {status})")
    if status not in (200, 206):
        raise DownloadFault(f"the server answers HTTP {status} {answer.reason}")


def _find_total(answer: HTTPResponse, offset: int) -> int:
    """Return the size of the whole file, or 0 where the server does not state it."""
    total = answer.headers.get("Content-Range", "").rpartition("/")[2]
    if answer.status == 206 and total.isdecimal():
        return int(total)
    length = answer.headers.get("Content-Length", "")
    return offset + int(length) if length.isdecimal() else 0


def _find_validator(headers: Message) -> str:
    etag = headers.get("ETag", "")
    # a weak ETag promises equivalent versions, not equal bytes
    return etag if etag and not etag.startswith("W/") else headers.get("Last-Modified", "")


def _read_chunks(
    read: Callable[[Callable[[], None]], bytes], report: Callable[[int, int], None], done: int, total: int
) -> Iterator[bytes]:
    """Yield the bytes as they arrive, after `done` already stored; `total` is 0 where unknown.

    `read` returns the next ones, and calls its argument while it waits.
    """
    while True:
        try:
            chunk = read(partial(report, done, max(total, done, 1)))
        except NETWORK_ERRORS as error:
            raise TemporaryFault(f"{describe_incomplete(done, total)}: {_convert_error(error)}") from None
        done += len(chunk)
        if chunk:
            yield chunk
            report(done, max(total, done))
        if not chunk or done == total:  # a server may leave the connection open
            return


def _write_part(
    remote: RemoteFile, answer: HTTPResponse, chunks: Iterator[bytes], part: Path, offset: int, total: int
) -> int:
    """Write the received bytes; return the size of the part."""
    bound = total or remote.largest
    if total > remote.largest:
        raise DownloadFault(f"the server has {total:,} bytes, and the file has at most {remote.largest:,}")
    if offset == 0:
        chunks = _check_head(remote.kind, answer, chunks)
    if lacking := describe_shortage(part.parent, total - offset):
        raise DownloadFault(lacking)
    try:
        with open(part, "ab" if offset else "wb", opener=open_regular) as stream:
            if offset == 0:
                version = FileVersion(remote.url, _find_validator(answer.headers), total)
                with open(_version_file(part), "w", encoding="utf-8", opener=open_regular) as described:
                    json.dump(asdict(version), described)
            for chunk in chunks:
                if offset + len(chunk) > bound:
                    discard_part(part)
                    raise DownloadFault(f"the server sent more than the {bound:,} bytes that it can have")
                offset += stream.write(chunk)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise DownloadFault(f"{error.filename or part} cannot be written: {error.strerror}") from None
    return offset


def _check_head(kind: str, answer: HTTPResponse, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Return the same bytes, after checking the first. Raises DownloadFault for another kind of file."""
    head = b""
    while len(head) < HEAD and (chunk := next(chunks, b"")):
        head += chunk
    if not head:
        raise TemporaryFault("the server sent nothing")
    if not is_kind(head, kind):
        page = is_web_page(head) or answer.headers.get("Content-Type", "").startswith("text/html")
        raise DownloadFault(describe_wrong_kind(kind, "the server sent", page=page))
    return itertools.chain((head,), chunks)


def describe_wrong_kind(kind: str, prefix: str, *, page: bool) -> str:
    """Describe a file that does not begin as a `kind`."""
    return f"{prefix} {'a web page' if page else 'something'} that is no {kind} file"


def _wait(seconds: float, progress: Progress) -> None:
    """Sleep, but let `progress` stop it."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        progress("waiting before the next attempt", 0, 1)
        time.sleep(min(left, 1.0))


def _version_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_version(part: Path) -> FileVersion:
    """Read the version of the part; return an empty one where it was not written completely."""
    try:
        values = parse_json(read_bytes(_version_file(part)))
        return FileVersion(str(values["url"]), str(values["validator"]), int(values["total"]))
    # Any other OSError ends the download: else hours of it would start again from the first byte.
    except (FileNotFoundError, ValueError, KeyError, TypeError, OverflowError):
        return FileVersion("", "", 0)


SOCKET_CHUNK = 2**18
LOOK_EVERY = 0.2
"""Seconds between two calls of `progress` while no data arrives."""
NETWORK_ERRORS = (OSError, ValueError, http.client.HTTPException)
"""Exceptions of urllib and of sockets."""
REFUSALS = {
    **dict.fromkeys((404, 410), "the server has no such file"),
    **dict.fromkeys((401, 403), "the server refuses it"),
}


class DownloadFault(Exception):
    """Permanent error; the message says what is wrong, and another request would not help."""


class TemporaryFault(DownloadFault):
    """Temporary error; another request may succeed."""


class WaitingThread:
    """A thread that runs calls one after another, each abandoned where its caller cannot wait longer."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon: a name server that never answers must not keep the process alive.
        threading.Thread(target=self._run, daemon=True).start()

    def call(self, work: Callable[[], T], between: Callable[[], None], timeout: float) -> T:
        """Return ``work()``; while it runs, `between` is called, which may raise: the work is then abandoned.

        Raises TimeoutError after `timeout` seconds.
        """
        outcome = self.submit(work)
        deadline = time.monotonic() + timeout
        while not wait((outcome,), min(LOOK_EVERY, timeout)).done:
            between()
            if time.monotonic() > deadline:
                raise TimeoutError
        return outcome.result()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Return the outcome of ``work()`` before it runs."""
        outcome: Future[T] = Future()

        def settle() -> None:
            try:
                outcome.set_result(work())
            except Exception as error:  # any error must reach the waiting thread
                outcome.set_exception(error)

        self._calls.put(settle)
        return outcome

    def close(self) -> None:
        """End the thread after the calls so far, without waiting for them."""
        self._calls.put(None)

    def _run(self) -> None:
        while call := self._calls.get():
            call()


def describe_incomplete(done: int, total: int) -> str:
    """Describe a file that is not whole."""
    return f"incomplete, got {done:,} of {f'{total:,}' if total else 'an unknown number of'} bytes"


def _convert_error(error: Exception) -> DownloadFault:
    """Return the DownloadFault for one of `NETWORK_ERRORS`."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return TemporaryFault("the server does not answer")
    if isinstance(cause, (ConnectionResetError, BrokenPipeError, http.client.HTTPException)):
        return TemporaryFault("the connection ended")
    if isinstance(cause, socket.gaierror):
        return DownloadFault(f"no network, or no such host ({cause.strerror})")
    return DownloadFault(f"the server cannot be reached ({getattr(cause, 'strerror', None) or cause})")
