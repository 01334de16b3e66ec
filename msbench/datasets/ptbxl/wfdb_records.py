"""WFDB records: headers (``.hea``) read and checked here, samples decoded by the `wfdb` package.

Headers are judged here rather than by `wfdb`, which drops the µ of µV and refuses records because of dates
that are not needed here. Dates and times of day are therefore not parsed. Decoding by `wfdb` takes about
20 ms a record of PTB-XL, for any format.
"""

import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.archive import FileTree
from msbench.errors import DataError
from msbench.results.files import list_lines

DEFAULT_RATE = 250.0
UNCALIBRATED_GAIN = 200.0
"""The format's own rule for a signal whose gain is zero or missing, in units per mV."""
MILLIVOLTS = {"V": 1e3, "mV": 1.0, "uV": 1e-3, "nV": 1e-6}
SAMPLE_BITS = {"8": 8, "16": 16, "24": 24, "32": 32, "61": 16, "80": 8, "160": 16, "212": 12}
"""Bits of a sample by storage format; of others the size does not follow from the length alone."""
GAINS = (1e-30, 1e30)
"""Least and greatest size of a gain: beyond them, every sample is 0 or infinite in float32."""
WHOLE = range(-(2**31), 2**31)
"""Range of the whole numbers in a header: samples have 32 bits at most."""

RECORD_LINE = re.compile(
    r"(?P<name>[^\s/]+)(?P<segments>/\d+)?\s+(?P<signals>\d+)(?P<rest>(\s.*)?)", re.ASCII
)
RATE_FIELD = re.compile(r"(?P<rate>\d*\.?\d+(e[-+]?\d+)?|\d+\.)(/\S*)?", re.ASCII | re.IGNORECASE)
FORMAT_FIELD = re.compile(r"(?P<format>\d+)(x(?P<frame>\d+))?(:(?P<skew>\d+))?(\+(?P<offset>\d+))?", re.ASCII)
GAIN_FIELD = re.compile(
    r"(?P<gain>[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?)?(\((?P<baseline>[-+]?\d+)\))?(/(?P<units>\S+))?",
    re.ASCII | re.IGNORECASE,
)


class InvalidRecord(Exception):
    """A record that is damaged or not of the supported kind; the message says what is wrong with it."""


@dataclass(frozen=True)
class Lead:
    """One signal of a record, as its line describes it.

    Its value in mV is ``(sample - baseline) / gain * millivolts``. A frame has `frame` samples, the first is
    `skew` frames late, and the file has `offset` bytes before them. `initial` is the sample that the first
    difference of format 8 is added to; `checksum` is None where the header has none.
    """

    name: str
    file: str
    format: str
    frame: int
    skew: int
    offset: int
    gain: float
    calibrated: bool
    baseline: int
    millivolts: float
    resolution: int
    zero: int
    initial: int
    checksum: int | None
    block: int

    @property
    def storage(self) -> str:
        """The storage format with all that belongs to it, such as ``212x2:3+24``."""
        return f"{self.format}x{self.frame}:{self.skew}+{self.offset}"


