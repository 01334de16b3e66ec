"""Published files, fetched once and kept: whole and what they were published as, or not there at all.

::

    <folder>/<name>             verified: its size, its first bytes, its digest
    <folder>/<name>.part        what has come so far; the next try goes on from its end
    <folder>/.<name>.lock       held by the process that fetches; others wait, then find the file
"""

import os
import urllib.error
from dataclasses import dataclass
from pathlib import Path

from msbench.data.disk import locked, sync_folder
from msbench.data.kinds import HEAD, is_kind, is_web_page, title
from msbench.data.progress import Progress, silent
from msbench.data.stamps import Stamps
from msbench.data.transfer import Patience, receive
from msbench.errors import DataError


@dataclass(frozen=True)
class Remote:
    """A published file.

    `digest` is ``md5:`` or ``sha256:`` and hexadecimal digits; it and `size` (bytes) are None where nobody
    published them. `kind` is what its bytes must begin with: a key of `kinds.MAGIC`, ``tar`` or ``text``.
    `dataset` is what ``msbench setup`` calls the data it is of.
    """

    url: str
    name: str
    size: int | None
    digest: str | None
    kind: str
    dataset: str = "DATASET"


def is_offline() -> bool:
    """True where ``MSBENCH_OFFLINE`` forbids to use a network."""
    return os.environ.get("MSBENCH_OFFLINE", "0") not in ("", "0")


def fetch(
    remote: Remote, folder: Path, progress: Progress = silent, patience: Patience | None = None
) -> Path:
    """The file in `folder`, fetched where it is not there yet.

    Interrupted it leaves a ``.part``, from which the next call goes on. Raises DataError saying what is
    wrong with the network, the server, the file or the disk, and how to bring the file by hand.
    """
    path = folder / remote.name
    if path.exists():
        verify(remote, path, progress)
        return path
    if is_offline():
        raise DataError(_by_hand(remote, f"is not in {folder}, and MSBENCH_OFFLINE forbids to fetch it"))
    with locked(path, progress):
        if not path.exists():
            part = path.with_name(f"{path.name}.part")
            try:
                receive(remote.url, part, progress, patience or Patience())
            except urllib.error.URLError as error:
                raise DataError(_by_hand(remote, f"cannot be fetched: {error}")) from None
            _check(remote, part, progress)
            Stamps(folder).rename(part, path)
            sync_folder(folder)
    return path


def verify(remote: Remote, path: Path, progress: Progress = silent) -> None:
    """Raise DataError where the file at `path`, wherever it came from, is not `remote`."""
    _check(remote, path, progress)


def _check(remote: Remote, path: Path, progress: Progress) -> None:
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    if not is_kind(head, remote.kind):
        page = f"a web page ({title(head)})" if is_web_page(head) else "something else"
        raise DataError(_by_hand(remote, f"{path} is {page} instead of {remote.kind}"))
    size = path.stat().st_size
    if remote.size is not None and size != remote.size:
        raise DataError(_by_hand(remote, f"{path} is incomplete, got {size:,} of {remote.size:,} bytes"))
    if remote.digest is not None:
        algorithm, _, expected = remote.digest.partition(":")
        found = Stamps(path.parent).digest(path, algorithm, progress)
        if found != expected:
            raise DataError(_by_hand(remote, f"{path}: hash differs, expected {expected} got {found}"))


def _by_hand(remote: Remote, what: str) -> str:
    return (
        f"{remote.dataset}: {remote.url}: {what}; with {remote.name} from elsewhere: "
        f"msbench setup {remote.dataset} --from PATH"
    )
