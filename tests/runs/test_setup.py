"""Set-up by name: datasets and suites, imported files, damaged data."""

import shutil
from pathlib import Path

import pytest

from msbench import datasets
from msbench.datasets import disk
from msbench.datasets.dataset import Progress
from msbench.errors import ConfigError, DataError, ExitCode
from msbench.runs.setup import setup_by_name

ROWS = "Source\tTarget\r\n( ( ( [MAX 2 ) 4 ) ] )\t4\r\n7\t7\r\n"


@pytest.fixture
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def given_files(tmp_path: Path) -> Path:
    folder = tmp_path / "listops-1000"
    folder.mkdir()
    for name in ("train", "val", "test"):
        (folder / f"basic_{name}.tsv").write_bytes(ROWS.encode())
    return tmp_path


def test_a_suite_stands_for_the_data_it_needs(tiny_file: Path, own_data: Path) -> None:
    done = setup_by_name([str(tiny_file), str(tiny_file)], None, check_only=False, quiet=True)
    assert done.exit_code == ExitCode.OK
    (item,) = done.as_dicts()
    assert (item["dataset"], item["ready"]) == ("listops", True)
    assert len(item["digest"]) == 64
    header, rows = done.table()
    assert dict(zip(header, rows[0], strict=True))["train"] == "60"
    assert list(own_data.rglob("manifest.json"))


def test_given_files_are_imported_and_checked(
    given_files: Path, own_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = setup_by_name(["listops"], given_files, check_only=False, quiet=True)
    assert done.exit_code == ExitCode.OK
    assert "basic_train.tsv has 2 rows, the published file 96,000" in capsys.readouterr().err
    assert (own_data / "listops" / "release" / "manifest.json").exists()


def test_check_only_builds_nothing(own_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = setup_by_name(["listops"], None, check_only=True, quiet=True)
    assert done.exit_code == ExitCode.DATA
    assert "msbench setup listops" in capsys.readouterr().err
    assert not own_data.exists()


@pytest.mark.usefixtures("own_data")
def test_of_several_datasets_it_says_how_many_are_ready(
    tiny_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setup_by_name([str(tiny_file)], None, check_only=False, quiet=True)
    assert "1 of" not in capsys.readouterr().err
    setup_by_name([str(tiny_file), "listops"], None, check_only=True, quiet=True)
    assert capsys.readouterr().err.splitlines()[-1] == "1 of 2 verified"


def test_check_finds_what_is_damaged(tiny_file: Path, own_data: Path) -> None:
    setup_by_name([str(tiny_file)], None, check_only=False, quiet=True)
    tokens = sorted(own_data.rglob("tokens.npy"))[0]
    content = bytearray(tokens.read_bytes())
    content[-1] ^= 1
    tokens.write_bytes(content)
    done = setup_by_name([str(tiny_file)], None, check_only=True, quiet=True)
    assert done.exit_code == ExitCode.DATA
    assert str(tokens.name) in str(done.as_dicts()[0]["error"])
    shutil.rmtree(own_data)


def test_given_files_go_with_one_dataset(given_files: Path, own_data: Path, tiny_file: Path) -> None:
    with pytest.raises(ConfigError, match="goes with one dataset"):
        setup_by_name(["listops", str(tiny_file)], given_files, check_only=False, quiet=True)
    assert not own_data.exists()


@pytest.mark.usefixtures("own_data")
def test_progress_in_steps_of_any_size_is_said_once_a_tenth(
    tiny_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def setup(*_: object, progress: Progress, **__: object) -> None:
        for done in [0, 0, *range(3, 1000, 7), 1000]:
            progress("fetching", done, 1000)
        raise DataError("enough")

    monkeypatch.setattr(datasets, "setup", setup)
    setup_by_name([str(tiny_file)], None, check_only=False, quiet=False)
    said = [line for line in capsys.readouterr().err.splitlines() if "fetching" in line]
    assert len(said) == 11
    assert said[-1].startswith("fetching: 1,000 of 1,000")


@pytest.mark.usefixtures("own_data")
def test_check_rereads_every_byte(tiny_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a disk may give back other bytes than were written to it, with the same dates."""
    setup_by_name([str(tiny_file)], None, check_only=False, quiet=True)
    monkeypatch.setattr(disk, "hash_file", lambda *_: "0" * 64)
    assert setup_by_name([str(tiny_file)], None, check_only=False, quiet=True).exit_code == ExitCode.OK
    assert setup_by_name([str(tiny_file)], None, check_only=True, quiet=True).exit_code == ExitCode.DATA
