import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import wfdb
from ecg_files import Memory, header, memory, signal, sums
from numpy.typing import NDArray

from msbench.datasets.archive import FileTree, open_tree
from msbench.datasets.ptbxl import wfdb_records
from msbench.datasets.ptbxl.ecg import LEADS
from msbench.datasets.ptbxl.wfdb_records import Header, Recording, name_record
from msbench.errors import DataError


@pytest.fixture(scope="module")
def ptbxl(sample: Callable[..., Path]) -> Path:
    return sample("ptbxl-500")


@pytest.fixture(scope="module")
def tree(ptbxl: Path) -> Iterator[FileTree]:
    with open_tree(ptbxl) as files:
        yield files


def read_record(files: FileTree, record: str) -> Recording:
    with name_record(record):
        return wfdb_records.read_record(files, record)


def parse_header(content: bytes, record: str) -> Header:
    with name_record(record):
        return wfdb_records.parse_header(content)


def in_millivolts(record: Recording) -> NDArray[np.float64]:
    return np.stack([record.millivolts(lead) for lead in range(len(record.header.leads))], axis=1)


def records_of(tree: FileTree) -> list[str]:
    return [name.removesuffix(".hea") for name in tree.names() if name.endswith(".hea")]


def test_all_records_have_the_samples_of_their_files(ptbxl: Path, tree: FileTree) -> None:
    """PTB-XL's files are plain 16-bit samples, which NumPy reads without `wfdb`."""
    records = [name for name in records_of(tree) if name.startswith("records100")]
    assert len(records) == 500
    for name in records:
        found = read_record(tree, name)
        assert {(lead.gain, lead.baseline) for lead in found.header.leads} == {(1000.0, 0)}
        stored = np.fromfile(ptbxl / f"{name}.dat", "<i2").reshape(-1, 12)
        assert np.array_equal(in_millivolts(found), stored / 1000), name


def test_headers_say_what_wfdb_finds_in_them(ptbxl: Path, tree: FileTree) -> None:
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


def test_records_at_500_hz_equal_what_wfdb_reads(ptbxl: Path, tree: FileTree) -> None:
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
    with pytest.raises(DataError, match=r"^record r: samples do not add up .* header: aVL \("):
        read_record(memory(digital, text), "r")


@pytest.mark.parametrize("rest", ["100", "100 0"])
def test_without_a_length_checksums_mean_nothing_as_the_format_has_it(rest: str) -> None:
    digital = signal()
    assert np.array_equal(read_record(memory(digital, checksums=[1] * 12, rest=rest), "r").digital, digital)


def test_a_checksum_counts_its_low_16_bits_with_or_without_a_sign() -> None:
    digital = np.full((3, 12), -1, "<i2")
    for total in (-3, 65533, 65533 + 2**16):
        files = memory(digital, checksums=[total] * 12, rest="100 3")
        assert np.array_equal(read_record(files, "r").digital, digital)


def test_all_real_records_of_ptbxl_have_right_checksums(tree: FileTree) -> None:
    """That a wrong one is an error must not refuse what is published."""
    for name in records_of(tree):
        leads = read_record(tree, name).header.leads
        assert all(lead.checksum is not None for lead in leads), name


def test_a_missing_signal_file_is_named() -> None:
    with pytest.raises(DataError, match=r"deep/r.dat: no such file"):
        read_record(Memory({"deep/r.hea": header("r").encode()}), "deep/r")


def test_32_bits_with_a_fractional_gain_are_exact() -> None:
    gain, baseline = 6344117.125, -1842966025
    digital = np.array([[-(2**31) + 1], [-1842966025], [0], [2**31 - 1]], "<i4")
    checksum = int(digital.sum(dtype=np.int64)) % 2**16
    text = f"r 1 100 4\nr.dat 32 {gain}({baseline})/mV 32 -5 0 {checksum} 0 I\n"
    values = read_record(Memory({"r.hea": text.encode(), "r.dat": digital.tobytes()}), "r").millivolts(0)
    expected = [(int(each) - baseline) / gain for each in digital[:, 0]]
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9)


RANGES = {
    **dict.fromkeys(("16", "61", "160", "516"), 16),
    **dict.fromkeys(("80", "508"), 8),
    **dict.fromkeys(("24", "524"), 24),
    **dict.fromkeys(("310", "311"), 10),
    "32": 32,
    "212": 12,
}
"""Bits of a sample, of all formats that `wfdb` decodes but 8, which has differences."""


