"""One HTTP request in its own thread, so that the caller can stop waiting for it.

A read from a socket can time out, but not be interrupted in between, and a name lookup cannot even time
out: here the caller's `progress` is called all the while, and may raise.
"""

import http.client
import queue
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message

from msbench.datasets.progress import Progress

CHUNK = 2**16
LOOK_EVERY = 0.2
"""Seconds between two calls of `progress` while no data arrives."""


class Fault(Exception):
    """Permanent error; the message says what is wrong, and another request would not help."""


class Passing(Fault):
    """Temporary error; another request may succeed."""


@dataclass(frozen=True)
class Answer:
    """Status line and headers of a response; header names as in HTTP, in any case."""

    status: int
    reason: str
    headers: Message


class HttpResponse:
    """The answer to one request, then its bytes as they arrive.

    Raises Fault; Passing where the connection ended, or nothing arrived for `timeout` seconds.
    """

    def __init__(self, request: urllib.request.Request, timeout: float) -> None:
        self._request, self._timeout = request, timeout
        self._items: queue.Queue[Answer | bytes | Exception] = queue.Queue(maxsize=64)
        self._stopped = threading.Event()
        # A daemon: a name server that never answers must not keep the process alive.
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "HttpResponse":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()

    def answer(self, progress: Progress, what: str) -> Answer:
        """Wait for the answer."""
        item = self._next(progress, what, 0, 1)
        if isinstance(item, Exception):
            raise _fault(item)
        assert isinstance(item, Answer)
        return item

    def chunks(self, progress: Progress, what: str, done: int, total: int) -> Iterator[bytes]:
        """Yield the bytes as they arrive, after `done` already stored; `total` is 0 where unknown."""
        while item := self._next(progress, what, done, total):
            if isinstance(item, Exception):
                raise Passing(f"{incomplete(done, total)}: {_fault(item)}")
            assert isinstance(item, bytes)
            done += len(item)
            yield item
            progress(what, done, max(total, done))
            if done == total:  # a server may leave the connection open
                return

    def _next(self, progress: Progress, what: str, done: int, total: int) -> Answer | bytes | Exception:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._items.get(timeout=min(LOOK_EVERY, self._timeout))
            except queue.Empty:
                progress(what, done, max(total, done, 1))
                if time.monotonic() > deadline:
                    return TimeoutError(f"nothing came for {self._timeout:g} s")

    def _run(self) -> None:
        try:
            with urllib.request.urlopen(self._request, timeout=self._timeout) as response:
                self._put(Answer(response.status, response.reason, response.headers))
                while (chunk := response.read1(CHUNK)) and not self._stopped.is_set():
                    self._put(chunk)
                self._put(b"")
        except urllib.error.HTTPError as error:
            with error:
                self._put(Answer(error.code, error.reason, error.headers))
        except Exception as error:  # any error must reach the waiting thread
            self._put(error)

    def _put(self, item: Answer | bytes | Exception) -> None:
        while not self._stopped.is_set():
            try:
                return self._items.put(item, timeout=LOOK_EVERY)
            except queue.Full:
                continue
        return None


def incomplete(done: int, total: int) -> str:
    """Describe a file that is not whole."""
    return f"incomplete, got {done:,} of {f'{total:,}' if total else 'an unknown number of'} bytes"


def _fault(error: Exception) -> Fault:
    """Return the Fault for an exception of urllib or of a socket; raise any other exception again."""
    if not isinstance(error, (OSError, ValueError, http.client.HTTPException)):
        raise error
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return Passing("the server does not answer")
    if isinstance(cause, (ConnectionResetError, BrokenPipeError, http.client.HTTPException)):
        return Passing("the connection ended")
    if isinstance(cause, socket.gaierror):
        return Fault(f"no network, or no such host ({cause.strerror})")
    return Fault(f"the server cannot be reached ({getattr(cause, 'strerror', None) or cause})")
