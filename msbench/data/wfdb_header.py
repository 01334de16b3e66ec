"""Headers of WFDB records (``.hea``): which signals a record has, in which files, and what they count in.

Read here rather than by the `wfdb` package, which takes 20 ms a header, drops the µ of µV, and refuses
records for a date that nobody asks for. Dates and times of day are therefore not even looked at.
"""

import re
from dataclasses import dataclass

from msbench.errors import DataError

DEFAULT_RATE = 250.0
UNCALIBRATED_GAIN = 200.0
"""The format's own rule for a signal whose gain is zero or missing, in units per mV."""
MILLIVOLTS = {"V": 1e3, "mV": 1.0, "uV": 1e-3, "nV": 1e-6}
SAMPLE_BITS = {"8": 8, "16": 16, "24": 24, "32": 32, "61": 16, "80": 8, "160": 16, "212": 12}
"""Bits of a sample by storage format; of others the size does not follow from the length alone."""

RECORD_LINE = re.compile(
    r"(?P<name>[^\s/]+)(?P<segments>/\d+)?\s+(?P<signals>\d+)(?P<rest>(\s.*)?)", re.ASCII
)
RATE_FIELD = re.compile(r"(?P<rate>\d*\.?\d+(e[-+]?\d+)?|\d+\.)(/\S*)?", re.ASCII | re.IGNORECASE)
FORMAT_FIELD = re.compile(r"(?P<format>\d+)(x(?P<frame>\d+))?(:(?P<skew>\d+))?(\+(?P<offset>\d+))?", re.ASCII)
GAIN_FIELD = re.compile(
    r"(?P<gain>[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?)?(\((?P<baseline>[-+]?\d+)\))?(/(?P<units>\S+))?",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True)
class Lead:
    """One signal of a record, as its line describes it.

    Its value in mV is ``(sample - baseline) / gain * millivolts``. `storage` is the format field whole, such
    as ``16`` or ``212x2:3+24``; `checksum` is None where the header has none.
    """

    name: str
    file: str
    storage: str
    format: str
    frame: int
    offset: int
    gain: float
    calibrated: bool
    baseline: int
    millivolts: float
    checksum: int | None

    @property
    def plain(self) -> bool:
        """True for 16-bit samples from the beginning of the file, one a frame, without skew."""
        return self.storage in ("16", "16x1")


@dataclass(frozen=True)
class Header:
    """A record's leads in the order of its file; `rate` in Hz, `length` in frames or None where not given."""

    record: str
    rate: float
    length: int | None
    leads: tuple[Lead, ...]

    def bytes_of(self, file: str, length: int) -> int | None:
        """How large the signal file must be for `length` frames; None where its format does not tell."""
        leads = [lead for lead in self.leads if lead.file == file]
        bits = SAMPLE_BITS.get(leads[0].format)
        if bits is None:
            return None
        samples = length * sum(lead.frame for lead in leads)
        return leads[0].offset + -(-samples * bits // 8)


def parse_header(content: bytes, record: str) -> Header:
    """The header of `record`, UTF-8 or Latin-1. Raises DataError naming the record and what is wrong."""
    lines = [line.strip() for line in _decoded(content).splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    found = RECORD_LINE.fullmatch(lines[0]) if lines else None
    if found is None:
        raise DataError(f"record {record}: its header has no record line")
    if found["segments"]:
        raise DataError(f"record {record}: consists of several segments, which is not supported")
    announced, described = int(found["signals"]), len(lines) - 1
    if announced != described or not described:
        raise DataError(f"record {record}: announces {announced} signals but describes {described}")
    rate, length = _rate_and_length(found["rest"].split(), record)
    leads = tuple(_lead(line, number, record) for number, line in enumerate(lines[1:], start=1))
    return Header(record, rate, length, leads)


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _rate_and_length(fields: list[str], record: str) -> tuple[float, int | None]:
    """What follows the number of signals; a length of 0 is one that is not given."""
    if not fields:
        return DEFAULT_RATE, None
    rate = RATE_FIELD.fullmatch(fields[0])
    if rate is None or not float(rate["rate"]):
        raise DataError(f"record {record}: {fields[0]!r} is no sampling rate")
    if len(fields) == 1:
        return float(rate["rate"]), None
    if not fields[1].isdecimal():
        raise DataError(f"record {record}: {fields[1]!r} is no number of samples")
    return float(rate["rate"]), int(fields[1]) or None


def _lead(line: str, number: int, record: str) -> Lead:
    fields = line.split(maxsplit=8)
    fields += [""] * (9 - len(fields))
    where = f"record {record}, signal {number}"
    storage, gain = FORMAT_FIELD.fullmatch(fields[1]), GAIN_FIELD.fullmatch(fields[2])
    if storage is None:
        raise DataError(f"{where}: {fields[1]!r} is no storage format")
    if gain is None:
        raise DataError(f"{where}: {fields[2]!r} is no gain")
    given = float(gain["gain"] or 0)
    baseline = gain["baseline"] or fields[4] or "0"
    return Lead(
        name=fields[8].strip(),
        file=fields[0],
        storage=fields[1],
        format=storage["format"],
        frame=int(storage["frame"] or 1),
        offset=int(storage["offset"] or 0),
        gain=given or UNCALIBRATED_GAIN,
        calibrated=given != 0,
        baseline=_whole(baseline, f"{where}: baseline"),
        millivolts=_millivolts(gain["units"] or "mV", where),
        checksum=_whole(fields[6], f"{where}: checksum") if fields[6] else None,
    )


def _whole(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DataError(f"{what} {text!r} is no whole number") from None


def _millivolts(units: str, where: str) -> float:
    """How many mV one unit is; µ may be the micro sign, the Greek letter or u."""
    plain = units.replace("\N{MICRO SIGN}", "u").replace("\N{GREEK SMALL LETTER MU}", "u")
    if plain not in MILLIVOLTS:
        raise DataError(f"{where}: unit {units!r} is no voltage; known: {', '.join(MILLIVOLTS)}")
    return MILLIVOLTS[plain]