def samples(bits: int, steps: int = 50, leads: int = 12) -> NDArray[np.int64]:
    """Known samples (steps, leads) over the whole range, some of which mark that nothing was measured."""
    top = 2 ** (bits - 1)
    found = np.random.default_rng(bits).integers(-top + 1, top, (steps, leads))
    found[0], found[1], found[2], found[3, 3] = top - 1, -top + 1, 0, -top
    return found


def packed(digital: NDArray[np.int64], storage: str) -> bytes:
    """The bytes of a signal file, by the words of the format's description rather than by `wfdb`."""
    flat = digital.reshape(-1)
    if storage in ("16", "32", "61"):
        return flat.astype({"16": "<i2", "32": "<i4", "61": ">i2"}[storage]).tobytes()
    if storage == "24":
        return b"".join(int(each).to_bytes(3, "little", signed=True) for each in flat)
    if storage in ("80", "160"):  # offset binary
        return (
            (flat + (128 if storage == "80" else 2**15)).astype("u1" if storage == "80" else "<u2").tobytes()
        )
    if storage == "212":  # two samples in three bytes: low, both high halves, low of the second
        first, second = (flat[k::2] % 2**12 for k in (0, 1))
        return (
            np.stack([first % 256, second // 256 * 16 + first // 256, second % 256], 1).astype("u1").tobytes()
        )
    one, two, three = (flat[k::3] % 2**10 for k in (0, 1, 2))
    if storage == "311":  # three samples in the low 30 bits of 32
        return (one + two * 2**10 + three * 2**20).astype("<u4").tobytes()
    words = np.stack([one * 2 + three % 2**5 * 2**11, two * 2 + three // 2**5 * 2**11], 1)
    return words.astype("<u2").tobytes()  # 310: bits 1 to 10 of two words, and five more of each for a third


def compressed(digital: NDArray[np.int64], storage: str) -> bytes:
    """A FLAC stream of all leads."""
    import soundfile

    bits = RANGES[storage]
    subtype = {8: "PCM_S8", 16: "PCM_16", 24: "PCM_24"}[bits]
    stream = io.BytesIO()
    wide = (digital * 2 ** ((16 if bits <= 16 else 32) - bits)).astype("i2" if bits <= 16 else "i4")
    soundfile.write(stream, wide, 100, subtype=subtype, format="FLAC")
    return stream.getvalue()


def encoded(storage: str) -> tuple[NDArray[np.int64], bytes, list[int]]:
    """Known samples, the bytes of their file, and initial values that belong to them."""
    if storage == "8":
        differences = np.random.default_rng(8).integers(-128, 128, (60, 12))
        initial = 1000 * np.arange(12) - 3
        return differences.cumsum(axis=0) + initial, differences.astype("i1").tobytes(), initial.tolist()
    leads = 8 if storage.startswith("5") else 12  # of which FLAC has no more
    digital = samples(RANGES[storage], leads=leads)
    data = (compressed if storage.startswith("5") else packed)(digital, storage)
    return digital, data, digital[0].tolist()


FORMATS = ["8", *RANGES]


@pytest.mark.parametrize("storage", FORMATS)
def test_known_samples_of_every_format_are_read(storage: str, tmp_path: Path) -> None:
    digital, data, initial = encoded(storage)
    text = header(
        "r",
        LEADS[: digital.shape[1]],
        rest=f"100 {len(digital)}",
        storage=storage,
        gain="317.5(-3)/mV",
        zero=-7,
        initial=initial,
        checksums=sums(digital),
    )
    found = read_record(Memory({"r.hea": text.encode(), "r.dat": data}), "r")
    assert np.array_equal(found.digital, digital)
    marked = digital == -(2 ** (RANGES.get(storage, 64) - 1))
    assert marked.any() == (storage != "8")
    expected = np.where(marked, np.nan, (digital + 3) / 317.5)
    assert np.array_equal(in_millivolts(found), expected, equal_nan=True)
    (tmp_path / "r.hea").write_text(text)
    (tmp_path / "r.dat").write_bytes(data)
    assert np.array_equal(wfdb.rdrecord(str(tmp_path / "r")).p_signal, expected, equal_nan=True)


@pytest.mark.parametrize("storage", FORMATS)
def test_a_wrong_checksum_is_an_error_in_every_format(storage: str) -> None:
    digital, data, initial = encoded(storage)
    totals = sums(digital)
    totals[2] = (totals[2] + 1) % 2**16
    text = header(
        "r",
        LEADS[: digital.shape[1]],
        rest=f"100 {len(digital)}",
        storage=storage,
        initial=initial,
        checksums=totals,
    )
    with pytest.raises(DataError, match=r"^record r: samples do not add up .* header: III \("):
        read_record(Memory({"r.hea": text.encode(), "r.dat": data}), "r")


def test_differences_begin_from_the_initial_value_or_the_zero_of_the_converter() -> None:
    data = np.array([[5, -5], [1, -1]], "i1").tobytes()
    lines = ["r 2 100 2", "r.dat 8 200/mV 10 50 1000", "r.dat 8 200/mV 10 -70"]
    found = read_record(Memory({"r.hea": "\n".join(lines).encode(), "r.dat": data}), "r")
    assert found.digital.tolist() == [[1005, -75], [1006, -76]]
    assert found.millivolts(0).tolist() == [(1005 - 50) / 200, (1006 - 50) / 200]


def test_differences_that_lead_beyond_32_bits_are_refused() -> None:
    text = f"r 1 100 2\nr.dat 8 200/mV 10 0 {2**31 - 1}\n"
    with pytest.raises(DataError, match=r"^record r: initial value 2147483647 leads beyond 32 bits"):
        read_record(Memory({"r.hea": text.encode(), "r.dat": bytes([1, 1])}), "r")


@pytest.mark.parametrize("storage", ["16x1", "16+24", "212:3", "16:3+24"])
def test_offsets_and_skew_are_read_as_wfdb_reads_them(storage: str, tmp_path: Path) -> None:
    kind = storage[:3] if storage.startswith("212") else "16"
    digital = samples(RANGES[kind], steps=60)
    (tmp_path / "r.dat").write_bytes(bytes(24 * ("+" in storage)) + packed(digital, kind))
    text = header("r", rest="100 60", storage=storage, gain="317.5(-3)/mV", checksums=sums(digital))
    (tmp_path / "r.hea").write_text(text)
    with open_tree(tmp_path) as files:
        found = in_millivolts(read_record(files, "r"))
    assert np.array_equal(found, wfdb.rdrecord(str(tmp_path / "r")).p_signal, equal_nan=True)
    if ":" in storage:
        assert np.isnan(found[-3:]).all()
        expected = (digital[3] + 3) / 317.5
        expected[3] = np.nan  # the mark of a sample that was not measured
        assert np.array_equal(found[0], expected, equal_nan=True)


def test_a_frame_of_several_samples_is_their_mean_and_invalid_where_one_is() -> None:
    digital = np.array([[1, 3, 10], [-(2**15), 4, 20], [5, 6, 30]], "<i2")
    totals = [int(digital[:, :2].sum()), 60]
    lines = ["r 2 100 3", f"r.dat 16x2 1/mV 16 0 1 {totals[0]}", f"r.dat 16 1/mV 16 0 10 {totals[1]}"]
    found = in_millivolts(
        read_record(Memory({"r.hea": "\n".join(lines).encode(), "r.dat": digital.tobytes()}), "r")
    )
    np.testing.assert_array_equal(found, [[2.0, 10.0], [np.nan, 20.0], [5.5, 30.0]])


@pytest.mark.parametrize("storage", ["310", "311"])
@pytest.mark.parametrize("extra", [-4, 4])
def test_files_of_packed_samples_have_a_size_too(storage: str, extra: int) -> None:
    digital, data, _ = encoded(storage)
    text = header("r", rest=f"100 {len(digital)}", storage=storage, checksums=sums(digital))
    data = data[:extra] if extra < 0 else data + bytes(extra)
    with pytest.raises(DataError, match=rf"^record r: r.dat has {len(data)} bytes instead of the 800"):
        read_record(Memory({"r.hea": text.encode(), "r.dat": data}), "r")


@pytest.mark.parametrize("second", ["212", "16+2"])
def test_one_file_has_one_format_and_offset(second: str) -> None:
    text = f"r 2 100 3\nr.dat 16 1/mV\nr.dat {second} 1/mV\n"
    with pytest.raises(
        DataError, match=r"^record r: its signals in r.dat differ in storage format or offset"
    ):
        read_record(Memory({"r.hea": text.encode(), "r.dat": bytes(12)}), "r")


def test_what_wfdb_cannot_decode_is_refused_by_name() -> None:
    files = Memory({"r.hea": b"r 1 100 4\nr.dat 99 200/mV 16 0 0 0 0 I\n", "r.dat": bytes(8)})
    with pytest.raises(DataError, match=r"^record r: cannot be decoded"):
        read_record(files, "r")


def test_what_is_wrong_with_the_code_is_not_blamed_on_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("operands could not be broadcast together")

    monkeypatch.setattr(wfdb_records, "_average_frames", fail)
    with pytest.raises(ValueError, match="operands could not be broadcast"):
        read_record(memory(signal()), "r")


def test_leads_of_different_lengths_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Decoded:
        """What `wfdb` makes of compressed files, whose sizes do not show their lengths."""

        e_d_signal = (np.arange(8), np.arange(3))

        def dac(self, *, expanded: bool) -> list[NDArray[np.float64]]:
            assert expanded
            return [each.astype(np.float64) for each in self.e_d_signal]

    monkeypatch.setattr(wfdb, "rdrecord", lambda *_, **__: Decoded())
    text = b"r 2 100 4\na.dat 508x2 1/mV\nb.dat 508 1/mV\n"
    with pytest.raises(DataError, match=r"^record r: its signals have 4, 3 frames"):
        read_record(Memory({"r.hea": text, "a.dat": bytes(8), "b.dat": bytes(8)}), "r")


def test_leads_may_be_in_files_of_their_own() -> None:
    text = b"r 2 100 3\na.dat 16 1000/mV 16 0 1 6 0 I\nb.dat 16 1000/mV 16 0 7 24 0 II\n"
    first, second = np.array([1, 2, 3], "<i2"), np.array([7, 8, 9], "<i2")
    files = Memory({"x/r.hea": text, "x/a.dat": first.tobytes(), "x/b.dat": second.tobytes()})
    assert read_record(files, "x/r").digital.tolist() == [[1, 7], [2, 8], [3, 9]]
    files.content["x/b.dat"] = bytes(4)
    with pytest.raises(DataError, match=r"b.dat has 4 bytes instead of the 6"):
        read_record(files, "x/r")


def parsed(text: str | bytes, record: str = "r") -> tuple[float, int | None]:
    found = parse_header(text.encode() if isinstance(text, str) else text, record)
    return found.rate, found.length


@pytest.mark.parametrize(
    ("rest", "rate", "length"),
    [
        ("100 1000", 100.0, 1000),
        ("100 1000 09:17:34 09/11/1984", 100.0, 1000),
        ("100 1000 05-May-2020 09:17:34", 100.0, 1000),
        ("100 1000 09:17:34 2020-05-05", 100.0, 1000),
        ("100 1000 2020", 100.0, 1000),
        ("100 1000 anything at all", 100.0, 1000),
        ("100/1e3(5) 1000", 100.0, 1000),
        ("360.5 1000", 360.5, 1000),
        ("500 0", 500.0, None),
        ("500", 500.0, None),
        ("", 250.0, None),
    ],
)
def test_rate_and_length_are_read_whatever_the_date(rest: str, rate: float, length: int | None) -> None:
    assert parsed(header("r", rest=rest)) == (rate, length)


def test_comments_and_line_ends_say_nothing() -> None:
    text = "# a comment\r\n\r\n" + header("r").replace("\n", "\r\n") + "# age: 56\r\n"
    assert parsed("\ufeff" + text) == (100.0, 1000)


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
@pytest.mark.parametrize(
    ("units", "millivolts"), [("mV", 1.0), ("uV", 1e-3), ("µV", 1e-3), ("V", 1e3), ("nV", 1e-6)]
)
def test_units_are_voltages_in_either_encoding(units: str, millivolts: float, encoding: str) -> None:
    found = parse_header(header("r", gain=f"200(5)/{units}").encode(encoding), "r")
    assert {(lead.gain, lead.baseline, lead.millivolts) for lead in found.leads} == {(200.0, 5, millivolts)}


def test_the_greek_letter_is_micro_too() -> None:
    found = parse_header(header("r", gain="1/\N{GREEK SMALL LETTER MU}V").encode(), "r")
    assert found.leads[0].millivolts == 1e-3


@pytest.mark.parametrize("gain", ["0", "0/mV", "0.0(0)/mV", "(7)/mV"])
def test_no_gain_is_the_200_of_the_format(gain: str) -> None:
    lead = parse_header(header("r", gain=gain).encode(), "r").leads[0]
    assert (lead.gain, lead.calibrated) == (200.0, False)


def test_a_line_may_end_after_its_format() -> None:
    lead = parse_header(b"r 1 100 1000\nr.dat 212x2:3+24\n", "r").leads[0]
    assert (lead.name, lead.format, lead.frame, lead.offset, lead.gain) == ("", "212", 2, 24, 200.0)
    assert (lead.baseline, lead.checksum, lead.calibrated) == (0, None, False)


def test_a_baseline_that_is_not_given_is_the_zero_of_the_converter() -> None:
    lead = parse_header(b"r 1 100 1000\nr.dat 16 1000/mV 16 -42 0 0 0 lead I\n", "r").leads[0]
    assert (lead.baseline, lead.name) == (-42, "lead I")


def test_every_field_of_a_signal_is_kept() -> None:
    lead = parse_header(b"r 1 100 9\nr.dat 212x2:3+24 5.5(7)/uV 12 -42 1000 -3 512 lead I\n", "r").leads[0]
    assert (lead.storage, lead.skew, lead.resolution, lead.zero) == ("212x2:3+24", 3, 12, -42)
    assert (lead.initial, lead.checksum, lead.block) == (1000, -3, 512)


def test_an_initial_value_that_is_not_given_is_the_zero_of_the_converter() -> None:
    lead = parse_header(b"r 1 100 9\nr.dat 8 200/mV 10 -42\n", "r").leads[0]
    assert (lead.initial, lead.checksum) == (-42, None)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "has no record line"),
        ("# only this\n", "has no record line"),
        ("r/2 12 100 1000\n", "consists of several segments"),
        (header("r", signals=13), "announces 13 signals but describes 12"),
        (header("r", signals=11), "announces 11 signals but describes 12"),
        ("r 0 100 1000\n", "announces 0 signals but describes 0"),
        (header("r", rest="0 1000"), "'0' is no sampling rate"),
        (header("r", rest="fast 1000"), "'fast' is no sampling rate"),
        (header("r", rest="100 -5"), "'-5' is no number of samples"),
        (header("r", storage="x16"), "signal 1: 'x16' is no storage format"),
        (header("r", gain="high"), "signal 1: 'high' is no gain"),
        (header("r", gain="10/mmHg"), "signal 1: unit 'mmHg' is no voltage"),
        (header("r", gain="10/mv"), "signal 1: unit 'mv' is no voltage"),
        ("r 1 100 1000\nr.dat 16 10/mV 16 0 0 x 0 I\n", "signal 1: checksum 'x' is no whole number"),
        (header("r", rest="1e400 1000"), "'1e400' is no sampling rate"),
        (header("r", rest="1e-400 1000"), "'1e-400' is no sampling rate"),
        (header("r", rest="nan 1000"), "'nan' is no sampling rate"),
        (header("r", rest="inf 1000"), "'inf' is no sampling rate"),
        (header("r", rest="-100 1000"), "'-100' is no sampling rate"),
        (header("r", rest=f"100 {'9' * 5000}"), "number of samples '999"),
        (f"r {'9' * 5000} 100 1000\n", "number of signals '999"),
        (header("r", gain="nan/mV"), "signal 1: 'nan/mV' is no gain"),
        (header("r", gain="inf/mV"), "signal 1: 'inf/mV' is no gain"),
        (header("r", gain="1e400/mV"), "signal 1: gain '1e400' is out of range"),
        (header("r", gain="1e-400/mV"), "signal 1: gain '1e-400' is out of range"),
        (header("r", gain=f"1({2**31})/mV"), "signal 1: baseline '2147483648' has more than 32 bits"),
        (header("r", gain=f"1({-(2**31) - 1})/mV"), "signal 1: baseline '-2147483649' has more than 32 bits"),
        (header("r", gain=f"1({'9' * 5000})/mV"), "has more than 32 bits"),
        (header("r", zero=2**40), "signal 1: zero of the converter '1099511627776' has more than 32 bits"),
        (header("r", initial=[2**31] * 12), "signal 1: initial value '2147483648' has more than 32 bits"),
        (header("r", checksums=[10**20] * 12), "has more than 32 bits"),
        (header("r", storage="16x0"), "signal 1: '16x0' has no samples in a frame"),
        (header("r", storage=f"16x{'9' * 5000}"), "signal 1: samples a frame '999"),
        (header("r", storage="16:1000"), "signal 1: begins 1000 frames late, of 1000 there are"),
        (
            "r 1 100 9\nr.dat 16 1/mV 16.5\n",
            "signal 1: resolution of the converter '16.5' is no whole number",
        ),
        ("r 1 100 9\nr.dat 16 1/mV 16 0 0 0 x\n", "signal 1: block size 'x' is no whole number"),
    ],
)
def test_what_is_no_header_is_refused_by_name(text: str, fault: str) -> None:
    with pytest.raises(DataError, match=r"^record a/b") as caught:
        parse_header(text.encode(), "a/b")
    assert fault in str(caught.value)


@pytest.mark.parametrize("mark", ["\x85", "\x0b", "\x1c"])
def test_a_line_of_a_header_ends_at_a_line_feed_alone(mark: str) -> None:
    noted = f"{header('r')}# one note{mark}of one line\r\n".encode("latin-1")
    assert parse_header(noted, "r") == parse_header(header("r").encode(), "r")
