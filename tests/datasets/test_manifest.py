import errno
import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest
from numpy.typing import NDArray

from msbench.datasets import disk, manifest
from msbench.datasets.dataset import SPLITS, RaggedTokens, ignore_progress
from msbench.errors import DataError, Interrupted

HANGS = """\
import sys, time
from pathlib import Path
from typing import Any
from msbench.datasets import manifest
from msbench.datasets.dataset import ignore_progress

def fill(folder):
    (folder / "half").write_text("half")
    print("half done", flush=True)
    time.sleep(60)

manifest.build_folder(Path(sys.argv[1]), fill, ignore_progress)
"""


def ragged(*examples: list[int], labels: list[int] | None = None, dtype: type = np.uint8) -> RaggedTokens:
    tokens: NDArray[Any] = np.array([number for example in examples for number in example], dtype)
    offsets = np.cumsum([0, *map(len, examples)]).astype(np.int64)
    return RaggedTokens(tokens, offsets, np.array(labels or [1] * len(examples), np.uint8))


def tiny_splits() -> dict[str, RaggedTokens]:
    return {"train": ragged([5, 6, 2], [7, 2]), "validation": ragged([8, 2]), "test": ragged([9, 9, 9, 2])}


def fill(folder: Path) -> None:
    manifest.write_token_splits(folder, tiny_splits(), {"dataset": "tiny"})


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny" / "key"
    manifest.build_folder(folder, fill, ignore_progress)
    return folder


def test_what_was_written_is_read(built: Path) -> None:
    arrays, facts = manifest.load_arrays(built, "remedy")
    for name, split in tiny_splits().items():
        assert arrays[name].keys() == {"tokens", "offsets", "labels"}
        for array, values in arrays[name].items():
            np.testing.assert_array_equal(values, getattr(split, array))
    assert facts["dataset"] == "tiny"
    assert 0 <= facts["made_seconds"] < 60
    assert facts["digest"] == manifest.digest_splits(tiny_splits())
    assert facts["splits"]["train"] == {
        "examples": 2,
        "labels": {"1": 2},
        "length": {"min": 2, "mean": 2.5, "median": 2.5, "max": 3},
    }
    assert manifest.find_manifest(built)


def test_digest_is_of_the_examples_whatever_their_storage() -> None:
    expected = hashlib.sha256()
    for name in SPLITS:
        split = tiny_splits()[name]
        expected.update(name.encode() + b"\n" + struct.pack("<q", len(split)))
        expected.update(b"".join(struct.pack("<q", length) for length in split.lengths))
        expected.update(b"".join(struct.pack("<q", label) for label in split.labels))
        expected.update(b"".join(struct.pack("<H", token) for token in split.tokens))
    assert manifest.digest_splits(tiny_splits()) == expected.hexdigest()
    wide = {**tiny_splits(), "train": ragged([5, 6, 2], [7, 2], dtype=np.int64)}
    assert manifest.digest_splits(wide) == expected.hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        ragged([5, 6], [2, 7, 2]),
        ragged([7, 2], [5, 6, 2]),
        ragged([5, 6, 3], [7, 2]),
        ragged([5, 6, 2], [7, 2], labels=[1, 2]),
    ],
    ids=["borders", "order", "token", "label"],
)
def test_digest_sees_every_difference(other: RaggedTokens) -> None:
    assert manifest.digest_splits({**tiny_splits(), "train": other}) != manifest.digest_splits(tiny_splits())


def test_one_flipped_bit_anywhere_is_found_and_named(built: Path) -> None:
    files = [path for path in built.rglob("*") if path.is_file() and path.name != manifest.MADE]
    assert len(files) == 10
    for path in files:
        whole = path.read_bytes()
        # in the manifest, a digit of the mean length: still good JSON
        position = whole.index(b"2.5") if path.name == manifest.MANIFEST else len(whole) - 1
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(DataError, match=rf"{path}: .*remedy"):
            manifest.load_arrays(built, "remedy")
        path.write_bytes(whole)
    manifest.load_arrays(built, "remedy")


def test_how_long_it_took_may_be_unknown(built: Path) -> None:
    (built / manifest.MADE).write_text("{")
    assert manifest.load_arrays(built, "remedy")[1]["made_seconds"] is None
    (built / manifest.MADE).unlink()
    os.mkfifo(built / manifest.MADE)
    assert manifest.load_arrays(built, "remedy")[1]["made_seconds"] is None
    (built / manifest.MADE).unlink()
    assert manifest.load_arrays(built, "remedy")[1]["made_seconds"] is None