@dataclass(frozen=True)
class Header:
    """A record's leads in the order of its file; `rate` in Hz, `length` in frames or None where not given."""

    rate: float
    length: int | None
    leads: tuple[Lead, ...]

    def bytes_of(self, file: str, length: int) -> range | None:
        """Return the possible file sizes for `length` frames; None where the format does not fix them."""
        leads = [lead for lead in self.leads if lead.file == file]
        kind, offset = leads[0].format, leads[0].offset
        samples = length * sum(lead.frame for lead in leads)
        if kind in (
            "310",
            "311",
        ):  # three samples in four bytes; the last group may be cut to the bytes in use
            least = samples // 3 * 4 + (0, 2, 4 if kind == "310" else 3)[samples % 3]
            return range(offset + least, offset + -(-samples // 3) * 4 + 1)
        bits = SAMPLE_BITS.get(kind)
        if bits is None:
            return None
        size = offset + -(-samples * bits // 8)
        return range(size, size + 1)


@contextmanager
def name_record(record: str) -> Iterator[None]:
    """Turn an InvalidRecord into a DataError that names the record."""
    try:
        yield
    except InvalidRecord as error:
        raise DataError(f"record {record}: {error}") from error


def parse_header(content: bytes) -> Header:
    """Parse a header, UTF-8 or Latin-1. Raises InvalidRecord saying what is wrong with it."""
    lines = [line.strip() for line in list_lines(_decode_text(content))]
    lines = [line for line in lines if line and not line.startswith("#")]
    found = RECORD_LINE.fullmatch(lines[0]) if lines else None
    if found is None:
        raise InvalidRecord("its header has no record line")
    if found["segments"]:
        raise InvalidRecord("consists of several segments, which is not supported")
    announced, described = _parse_whole(found["signals"], "number of signals"), len(lines) - 1
    if announced != described or not described:
        raise InvalidRecord(f"announces {announced} signals but describes {described}")
    rate, length = _parse_rate_and_length(found["rest"].split())
    leads = tuple(_parse_lead(line, f"signal {number}") for number, line in enumerate(lines[1:], start=1))
    _check_files(leads, length)
    return Header(rate, length, leads)


def _check_files(leads: tuple[Lead, ...], length: int | None) -> None:
    """Raise InvalidRecord for leads that cannot be in one file together, or begin after its end."""
    for file in dict.fromkeys(lead.file for lead in leads):
        kinds = {(lead.format, lead.offset) for lead in leads if lead.file == file}
        if len(kinds) > 1:
            raise InvalidRecord(f"its signals in {file} differ in storage format or offset")
    for number, lead in enumerate(leads, start=1):
        if length is not None and lead.skew >= length:
            raise InvalidRecord(f"signal {number}: begins {lead.skew} frames late, of {length} there are")


def _decode_text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _parse_rate_and_length(fields: list[str]) -> tuple[float, int | None]:
    """Parse the fields after the number of signals; a length of 0 means that none is given."""
    if not fields:
        return DEFAULT_RATE, None
    rate = RATE_FIELD.fullmatch(fields[0])
    if rate is None or not 0 < float(rate["rate"]) < math.inf:
        raise InvalidRecord(f"{fields[0]!r} is no sampling rate")
    if len(fields) == 1:
        return float(rate["rate"]), None
    length = _parse_whole(fields[1], "number of samples")
    if length < 0:
        raise InvalidRecord(f"{fields[1]!r} is no number of samples")
    return float(rate["rate"]), length or None


def _parse_lead(line: str, where: str) -> Lead:
    fields = line.split(maxsplit=8)
    fields += [""] * (9 - len(fields))
    storage, gain = FORMAT_FIELD.fullmatch(fields[1]), GAIN_FIELD.fullmatch(fields[2])
    if storage is None:
        raise InvalidRecord(f"{where}: {fields[1]!r} is no storage format")
    if gain is None:
        raise InvalidRecord(f"{where}: {fields[2]!r} is no gain")
    given = _parse_gain(gain["gain"] or "0", where)
    zero = fields[4] or "0"
    frame = _parse_whole(storage["frame"] or "1", f"{where}: samples a frame")
    if not frame:
        raise InvalidRecord(f"{where}: {fields[1]!r} has no samples in a frame")
    return Lead(
        name=fields[8].strip(),
        file=fields[0],
        format=storage["format"],
        frame=frame,
        skew=_parse_whole(storage["skew"] or "0", f"{where}: skew"),
        offset=_parse_whole(storage["offset"] or "0", f"{where}: offset"),
        gain=given or UNCALIBRATED_GAIN,
        calibrated=given != 0,
        baseline=_parse_whole(gain["baseline"] or zero, f"{where}: baseline"),
        millivolts=_parse_unit(gain["units"] or "mV", where),
        resolution=_parse_whole(fields[3] or "0", f"{where}: resolution of the converter"),
        zero=_parse_whole(zero, f"{where}: zero of the converter"),
        initial=_parse_whole(fields[5] or zero, f"{where}: initial value"),  # the format's own rule
        checksum=_parse_whole(fields[6], f"{where}: checksum") if fields[6] else None,
        block=_parse_whole(fields[7] or "0", f"{where}: block size"),
    )


def _parse_gain(text: str, where: str) -> float:
    """Return units per mV, or per the unit in the header; 0 only where it is written so."""
    gain = float(text)
    written_zero = not re.search("[1-9]", text.lower().partition("e")[0])
    if not written_zero and not GAINS[0] <= abs(gain) <= GAINS[1]:
        raise InvalidRecord(
            f"{where}: gain {text[:40]!r} is out of range; correct the header or leave it out"
        )
    return gain


def _parse_whole(text: str, what: str) -> int:
    if not re.fullmatch("[-+]?[0-9]+", text):
        raise InvalidRecord(f"{what} {text[:40]!r} is no whole number")
    digits = text.lstrip("+-0")[:12] or "0"  # Python refuses texts of thousands of digits
    number = -int(digits) if text.startswith("-") else int(digits)
    if number not in WHOLE:
        raise InvalidRecord(f"{what} {text[:40]!r} has more than 32 bits; correct the header or leave it out")
    return number


def _parse_unit(units: str, where: str) -> float:
    """Return the number of mV in one unit; µ may be the micro sign, the Greek letter or u."""
    plain = units.replace("\N{MICRO SIGN}", "u").replace("\N{GREEK SMALL LETTER MU}", "u")
    if plain not in MILLIVOLTS:
        raise InvalidRecord(f"{where}: unit {units!r} is no voltage; known: {', '.join(MILLIVOLTS)}")
    return MILLIVOLTS[plain]


@dataclass(frozen=True)
class Recording:
    """A record as it is stored.

    `digital` (length, leads) float64 are the numbers in its files, or the means of frames that have several;
    `valid` (length, leads) is False where they mark that nothing was measured.
    """

    header: Header
    digital: NDArray[np.float64]
    valid: NDArray[np.bool_]

    def millivolts(self, lead: int) -> NDArray[np.float64]:
        """Return a lead's values (length,) in mV, NaN where invalid; exactly those of the `wfdb` package."""
        about = self.header.leads[lead]
        values: NDArray[np.float64] = (self.digital[:, lead] - about.baseline) / about.gain
        if about.millivolts != 1.0:
            values *= about.millivolts
        values[~self.valid[:, lead]] = np.nan
        return values


def read_record(files: FileTree, record: str) -> Recording:
    """Read the samples of ``<record>.hea`` and of the files that it names, which lie next to it.

    Raises DataError naming a file that is missing, and InvalidRecord where one is shorter or longer than its
    header says, its samples do not add up to the checksums in the header, or the header cannot be read.
    """
    header = parse_header(files.read(f"{record}.hea"))
    folder = record.rpartition("/")[0]
    content = {
        name: files.read(f"{folder}/{name}" if folder else name)
        for name in dict.fromkeys(lead.file for lead in header.leads)
    }
    length = _find_length(header, content)
    if length is not None:
        _check_sizes(header, content, length)
    return _decode(header, content)


def _find_length(header: Header, content: Mapping[str, bytes]) -> int | None:
    """Return the frames as given, else those in the first file; None where its format does not fix them."""
    if header.length is not None:
        return header.length
    name, data = next(iter(content.items()))
    leads = [lead for lead in header.leads if lead.file == name]
    bits = SAMPLE_BITS.get(leads[0].format)
    if bits is None:
        return None
    return max(0, len(data) - leads[0].offset) * 8 // (bits * sum(lead.frame for lead in leads))


def _check_sizes(header: Header, content: Mapping[str, bytes], length: int) -> None:
    for name, data in content.items():
        expected = header.bytes_of(name, length)
        if expected is not None and len(data) not in expected:
            size = f"{len(data):,} bytes instead of the {expected[0]:,} of {length:,} samples"
            raise InvalidRecord(f"{name} has {size}")
    if not length:
        raise InvalidRecord("has no samples")


def _check_sums(header: Header, sums: Sequence[int]) -> None:
    """Raise InvalidRecord where the samples of a lead do not add up to its checksum, by the low 16 bits."""
    if header.length is None:  # by the format, checksums mean nothing without a length
        return
    wrong = [
        f"{lead.name or '(no name)'} ({total % 2**16} instead of {lead.checksum % 2**16})"
        for lead, total in zip(header.leads, sums, strict=True)
        if lead.checksum is not None and (total - lead.checksum) % 2**16
    ]
    if wrong:
        raise InvalidRecord(
            f"samples do not add up to the checksums in its header: {', '.join(wrong)}; its files are damaged"
            " or not of one version: get both again"
        )


def _decode(header: Header, content: Mapping[str, bytes]) -> Recording:
    """Decode with `wfdb`, which only reads files on disk, next to a header with all the fields it may need.

    Frames and skew are resolved here: its own means treat the mark of an invalid sample as a number.
    """
    import wfdb

    framed = any(lead.frame > 1 for lead in header.leads)
    numbers = {name: number for number, name in enumerate(content)}
    with tempfile.TemporaryDirectory() as folder:
        for name, number in numbers.items():
            (Path(folder) / f"s{number}.dat").write_bytes(content[name])
        lines = [f"r {len(header.leads)} {header.rate:.17g} {header.length or ''}"]
        lines += [f"s{numbers[lead.file]}.dat {_format_fields(lead)}" for lead in header.leads]
        (Path(folder) / "r.hea").write_text("\n".join(lines) + "\n", encoding="ascii")
        try:
            found = wfdb.rdrecord(f"{folder}/r", physical=False, smooth_frames=not framed, ignore_skew=True)
            values = found.dac(expanded=True) if framed else found.dac().T
        except Exception as error:  # wfdb documents no exception types for bad input
            raise InvalidRecord(f"cannot be decoded: {error}") from error
    stored = found.e_d_signal if framed else found.d_signal.T
    samples = [np.asarray(each).astype(np.int64) for each in stored]
    _check_lengths(header, samples)
    _check_differences(header, samples)
    _check_sums(header, [int(each.sum()) for each in samples])
    columns = [
        _average_frames(lead, number, ~np.isnan(value))
        for lead, number, value in zip(header.leads, samples, values, strict=True)
    ]
    digital, valid = zip(*columns, strict=True)
    return Recording(header, np.stack(digital, axis=1), np.stack(valid, axis=1))


def _format_fields(lead: Lead) -> str:
    """Return the fields of a lead's line needed for decoding; its units and gain are applied here."""
    checksum = "0" if lead.checksum is None else lead.checksum
    return f"{lead.storage} 200 {lead.resolution} {lead.zero} {lead.initial} {checksum} {lead.block}"


def _check_lengths(header: Header, samples: Sequence[NDArray[np.int64]]) -> None:
    """Raise InvalidRecord where leads differ in length: sizes of files of some formats do not show it."""
    lengths = [len(each) / lead.frame for lead, each in zip(header.leads, samples, strict=True)]
    if len(set(lengths)) > 1 or not lengths[0].is_integer():
        raise InvalidRecord(f"its signals have {', '.join(f'{each:g}' for each in lengths)} frames")


def _check_differences(header: Header, samples: Sequence[NDArray[np.int64]]) -> None:
    """Raise InvalidRecord where sums of differences may have exceeded 32 bits, where `wfdb` wraps around."""
    for lead, numbers in zip(header.leads, samples, strict=True):
        if lead.format == "8" and abs(lead.initial) + 128 * len(numbers) not in WHOLE:
            raise InvalidRecord(f"initial value {lead.initial} leads beyond 32 bits")


def _average_frames(
    lead: Lead, numbers: NDArray[np.int64], valid: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return a lead's samples (length * frame,) as frame means and a mask of valid ones, both (length,)."""
    length, skew = len(numbers) // lead.frame, lead.skew
    # Samples that the skew moves beyond the end of the file were not recorded.
    means = np.zeros(length)
    whole = np.zeros(length, np.bool_)
    means[: max(0, length - skew)] = numbers.reshape(-1, lead.frame).mean(axis=1)[skew:]
    whole[: max(0, length - skew)] = np.logical_and.reduce(valid.reshape(-1, lead.frame), axis=1)[skew:]
    return means, whole
