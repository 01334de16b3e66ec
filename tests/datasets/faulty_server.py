"""A local HTTP server that answers each request as its script says: well, not at all, or half."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

os.environ["no_proxy"] = "*"  # whatever proxy this machine has, it does not lead here

Reply = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    server: "FaultyServer"

    def do_GET(self) -> None:
        number = len(self.server.ranges)
        self.server.ranges.append(self.headers.get("Range"))
        script = self.server.script
        try:
            script[min(number, len(script) - 1)](self)
        except ConnectionError:  # a client that had enough
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass

    def begin(self, status: int, **headers: str | int) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()


class FaultyServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *script: Reply) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = list(script)
        self.ranges: list[str | None] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data.tar.gz"


@contextmanager
def serving(*script: Reply) -> Iterator[FaultyServer]:
    """The first request is answered by the first reply, and so on; the last reply goes for all others."""
    server = FaultyServer(*script)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def whole(
    content: bytes,
    *,
    etag: str = '"1"',
    ranges: bool = True,
    until: int | None = None,
    hang: bool = False,
    length: bool = True,
) -> Reply:
    """Send `content`; up to the byte `until`, and then close the connection, or `hang`."""

    def reply(handler: Handler) -> None:
        asked = handler.headers.get("Range") if ranges else None
        condition = handler.headers.get("If-Range")
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if condition not in (None, etag):
            start = 0
        headers: dict[str, str | int] = {"ETag": etag} if etag else {}
        if length:
            headers["Content-Length"] = len(content) - start
        if start and start >= len(content):
            handler.begin(416, Content_Length=0)
            return
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        handler.begin(206 if start else 200, **headers)
        handler.wfile.write(content[start : len(content) if until is None else until])
        if hang:
            handler.wfile.flush()
            handler.server.closing.wait(30)

    return reply


def slowly(content: bytes, pause: float, pieces: int = 50) -> Reply:
    """Send `content` in pieces with a pause after each, from where it was asked for."""

    def reply(handler: Handler) -> None:
        asked = handler.headers.get("Range")
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        headers: dict[str, str | int] = {"ETag": '"1"', "Content-Length": len(content) - start}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        handler.begin(206 if start else 200, **headers)
        size = len(content) // pieces
        for place in range(start, len(content), size):
            handler.wfile.write(content[place : place + size])
            if handler.server.closing.wait(pause):
                return

    return reply


def by_name(replies: Mapping[str, Reply]) -> Reply:
    """Of each path the reply for its last part; 404 for others."""

    def reply(handler: Handler) -> None:
        replies.get(handler.path.rpartition("/")[2], status(404))(handler)

    return reply


def status(code: int) -> Reply:
    return lambda handler: handler.begin(code, Content_Length=0)


def page(text: str) -> Reply:
    def reply(handler: Handler) -> None:
        content = text.encode()
        handler.begin(200, Content_Type="text/html; charset=utf-8", Content_Length=len(content))
        handler.wfile.write(content)

    return reply


def silence(handler: Handler) -> None:
    """Take the request, and say nothing."""
    handler.server.closing.wait(30)
