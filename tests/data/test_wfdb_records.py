import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import wfdb
from ecg_files import Memory, header, memory, signal, sums
from numpy.typing import NDArray

from msbench.data.archive import Tree, open_tree
from msbench.data.wfdb_records import Recording, read_record
from msbench.errors import DataError


@pytest.fixture(scope="module")
def ptbxl(sample: Callable[..., Path]) -> Path:
    return sample("ptbxl-500")


@pytest.fixture(scope="module")
def tree(ptbxl: Path) -> Iterator[Tree]:
    with open_tree(ptbxl) as files:
        yield files


def in_millivolts(record: Recording) -> NDArray[np.float64]:
    return np.stack([record.millivolts(lead) for lead in range(len(record.header.leads))], axis=1)


def records_of(tree: Tree) -> list[str]:
    return [name.removesuffix(".hea") for name in tree.names() if name.endswith(".hea")]


def test_all_records_have_the_samples_that_wfdb_reads(
    ptbxl: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [name for name in records_of(tree) if name.startswith("records100")]
    assert len(records) == 500
    about = wfdb.rdheader(str(ptbxl / records[0]))
    units = [(lead.gain, lead.baseline) for lead in read_record(tree, records[0]).header.leads]

    def same_header(path: str, **_: object) -> object:
        """What wfdb would find in 20 ms: their headers differ in names and checksums only."""
        found = copy.deepcopy(about)
        found.file_name = [f"{Path(path).name}.dat"] * 12
        return found

    monkeypatch.setattr(wfdb.io.record, "rdheader", same_header)
    for name in records:
        found = read_record(tree, name)
        assert found.damaged() == []
        assert [(lead.gain, lead.baseline) for lead in found.header.leads] == units
        assert np.array_equal(in_millivolts(found), wfdb.rdrecord(str(ptbxl / name)).p_signal), name


def test_headers_say_what_wfdb_finds_in_them(ptbxl: Path, tree: Tree) -> None:
    names = records_of(tree)[::25]
    assert len(names) > 20
    for name in names:
        found, expected = read_record(tree, name).header, wfdb.rdheader(str(ptbxl / name))
        assert (found.rate, found.length) == (expected.fs, expected.sig_len)
        for field, attribute in {
            "sig_name": "name",
            "file_name": "file",
            "fmt": "format",
            "adc_gain": "gain",
            "baseline": "baseline",
            "checksum": "checksum",
        }.items():
            assert [getattr(lead, attribute) for lead in found.leads] == getattr(expected, field)


def test_records_at_500_hz_equal_what_wfdb_reads(ptbxl: Path, tree: Tree) -> None:
    names = [name for name in records_of(tree) if name.startswith("records500")][::4]
    assert len(names) == 5
    for name in names:
        expected = wfdb.rdrecord(str(ptbxl / name)).p_signal
        assert np.array_equal(in_millivolts(read_record(tree, name)), expected)


def test_invalid_samples_are_marked() -> None:
    digital = signal()
    digital[7, 3] = digital[:, 5] = -(2**15)
    values = in_millivolts(read_record(memory(digital), "r"))
    assert np.isnan(values[7, 3])
    assert np.isnan(values[:, 5]).all()
    assert np.isnan(values).sum() == 1001


@pytest.mark.parametrize("cut", [3, -24])
def test_a_file_of_another_size_is_refused_with_both_sizes(cut: int) -> None:
    files = memory(signal())
    data = files.content["r.dat"]
    files.content["r.dat"] = data[:-cut] if cut > 0 else data + bytes(-cut)
    with pytest.raises(
        DataError, match=rf"^record r: r.dat has {24_000 - cut:,} bytes instead of the 24,000"
    ):
        read_record(files, "r")


def test_a_header_longer_than_its_file_is_refused() -> None:
    with pytest.raises(DataError, match="has 288 bytes instead of the 480 of 20 samples"):
        read_record(memory(signal(steps=12), rest="100 20"), "r")


@pytest.mark.parametrize("rest", ["100", "100 0"])
def test_a_length_that_is_not_given_is_that_of_the_file(rest: str) -> None:
    digital = signal(steps=37)
    found = read_record(memory(digital, rest=rest), "r")
    assert np.array_equal(found.digital, digital)


def test_part_of_a_sample_at_the_end_is_refused_without_a_length_too() -> None:
    files = memory(signal(steps=37), rest="100")
    files.content["r.dat"] += b"\0"
    with pytest.raises(DataError, match="has 889 bytes instead of the 888"):
        read_record(files, "r")


def test_an_empty_file_has_no_samples() -> None:
    with pytest.raises(DataError, match="record r: has no samples"):
        read_record(memory(signal(steps=0), rest="100"), "r")


def test_a_changed_sample_shows_in_the_checksum() -> None:
    digital = signal()
    text = header("r", checksums=sums(digital))
    digital[3, 4] += 1
    assert read_record(memory(digital, text), "r").damaged() == ["aVL"]


def test_a_missing_signal_file_is_named() -> None:
    with pytest.raises(DataError, match=r"deep/r.dat: no such file"):
        read_record(Memory({"deep/r.hea": header("r").encode()}), "deep/r")


def test_32_bits_with_a_fractional_gain_are_exact() -> None:
    gain, baseline = 6344117.125, -1842966025
    digital = np.array([[-(2**31) + 1], [-1842966025], [0], [2**31 - 1]], "<i4")
    text = f"r 1 100 4\nr.dat 32 {gain}({baseline})/mV 32 -5 0 0 0 I\n"
    values = read_record(Memory({"r.hea": text.encode(), "r.dat": digital.tobytes()}), "r").millivolts(0)
    expected = [(int(each) - baseline) / gain for each in digital[:, 0]]
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("storage", "size"),
    [
        *(("8", 720), ("16x1", 1440), ("24", 2160), ("32", 2880), ("61", 1440), ("80", 720), ("160", 1440)),
        *(("212", 1080), ("310", 960), ("311", 960), ("16+24", 1464), ("212:3", 1080)),
    ],
)
def test_other_formats_are_read_as_wfdb_reads_them(storage: str, size: int, tmp_path: Path) -> None:
    data = np.random.default_rng(1).integers(0, 256, size, np.uint8).tobytes()
    (tmp_path / "r.dat").write_bytes(data)
    (tmp_path / "r.hea").write_text(header("r", rest="100 60", storage=storage, gain="317.5(-3)/mV"))
    with open_tree(tmp_path) as files:
        found = in_millivolts(read_record(files, "r"))
    expected = wfdb.rdrecord(str(tmp_path / "r")).p_signal
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.nanstd(expected) > 0


def test_what_wfdb_cannot_decode_is_refused_by_name() -> None:
    files = Memory({"r.hea": b"r 1 100 4\nr.dat 99 200/mV 16 0 0 0 0 I\n", "r.dat": bytes(8)})
    with pytest.raises(DataError, match=r"^record r: cannot be decoded"):
        read_record(files, "r")


def test_leads_may_be_in_files_of_their_own() -> None:
    text = b"r 2 100 3\na.dat 16 1000/mV 16 0 0 0 0 I\nb.dat 16 1000/mV 16 0 0 0 0 II\n"
    first, second = np.array([1, 2, 3], "<i2"), np.array([7, 8, 9], "<i2")
    files = Memory({"x/r.hea": text, "x/a.dat": first.tobytes(), "x/b.dat": second.tobytes()})
    assert read_record(files, "x/r").digital.tolist() == [[1, 7], [2, 8], [3, 9]]
    files.content["x/b.dat"] = bytes(4)
    with pytest.raises(DataError, match=r"b.dat has 4 bytes instead of the 6"):
        read_record(files, "x/r")
