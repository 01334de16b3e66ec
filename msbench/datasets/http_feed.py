"""One HTTP request in a thread of its own, so that whoever waits for it can stop waiting.

A read from a socket can be given up after a time, but not looked after in between, and a name that is looked
up not even that: here the caller's `progress` is called all the while, and may raise.
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
"""Seconds between two calls of `progress` while nothing comes."""


class Fault(Exception):
    """What is wrong, in words; asking again would not help."""


class Passing(Fault):
    """What is wrong, in words; it may be over when the server is asked again."""


@dataclass(frozen=True)
class Answer:
    """What a server says before it sends anything; header names as HTTP has them, in any case."""

    status: int
    reason: str
    headers: Message


class HttpResponse:
    """The answer to one request, then its bytes as they come.

    Raises Fault; Passing where the connection ended, or nothing came for `timeout` seconds.
    """

    def __init__(self, request: urllib.request.Request, timeout: float) -> None:
        self._request, self._timeout = request, timeout
        self._items: queue.Queue[Answer | bytes | Exception] = queue.Queue(maxsize=64)
        self._stopped = threading.Event()
        # A daemon: a name server that never answers must not keep the process from ending.
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
        """The bytes as they come, after `done` that are there; `total` is 0 where it is not known."""
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
        except Exception as error:  # whatever it is, whoever waits must hear of it
            self._put(error)

    def _put(self, item: Answer | bytes | Exception) -> None:
        while not self._stopped.is_set():
            try:
                return self._items.put(item, timeout=LOOK_EVERY)
            except queue.Full:
                continue
        return None


def incomplete(done: int, total: int) -> str:
    """Words for a file that is not whole."""
    return f"incomplete, got {done:,} of {f'{total:,}' if total else 'an unknown number of'} bytes"


def _fault(error: Exception) -> Fault:
    """What an exception of urllib or of a socket means to who asked; another one is raised again."""
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
