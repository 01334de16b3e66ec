import errno
import gzip
import hashlib
import os
import random
import shutil
import signal
import socket
import threading
import time
from dataclasses import replace
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from faulty_server import FaultyServer, Handler, Reply, page, serving, silence, status, whole

from msbench.datasets import disk, download
from msbench.datasets.dataset import ignore_progress
from msbench.datasets.download import RemoteFile, RetryPolicy, fetch_file
from msbench.errors import DataError, ExitCode, Interrupted

CONTENT = gzip.compress(random.Random(0).randbytes(300_000), mtime=0)
OTHER = gzip.compress(random.Random(1).randbytes(300_000), mtime=0)
HALF = len(CONTENT) // 2
QUICK = RetryPolicy(timeout=0.3, pause=0.01, attempts=3)
HTML = "<!DOCTYPE html>\n<html><head><title>Virus scan warning</title></head>" + "<p>quota</p>" * 250


def remote_of(server: FaultyServer, content: bytes = CONTENT, **changes: Any) -> RemoteFile:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    remote = RemoteFile(server.url, "data.tar.gz", digest, "gzip", "cifar10")
    return replace(remote, **changes)


def names(folder: Path) -> set[str]:
    """What there is but the lock and the hashes."""
    return {path.name for path in folder.iterdir()} - {".data.tar.gz.lock", disk.HASH_CACHE}


def fault(folder: Path, *script: Reply, **changes: Any) -> str:
    """What `fetch` says about a server; nothing has the final name then."""
    with serving(*script) as server, pytest.raises(DataError) as caught:
        fetch_file(remote_of(server, **changes), folder, ignore_progress, QUICK)
    message = str(caught.value)
    assert caught.value.exit_code == ExitCode.DATA
    assert message.startswith(f"cifar10: {server.url}: ")
    assert message.endswith("if you have data.tar.gz from elsewhere: msbench setup cifar10 --from PATH")
    assert "\n" not in message
    assert "data.tar.gz" not in names(folder)
    return message


@pytest.mark.parametrize("algorithm", ["md5", "sha256", None])
@pytest.mark.parametrize("length", [True, False])
def test_what_is_fetched_is_what_was_sent(tmp_path: Path, algorithm: str | None, length: bool) -> None:
    digest = algorithm and f"{algorithm}:{hashlib.new(algorithm, CONTENT).hexdigest()}"
    with serving(whole(CONTENT, length=length)) as server:
        remote = remote_of(server, digest=digest)
        path = fetch_file(remote, tmp_path / "new" / "folder", ignore_progress, QUICK)
    assert path.read_bytes() == CONTENT
    assert names(path.parent) == {"data.tar.gz"}


def test_a_second_fetch_asks_nobody_and_hashes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(whole(CONTENT)) as server:
        remote = remote_of(server)
        path = fetch_file(remote, tmp_path, ignore_progress, QUICK)
    monkeypatch.setattr(disk, "hash_file", None)
    assert fetch_file(remote, tmp_path, ignore_progress, QUICK) == path
    assert len(server.ranges) == 1


def test_a_fetched_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    compute = disk.hash_file

    def count(path: Path, *rest: Any) -> str:
        hashed.append(path.name)
        return compute(path, *rest)

    monkeypatch.setattr(disk, "hash_file", count)
    with serving(whole(CONTENT)) as server:
        fetch_file(remote_of(server), tmp_path, ignore_progress, QUICK)
    assert hashed == ["data.tar.gz.part"]


