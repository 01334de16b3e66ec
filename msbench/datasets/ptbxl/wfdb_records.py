"""Samples of WFDB records, from any source that provides files by name.

Plain 16-bit files, the most common, are decoded here; every other storage format by the `wfdb` package.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.archives import FileTree
from msbench.datasets.ptbxl.wfdb_header import SAMPLE_BITS, WHOLE, Header, Lead, parse_header
from msbench.errors import DataError

INVALID = -(2**15)
"""Value of a 16-bit sample where nothing was measured."""


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

    Raises DataError naming the record where a file is shorter or longer than its header says, its samples do
    not add up to the checksums in the header, or the header cannot be read.
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
            raise DataError(
                f"record {header.record}: {name} has {len(data):,} bytes instead of the {expected[0]:,}"
                f" of {length:,} samples"
            )
    if not length:
        raise DataError(f"record {header.record}: has no samples")


def _check_sums(header: Header, sums: Sequence[int]) -> None:
    """Raise DataError where the samples of a lead do not add up to its checksum, by the low 16 bits."""
    if header.length is None:  # by the format, checksums mean nothing without a length
        return
    wrong = [
        f"{lead.name or '(no name)'} ({total % 2**16} instead of {lead.checksum % 2**16})"
        for lead, total in zip(header.leads, sums, strict=True)
        if lead.checksum is not None and (total - lead.checksum) % 2**16
    ]
    if wrong:
        raise DataError(
            f"record {header.record}: samples do not add up to the checksums in its header:"
            f" {', '.join(wrong)}; its files are damaged or not of one version: get both again"
        )


def _plain(header: Header, data: bytes, length: int) -> Recording:
    stored = np.frombuffer(data, "<i2").reshape(length, len(header.leads))
    _check_sums(header, stored.sum(axis=0, dtype=np.int64).tolist())
    return Recording(header, stored.astype(np.float64), stored != INVALID)


def _by_wfdb(header: Header, content: Mapping[str, bytes]) -> Recording:
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
        lines += [f"s{numbers[lead.file]}.dat {_fields(lead)}" for lead in header.leads]
        (Path(folder) / "r.hea").write_text("\n".join(lines) + "\n", encoding="ascii")
        try:
            found = wfdb.rdrecord(f"{folder}/r", physical=False, smooth_frames=not framed, ignore_skew=True)
            values = found.dac(expanded=True) if framed else found.dac().T
        except Exception as error:  # wfdb documents no exception types for bad input
            raise DataError(f"record {header.record}: cannot be decoded: {error}") from error
    stored = found.e_d_signal if framed else found.d_signal.T
    samples = [np.asarray(each).astype(np.int64) for each in stored]
    _check_differences(header, samples)
    _check_sums(header, [int(each.sum()) for each in samples])
    columns = [
        _column(lead, number, ~np.isnan(value))
        for lead, number, value in zip(header.leads, samples, values, strict=True)
    ]
    digital, valid = zip(*columns, strict=True)
    return Recording(header, np.stack(digital, axis=1), np.stack(valid, axis=1))


def _fields(lead: Lead) -> str:
    """Return the fields of a lead's line needed for decoding; its units and gain are applied here."""
    checksum = "0" if lead.checksum is None else lead.checksum
    return f"{lead.storage} 200 {lead.resolution} {lead.zero} {lead.initial} {checksum} {lead.block}"


def _check_differences(header: Header, samples: Sequence[NDArray[np.int64]]) -> None:
    """Raise DataError where sums of differences may have exceeded 32 bits, where `wfdb` wraps around."""
    for lead, numbers in zip(header.leads, samples, strict=True):
        if lead.format == "8" and abs(lead.initial) + 128 * len(numbers) not in WHOLE:
            raise DataError(f"record {header.record}: initial value {lead.initial} leads beyond 32 bits")


def _column(
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