def test_a_flipped_bit_is_found_after_files_were_verified_and_dates_put_back(built: Path) -> None:
    for path in sorted(built.rglob("*.npy")):
        manifest.load_arrays(built, "remedy")
        whole, before = path.read_bytes(), path.stat()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        with pytest.raises(DataError, match=rf"{path}: is damaged.*remedy"):
            manifest.load_arrays(built, "remedy")
        path.write_bytes(whole)


def test_a_file_that_cannot_be_read_is_named(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(disk, "hash_file", unreadable)
    with pytest.raises(
        DataError, match=rf"{built}/.*npy: cannot be read \(Permission denied\): make it readable"
    ):
        manifest.load_arrays(built, "remedy")


@pytest.mark.parametrize("name", ["stat", "read_bytes", "_open_array"])
def test_what_cannot_be_opened_is_not_called_damaged_or_absent(
    built: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whoever followed a remedy that says to delete the data would lose what may be whole."""

    def stale(*_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(Path if name == "stat" else manifest, name, stale)
    with pytest.raises(DataError, match=r"cannot be read \(Stale file handle\): make it readable") as caught:
        manifest.load_arrays(built, "remedy")
    assert "remedy" not in str(caught.value)


def test_a_folder_whose_state_cannot_be_seen_is_not_built_anew(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = sorted(built.rglob("*"))
    plain = Path.stat

    def stale(path: Path, **options: Any) -> Any:
        if path.name == manifest.MANIFEST:
            raise OSError(errno.ESTALE, "Stale file handle")
        return plain(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", stale)
        with pytest.raises(DataError, match=r"cannot be built: .*Stale"):
            manifest.build_folder(built, lambda _: pytest.fail("built again"), ignore_progress)
    assert sorted(built.rglob("*")) == files


@pytest.mark.parametrize("facts", [{"images": "/caf\udce9"}, {"sources": [{"file": "caf\udce9"}]}])
def test_a_manifest_may_name_a_path_that_is_no_utf_8(tmp_path: Path, facts: dict[str, Any]) -> None:
    manifest.build_folder(
        tmp_path / "key", lambda new: manifest.write_manifest(new, facts, {}), ignore_progress
    )
    (tmp_path / "key" / manifest.MANIFEST).read_bytes().decode()
    _, found = manifest.load_arrays(tmp_path / "key", "remedy")
    assert {key: found[key] for key in facts} == facts


def test_a_file_cut_short_or_gone_is_named(built: Path) -> None:
    path = built / "test" / "tokens.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert not manifest.find_manifest(built)
    with pytest.raises(
        DataError, match=rf"{path}: has {len(whole) - 1} bytes instead of {len(whole)}: remedy"
    ):
        manifest.load_arrays(built, "remedy")
    path.unlink()
    with pytest.raises(DataError, match=rf"{path}: no such file: remedy"):
        manifest.load_arrays(built, "remedy")


def test_a_manifest_that_is_none_is_named(built: Path) -> None:
    path = built / manifest.MANIFEST
    written = json.loads(path.read_text())
    for text in ("", "{", "[]", "{}", json.dumps({**written, "digest": "0"})):
        path.write_text(text)
        assert not manifest.find_manifest(built)
        with pytest.raises(DataError, match=r"manifest\.json: .*remedy"):
            manifest.load_arrays(built, "remedy")
    path.unlink()
    with pytest.raises(DataError, match=r"manifest\.json: no such file: remedy"):
        manifest.load_arrays(built, "remedy")


def test_another_format_is_refused(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "FORMAT", manifest.FORMAT + 1)
    with pytest.raises(DataError, match="has format 1, this version reads 2: remedy"):
        manifest.load_arrays(built, "remedy")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted(signal.SIGTERM), DataError("bad row")])
def test_an_interrupted_build_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    folder = tmp_path / "tiny" / "key"

    def interrupted(new: Path) -> None:
        fill(new)
        raise error

    with pytest.raises(type(error)):
        manifest.build_folder(folder, interrupted, ignore_progress)
    assert [path.name for path in folder.parent.iterdir() if not path.name.endswith(".lock")] == []


def test_a_full_disk_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    def full(_new: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match=r"key: cannot be written: No space left.*; make room"):
        manifest.build_folder(tmp_path / "key", full, ignore_progress)


def test_a_killed_build_blocks_nobody_and_is_cleared_away(tmp_path: Path) -> None:
    folder = tmp_path / "tiny" / "key"
    command = [sys.executable, "-c", HANGS, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half done\n"
        process.kill()
    assert not folder.exists()
    assert list(folder.parent.glob(".key.building-*/half"))
    manifest.build_folder(folder, fill, ignore_progress)
    assert manifest.find_manifest(folder)
    assert list(folder.parent.glob(".key.building-*")) == []


def test_a_folder_without_manifest_is_built_again(built: Path) -> None:
    (built / manifest.MANIFEST).unlink()
    manifest.build_folder(built, fill, ignore_progress)
    assert manifest.find_manifest(built)


def test_what_is_built_is_left_alone(built: Path) -> None:
    def never(_new: Path) -> None:
        raise AssertionError

    manifest.build_folder(built, never, ignore_progress)


def test_waiting_for_a_lock_can_be_interrupted(tmp_path: Path) -> None:
    def stop(stage: str, _done: int, _total: int) -> None:
        assert stage == "waiting for another process"
        raise Interrupted(signal.SIGINT)

    with filelock.FileLock(tmp_path / ".key.lock"), pytest.raises(Interrupted):
        manifest.build_folder(tmp_path / "key", fill, stop)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="key: cannot be built"):
        manifest.build_folder(tmp_path / "file" / "key", fill, ignore_progress)


def test_short_hash_ignores_the_order_of_keys() -> None:
    assert manifest.hash_values({"a": 1, "b": 2}) == manifest.hash_values({"b": 2, "a": 1})
    assert manifest.hash_values({"a": 1}) != manifest.hash_values({"a": 2})


def test_duplicates_are_counted_over_all_splits() -> None:
    assert manifest.count_duplicates([ragged([1, 2], [1, 2], [3]), ragged([3], [4])]) == 2


def test_arrays_can_be_filled_on_disk_and_are_mapped_when_large(tmp_path: Path) -> None:
    size = manifest.IN_MEMORY + 1

    def large(folder: Path) -> None:
        manifest.create_array(folder, "train", "values", (size, 1), "uint8")[:] = 7
        manifest.save_array(folder, "train", "labels", np.array([[1, 0], [1, 1]], np.uint8))
        manifest.write_manifest(folder, {"dataset": "large"}, {"train": {"examples": size}})

    manifest.build_folder(tmp_path / "key", large, ignore_progress)
    arrays, facts = manifest.load_arrays(tmp_path / "key", "remedy")
    values = arrays["train"]["values"]
    assert isinstance(values, np.memmap)
    assert int(values.sum()) == 7 * size
    assert arrays["train"]["labels"].tolist() == [[1, 0], [1, 1]]
    hashes = {name: entry["sha256"] for name, entry in facts["files"].items()}
    text = "".join(f"{name} {hashes[name]}\n" for name in ("train/labels.npy", "train/values.npy"))
    assert facts["digest"] == hashlib.sha256(text.encode()).hexdigest()


def test_arrays_that_cannot_be_mapped_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = manifest.IN_MEMORY + 1

    def large(folder: Path) -> None:
        manifest.save_array(folder, "train", "values", np.full(size, 7, np.uint8))
        manifest.write_manifest(folder, {}, {})

    def unmappable(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, "No such device")

    manifest.build_folder(tmp_path / "key", large, ignore_progress)
    monkeypatch.setattr(np.lib.format, "open_memmap", unmappable)
    assert int(manifest.load_arrays(tmp_path / "key", "remedy")[0]["train"]["values"].sum()) == 7 * size
    with pytest.raises(DataError, match="No such device; choose another MSBENCH_DATA"):
        manifest.build_folder(
            tmp_path / "new",
            lambda new: manifest.create_array(new, "train", "x", (1,), "u1").fill(0),
            ignore_progress,
        )


def test_a_summary_counts_each_class_where_an_example_has_several() -> None:
    labels = np.array([[1, 0, 1], [1, 0, 0]], np.uint8)
    found = manifest.describe_split(labels, np.array([4, 4]))
    assert found["examples"] == 2
    assert found["labels"] == {"0": 2, "1": 0, "2": 1}


@pytest.mark.parametrize("key", ["format", "splits", "digest", "files"])
def test_a_manifest_that_lacks_a_key_is_damaged_whatever_its_checksum(built: Path, key: str) -> None:
    path = built / manifest.MANIFEST
    whole = json.loads(path.read_bytes())
    for values in ({}, {key: None}, {key: 3}, {key: [1]}, {key: {"train/labels.npy": 1}}):
        changed = {name: value for name, value in whole.items() if name != key} | values
        changed["checksum"] = manifest._compute_checksum(changed)
        path.write_text(json.dumps(changed), encoding="utf-8")
        assert manifest.find_manifest(built) is None
        with pytest.raises(DataError, match=rf"{path}: .*remedy"):
            manifest.read_manifest(built, "remedy")


@pytest.mark.parametrize(
    "text", ["[" * 500 + "]" * 500, '{"seconds": 1' + "0" * 400 + "}", "[]", '{"seconds": []}']
)
def test_an_unreadable_build_time_is_unknown(built: Path, text: str) -> None:
    (built / manifest.MADE).write_text(text, encoding="utf-8")
    assert manifest.load_arrays(built, "remedy")[1]["made_seconds"] is None