def test_a_fetched_file_that_changed_is_found_and_kept(tmp_path: Path) -> None:
    with serving(whole(CONTENT)) as server:
        remote = remote_of(server)
        path = fetch_file(remote, tmp_path, ignore_progress, QUICK)
    before = path.stat()
    with path.open("r+b") as stream:
        stream.seek(HALF)
        stream.write(bytes([CONTENT[HALF] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(
        DataError, match=r"hash differs, expected \w+ got \w+: .*; delete it to download it again"
    ):
        fetch_file(remote, tmp_path, ignore_progress, QUICK)
    assert path.exists()


@pytest.mark.parametrize("code", [404, 410])
def test_a_file_that_is_not_there(tmp_path: Path, code: int) -> None:
    assert f"the server has no such file (HTTP {code})" in fault(tmp_path, status(code))


@pytest.mark.parametrize("code", [401, 403])
def test_a_server_that_refuses(tmp_path: Path, code: int) -> None:
    assert f"the server refuses it (HTTP {code})" in fault(tmp_path, status(code))
    assert names(tmp_path) == set()


def test_a_status_that_nobody_expects(tmp_path: Path) -> None:
    assert "the server answers HTTP 418" in fault(tmp_path, status(418))


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_busy_server_is_asked_again(tmp_path: Path, code: int) -> None:
    assert f"busy or broken (HTTP {code}" in fault(tmp_path, status(code))
    with serving(status(code), status(code), whole(CONTENT)) as server:
        assert fetch_file(remote_of(server), tmp_path, ignore_progress, QUICK).read_bytes() == CONTENT


def test_a_web_page_is_distinguished_from_a_file(tmp_path: Path) -> None:
    message = fault(tmp_path, page(HTML))
    assert "the server sent a web page that is no gzip file" in message
    assert names(tmp_path) == set()
    assert "a web page" in fault(tmp_path, page("  \n<HTML>"))
    assert "a web page" in fault(tmp_path, page("Please log in."))
    assert "the server sent something that is no gzip file" in fault(tmp_path, whole(b"PK\x03\x04" * 99))
    assert "the server sent nothing" in fault(tmp_path, whole(b"", ranges=False))
    with serving(whole(CONTENT)) as server:
        assert fetch_file(remote_of(server), tmp_path, ignore_progress, QUICK).exists()


@pytest.mark.parametrize("hang", [False, True], ids=["cut", "stalled"])
def test_a_broken_transfer_is_gone_on_with(tmp_path: Path, hang: bool) -> None:
    with serving(whole(CONTENT, until=HALF, hang=hang), whole(CONTENT)) as server:
        assert fetch_file(remote_of(server), tmp_path, ignore_progress, QUICK).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-"]


@pytest.mark.parametrize("hang", [False, True], ids=["cut", "stalled"])
def test_a_transfer_that_stays_broken_says_how_far_it_came(tmp_path: Path, hang: bool) -> None:
    message = fault(tmp_path, whole(CONTENT, until=HALF, hang=hang))
    assert f"incomplete, got {HALF:,} of {len(CONTENT):,} bytes: " in message
    assert ("the server does not answer" if hang else "the connection ended") in message
    assert (tmp_path / "data.tar.gz.part").read_bytes() == CONTENT[:HALF]
    with serving(whole(CONTENT)) as server:
        (tmp_path / "data.tar.gz.part.json").write_text(
            (tmp_path / "data.tar.gz.part.json").read_text().replace(message.split()[1][:-1], server.url)
        )
        fetch_file(remote_of(server), tmp_path, ignore_progress, QUICK)
    assert server.ranges == [f"bytes={HALF}-"]


def test_a_part_whose_version_cannot_be_opened_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(tmp_path, whole(CONTENT, until=HALF))

    def stale(_path: Path) -> bytes:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(download, "read_bytes", stale)
    assert "Stale file handle" in fault(tmp_path, whole(CONTENT))
    assert (tmp_path / "data.tar.gz.part").stat().st_size == HALF


def test_a_server_that_says_nothing(tmp_path: Path) -> None:
    started = time.monotonic()
    assert "the server does not answer (after 3 attempts)" in fault(tmp_path, silence)
    assert time.monotonic() - started < 5


def test_a_long_transfer_may_break_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "GAIN", 10_000)
    places = range(20_000, len(CONTENT), 20_000)
    with serving(*(whole(CONTENT, until=place) for place in places), whole(CONTENT)) as server:
        fetch_file(remote_of(server), tmp_path, ignore_progress, QUICK)
    assert len(server.ranges) == len(places) + 1 > QUICK.attempts


def test_a_server_without_ranges_sends_all_again(tmp_path: Path) -> None:
    with serving(whole(CONTENT, until=HALF), whole(CONTENT, ranges=False)) as server:
        assert fetch_file(remote_of(server), tmp_path, ignore_progress, QUICK).read_bytes() == CONTENT
    assert f"got {HALF:,} of" in fault(tmp_path / "b", whole(CONTENT, until=HALF, ranges=False))


@pytest.mark.parametrize("digest", [True, False])
@pytest.mark.parametrize("etag", ['"2"', 'W/"1"', ""])
def test_a_file_that_changes_between_is_never_glued(tmp_path: Path, digest: bool, etag: str) -> None:
    first = whole(CONTENT, until=HALF, etag=etag and '"1"')
    changes: dict[str, Any] = {} if digest else {"digest": None}
    with serving(first, whole(OTHER, etag=etag)) as server:
        path = fetch_file(remote_of(server, OTHER, **changes), tmp_path, ignore_progress, QUICK)
    assert path.read_bytes() == OTHER


def test_a_range_of_another_version_is_not_taken(tmp_path: Path) -> None:
    def careless(handler: Any) -> None:
        """Knows Range, but not If-Range."""
        del handler.headers["If-Range"]
        whole(OTHER, etag='"2"')(handler)

    with serving(whole(CONTENT, until=HALF), careless) as server:
        path = fetch_file(remote_of(server, OTHER, digest=None), tmp_path, ignore_progress, QUICK)
    assert path.read_bytes() == OTHER
    assert server.ranges == [None, f"bytes={HALF}-", None]


def test_a_part_that_the_disk_spoiled_is_fetched_anew(tmp_path: Path) -> None:
    with serving(whole(CONTENT, until=HALF), whole(CONTENT)) as server:
        with pytest.raises(DataError):
            fetch_file(remote_of(server), tmp_path, ignore_progress, replace(QUICK, attempts=1))
        part = tmp_path / "data.tar.gz.part"
        part.write_bytes(bytes(HALF))
        assert fetch_file(remote_of(server), tmp_path, ignore_progress, QUICK).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={HALF}-", None]


def test_another_file_in_pieces_is_fetched_twice_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "GAIN", 1)
    step = len(OTHER) // 3 + 1

    def cut(handler: Any) -> None:
        """Send a third from where it was asked for."""
        asked = handler.headers.get("Range") or "bytes=0-"
        whole(OTHER, until=int(asked.removeprefix("bytes=")[:-1]) + step)(handler)

    with (  # silence ends a download that never would
        serving(*[cut] * 12, silence) as server,
        pytest.raises(DataError, match="it is not what was published"),
    ):
        fetch_file(remote_of(server), tmp_path, ignore_progress, QUICK)
    assert names(tmp_path) == set()
    assert server.ranges == 2 * [None, f"bytes={step}-", f"bytes={2 * step}-"]


def test_one_thread_reads_a_whole_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readers: list[threading.Thread] = []
    read1 = HTTPResponse.read1

    def read(answer: HTTPResponse, size: int = -1) -> bytes:
        readers.append(threading.current_thread())
        return read1(answer, size)

    monkeypatch.setattr(HTTPResponse, "read1", read)
    monkeypatch.setattr(download, "SOCKET_CHUNK", 2**12)  # about a record of TLS
    with serving(whole(CONTENT)) as server:
        path = fetch_file(remote_of(server), tmp_path, ignore_progress, QUICK)
    assert path.read_bytes() == CONTENT
    assert len(readers) >= len(CONTENT) / 2**12
    assert len(set(readers)) == 1
    (reader,) = set(readers)
    reader.join(5)
    assert not reader.is_alive()


def test_a_changed_file_is_distinguished_from_a_cut_one(tmp_path: Path) -> None:
    changed = CONTENT[:HALF] + bytes([CONTENT[HALF] ^ 1]) + CONTENT[HALF + 1 :]
    message = fault(tmp_path, whole(changed))
    expected, got = (hashlib.sha256(content).hexdigest() for content in (CONTENT, changed))
    assert f"hash differs, expected {expected} got {got}: it is not what was published" in message
    assert names(tmp_path) == set()
    for other in (CONTENT + b"more", CONTENT[:HALF]):
        assert "it is not what was published" in fault(tmp_path, whole(other))
        assert "it is not what was published" in fault(tmp_path, whole(other, length=False))


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    with serving(silence) as server:
        remote = remote_of(server)
    with pytest.raises(DataError, match=r"cannot be reached \(Connection refused\)"):
        fetch_file(remote, tmp_path, ignore_progress, QUICK)
    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with pytest.raises(DataError, match=r"no network, or no such host \(Temporary failure"):
        fetch_file(remote, tmp_path, ignore_progress, QUICK)


def test_a_name_server_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def nobody(*_: object, **__: object) -> None:
        over.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with serving(silence) as server, pytest.raises(DataError, match="the server does not answer"):
        fetch_file(remote_of(server), tmp_path, ignore_progress, replace(QUICK, attempts=1))
    over.set()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with serving(whole(CONTENT)) as server, pytest.raises(DataError, match=f"{tmp_path}/file.*: Not a dir"):
        fetch_file(remote_of(server), tmp_path / "file" / "folder", ignore_progress, QUICK)


def test_offline_nothing_is_asked_and_what_is_there_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSBENCH_OFFLINE", "1")
    assert f"it is not in {tmp_path}, and MSBENCH_OFFLINE forbids" in fault(tmp_path, whole(CONTENT))
    with serving(whole(CONTENT)) as server:
        (tmp_path / "data.tar.gz").write_bytes(CONTENT)
        assert fetch_file(remote_of(server), tmp_path).exists()
    assert server.ranges == []
    monkeypatch.setenv("MSBENCH_OFFLINE", "0")
    assert not download.is_offline()


def test_no_room_is_seen_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=len(CONTENT) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    message = fault(tmp_path, whole(CONTENT))
    assert f"{len(CONTENT):,} bytes are needed and {tmp_path} has {len(CONTENT) - 1:,} free" in message
    assert names(tmp_path) == set()


def test_a_disk_that_gets_full_keeps_what_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with serving(whole(CONTENT)) as server:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(DataError, match="part cannot be written: No space left"):
                fetch_file(remote_of(server), tmp_path, ignore_progress, QUICK)
        assert names(tmp_path) == {"data.tar.gz.part", "data.tar.gz.part.json"}
        fetch_file(remote_of(server), tmp_path, ignore_progress, QUICK)
    assert len(server.ranges) == 1


@pytest.mark.parametrize("script", [[silence], [whole(CONTENT, until=HALF, hang=True)], [status(503)]])
def test_waiting_can_be_stopped(tmp_path: Path, script: list[Reply]) -> None:
    started = time.monotonic()

    def stop(_what: str, _done: int, _total: int) -> None:
        if time.monotonic() > started + 0.5:
            raise Interrupted(signal.SIGINT)

    with serving(*script) as server, pytest.raises(Interrupted):
        fetch_file(remote_of(server), tmp_path, stop, RetryPolicy())
    assert time.monotonic() < started + 2.5


def test_progress_tells_bytes(tmp_path: Path) -> None:
    said: list[tuple[str, int, int]] = []
    with serving(whole(CONTENT, until=HALF), whole(CONTENT)) as server:
        fetch_file(remote_of(server), tmp_path, lambda *step: said.append(step), QUICK)
    fetching = [step for step in said if step[0] == "fetching data.tar.gz"]
    assert fetching[-1][1:] == (len(CONTENT), len(CONTENT))
    assert all(total > 0 for _, _, total in said)
    assert ("checking data.tar.gz.part", len(CONTENT), len(CONTENT)) in said


def endless(*, length: int | None, part: str = "") -> Reply:
    """Send the content and then zeros, a thousand times as much, with or without stating a size."""

    def reply(handler: Handler) -> None:
        given = {} if length is None else {"Content_Length": length}
        handler.begin(206 if part else 200, ETag='"1"', **given, **({"Content_Range": part} if part else {}))
        handler.wfile.write(CONTENT)
        for _ in range(1000):
            handler.wfile.write(bytes(len(CONTENT)))

    return reply


def test_an_answer_without_end_has_a_bound(tmp_path: Path) -> None:
    bound = 2 * len(CONTENT)
    message = fault(tmp_path, endless(length=None), largest=bound)
    assert f"the server sent more than the {bound:,} bytes that it can have" in message
    assert names(tmp_path) == set()


@pytest.mark.parametrize("known", ["from this answer", "from the first one"])
def test_no_more_is_written_than_the_stated_size(tmp_path: Path, known: str) -> None:
    size = len(CONTENT)
    total, length = (str(size), 1000 * size) if known == "from this answer" else ("*", None)
    rest = endless(length=length, part=f"bytes {HALF}-{size - 1}/{total}")
    message = fault(tmp_path, whole(CONTENT, until=HALF), rest)
    assert f"the server sent more than the {size:,} bytes" in message
    assert names(tmp_path) == set()


def test_a_size_that_the_file_cannot_have_is_not_fetched(tmp_path: Path) -> None:
    message = fault(tmp_path, whole(CONTENT), largest=len(CONTENT) - 1)
    assert f"the server has {len(CONTENT):,} bytes, and the file has at most {len(CONTENT) - 1:,}" in message
    assert names(tmp_path) == set()


@pytest.mark.parametrize("suffix", [".part", ".part.json"])
@pytest.mark.parametrize("exists", [True, False])
def test_nothing_is_written_through_a_link(tmp_path: Path, suffix: str, exists: bool) -> None:
    precious = tmp_path / "precious"
    if exists:
        precious.write_bytes(b"precious")
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / f"data.tar.gz{suffix}").symlink_to(precious)
    assert f"data.tar.gz{suffix} cannot be written: not a regular file" in fault(folder, whole(CONTENT))
    assert precious.read_bytes() == b"precious" if exists else not precious.exists()


def test_no_hash_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / disk.HASH_CACHE).symlink_to(tmp_path / "precious")
    with serving(whole(CONTENT)) as server:
        assert fetch_file(remote_of(server), folder, ignore_progress, QUICK).read_bytes() == CONTENT
    assert (tmp_path / "precious").read_bytes() == b"precious"


@pytest.mark.parametrize("name", ["data.tar.gz", "data.tar.gz.part", "data.tar.gz.part.json"])
def test_a_pipe_in_the_folder_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with serving(whole(CONTENT)) as server, pytest.raises(DataError, match="not a regular file"):
        fetch_file(remote_of(server), tmp_path, ignore_progress, QUICK)


def test_a_pipe_as_the_cache_of_hashes_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / disk.HASH_CACHE)
    with serving(whole(CONTENT)) as server:
        assert fetch_file(remote_of(server), tmp_path, ignore_progress, QUICK).read_bytes() == CONTENT
