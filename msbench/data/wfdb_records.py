"""Samples of WFDB records, from any place that hands out files by name.

Plain 16-bit files, which are most, are decoded here; every other storage format by the `wfdb` package.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msbench.data.archive import Tree
from msbench.data.wfdb_header import SAMPLE_BITS, Header, parse_header
from msbench.errors import DataError

INVALID = -(2**15)
"""What a 16-bit sample is where nothing was measured."""


@dataclass(frozen=True)
class Recording:
    """A record as it is stored.

    `digital` (length, leads) int64 are the numbers in its files, `valid` (length, leads) is False where they
    mark that nothing was measured.
    """

    header: Header
    digital: NDArray[np.int64]
    valid: NDArray[np.bool_]

    def millivolts(self, lead: int) -> NDArray[np.float64]:
        """The values (length,) of one lead in mV, NaN where invalid; exactly those of the `wfdb` package."""
        about = self.header.leads[lead]
        values = (self.digital[:, lead].astype(np.float64) - about.baseline) / about.gain
        if about.millivolts != 1.0:
            values *= about.millivolts
        values[~self.valid[:, lead]] = np.nan
        return values

    def damaged(self) -> list[str]:
        """The names of leads whose samples do not add up to the checksum in the header."""
        if self.header.length is None:  # without a length, the format says, checksums mean nothing
            return []
        sums = self.digital.sum(axis=0)
        return [
            lead.name
            for lead, total in zip(self.header.leads, sums.tolist(), strict=True)
            if lead.checksum is not None and (total - lead.checksum) % 2**16
        ]


def read_record(files: Tree, record: str) -> Recording:
    """The samples of ``<record>.hea`` and of the files that it names, which lie beside it.

    Raises DataError naming the record where a file is shorter or longer than its header says, or the header
    cannot be read.
    """
    header = parse_header(files.read(f"{record}.hea"), record)
    folder = record.rpartition("/")[0]
    content = {
        name: files.read(f"{folder}/{name}" if folder else name)
        for name in dict.fromkeys(lead.file for lead in header.leads)
    }
    length = _length(header, content)
    if length is not None:
        _check_sizes(header, content, length)
    if length is not None and len(content) == 1 and all(lead.plain for lead in header.leads):
        return _plain(header, next(iter(content.values())), length)
    return _by_wfdb(header, content)


def _length(header: Header, content: Mapping[str, bytes]) -> int | None:
    """Frames as given, else as many as the first file holds; None where its format does not tell."""
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
        if expected is not None and len(data) != expected:
            raise DataError(
                f"record {header.record}: {name} has {len(data):,} bytes instead of the {expected:,}"
                f" of {length:,} samples"
            )
    if not length:
        raise DataError(f"record {header.record}: has no samples")


def _plain(header: Header, data: bytes, length: int) -> Recording:
    stored = np.frombuffer(data, "<i2").reshape(length, len(header.leads))
    return Recording(header, stored.astype(np.int64), stored != INVALID)


def _by_wfdb(header: Header, content: Mapping[str, bytes]) -> Recording:
    """Let `wfdb` decode: it reads files on disk only, beside a header that holds no more than it needs."""
    import wfdb

    numbers = {name: number for number, name in enumerate(content)}
    with tempfile.TemporaryDirectory() as folder:
        for name, number in numbers.items():
            (Path(folder) / f"s{number}.dat").write_bytes(content[name])
        lines = [f"r {len(header.leads)} {header.rate:.17g} {header.length or ''}"]
        lines += [f"s{numbers[lead.file]}.dat {lead.storage} 200 16" for lead in header.leads]
        (Path(folder) / "r.hea").write_text("\n".join(lines) + "\n", encoding="ascii")
        try:
            found = wfdb.rdrecord(f"{folder}/r", physical=False)
            valid = ~np.isnan(found.dac())
        except Exception as error:  # what it raises on bad input is not documented, and not of one kind
            raise DataError(f"record {header.record}: cannot be decoded: {error}") from error
    return Recording(header, found.d_signal.astype(np.int64), valid)
