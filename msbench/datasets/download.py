"""Download of published files, once: a file is stored whole and as published, or not at all.

::

    <folder>/<name>             verified: its size, its first bytes, its digest
    <folder>/<name>.part        received so far; the next attempt resumes at its end
    <folder>/.<name>.lock       held by the downloading process; others wait, then find the file
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from msbench.datasets.disk import locked, sync_folder
from msbench.datasets.file_kinds import HEAD, is_kind, is_web_page
from msbench.datasets.http_feed import Fault
from msbench.datasets.progress import Progress, silent
from msbench.datasets.stamps import Stamps
from msbench.datasets.transfer import Patience, Wish, discard, receive, wrong_kind, wrong_size
from msbench.errors import DataError


@dataclass(frozen=True)
class Remote:
    """A published file.

    `digest` is ``md5:`` or ``sha256:`` and hexadecimal digits; it and `size` (bytes) are None where not
    published. `kind` is the format that its first bytes must have: a key of `file_kinds.MAGIC`, ``tar`` or
    ``text``. `dataset` is the name for ``msbench setup``.
    """

    url: str
    name: str
    size: int | None
    digest: str | None
    kind: str
    dataset: str = "DATASET"


def is_offline() -> bool:
    """Return True if ``MSBENCH_OFFLINE`` forbids network access."""
    return os.environ.get("MSBENCH_OFFLINE", "0") not in ("", "0")


def fetch(
    remote: Remote, folder: Path, progress: Progress = silent, patience: Patience | None = None
) -> Path:
    """Return the path of the file in `folder`, downloading it where absent.

    An interrupted download leaves a ``.part``, from which the next call resumes. Raises DataError saying what
    is wrong with the network, the server, the file or the disk, and how to import the file manually.
    """
    path, part = folder / remote.name, folder / f"{remote.name}.part"
    with _explained(remote):
        if not path.exists():
            if is_offline():
                raise Fault(f"it is not in {folder}, and MSBENCH_OFFLINE forbids to fetch it")
            with locked(path, progress):
                if not path.exists():
                    _fetch(remote, part, path, progress, patience or Patience())
        if wrong := _difference(remote, path, Stamps(folder), progress):
            raise Fault(f"{path}: {wrong}; delete it to have it fetched again")
        discard(part)
    return path


def _fetch(remote: Remote, part: Path, path: Path, progress: Progress, patience: Patience) -> None:
    """Receive, verify, rename: in this order, so that only a verified file ever has the final name."""
    stamps = Stamps(path.parent)
    wish = Wish(remote.url, remote.size, remote.kind, certain=remote.digest is not None)
    pieced = receive(wish, part, progress, patience)
    wrong = _difference(remote, part, stamps, progress)
    if wrong and pieced:  # perhaps pieces of two versions, or holes from a power cut
        discard(part)
        receive(wish, part, progress, patience)
        wrong = _difference(remote, part, stamps, progress)
    if wrong:
        discard(part)
        raise Fault(wrong)
    stamps.rename(part, path)
    sync_folder(path.parent)


def _difference(remote: Remote, path: Path, stamps: Stamps, progress: Progress) -> str:
    """Describe how the file differs from the published one; empty where it does not, as far as is known."""
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    if not is_kind(head, remote.kind):
        return wrong_kind(head, remote.kind, "it is", page=is_web_page(head))
    if remote.size is not None and (wrong := wrong_size(path.stat().st_size, remote.size)):
        return f"it {wrong}"
    algorithm, _, expected = (remote.digest or "").partition(":")
    found = stamps.digest(path, algorithm, progress) if expected else expected
    if found == expected:
        return ""
    return f"its {algorithm} hash differs, expected {expected} got {found}: it is not what was published"


@contextmanager
def _explained(remote: Remote) -> Iterator[None]:
    """Turn a fault into one DataError with the cause, the file and a remedy that always works."""
    try:
        yield
    except (Fault, OSError) as error:
        named = isinstance(error, OSError) and error.filename is not None
        what = f"{error.filename}: {error.strerror}" if named else error  # type: ignore[union-attr]
        raise DataError(
            f"{remote.dataset}: {remote.url}: {what}; if you have {remote.name} from elsewhere: "
            f"msbench setup {remote.dataset} --from PATH"
        ) from error
