"""Bytes over HTTP into a ``.part`` file: resumed where it ended, never glued to those of another file."""

import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from msbench.data.disk import require_space
from msbench.data.progress import Progress

CHUNK = 2**20


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server, in seconds, and how often to ask it again."""

    connect: float = 30.0
    stall: float = 60.0
    pause: float = 2.0
    attempts: int = 5


def receive(url: str, part: Path, progress: Progress, patience: Patience) -> None:
    """All of `url` in the file `part`."""
    with urllib.request.urlopen(url, timeout=patience.stall) as response, part.open("wb") as stream:
        total = int(response.headers.get("Content-Length") or 0)
        require_space(part.parent, total, part.name)
        done = 0
        while chunk := response.read(CHUNK):
            stream.write(chunk)
            done += len(chunk)
            progress(f"fetching {part.name.removesuffix('.part')}", done, max(total, done))
        os.fsync(stream.fileno())
