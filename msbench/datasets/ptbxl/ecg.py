"""Twelve-lead electrocardiograms of ten seconds, converted to one form by these rules.

1. Leads are placed by name, whatever their order and case; a record that lacks one or has one twice is
   refused, and leads beyond the twelve are left out.
2. Samples marked invalid are interpolated linearly between their neighbours, at an end replaced by the
   nearest sample; a lead without any valid sample becomes 0. So no NaN reaches a model.
3. Any other rate is resampled to 100 Hz with an anti-aliasing filter, after the filling, as one NaN would
   spread over the whole lead. A record that is not ten seconds long is refused.
4. Samples that do not add up to the checksum in their header are damaged, which is an error.

All changes by these rules are counted.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.archive import FileTree, open_tree
from msbench.datasets.parallel import run_in_order
from msbench.datasets.ptbxl.wfdb_records import InvalidRecord, Lead, Recording, name_record, read_record

LEADS = ("I", "II", "III", "aVR", "aVL", "aVF", "V1", "V2", "V3", "V4", "V5", "V6")
RATE = 100
STEPS = 1000
UNITS_PER_MILLIVOLT = 1000
"""The resolution of integer storage, which is PTB-XL's own."""
BLOCK = 64

Stored = NDArray[np.int16] | NDArray[np.float32]


@dataclass(frozen=True)
class Ecg:
    """An electrocardiogram: `signal` (1000, 12) float64 in mV, leads in the order of `LEADS`.

    `exact` is True if the record itself counts in thousandths of mV; `repairs` counts the uses of each rule.
    """

    signal: NDArray[np.float64]
    exact: bool
    repairs: Counter[str]


def read_ecg(files: FileTree, record: str) -> Ecg:
    """Read one record by the rules above. Raises DataError naming it."""
    with name_record(record):
        return _convert_recording(read_record(files, record))


def _convert_recording(samples: Recording) -> Ecg:
    leads = samples.header.leads
    chosen = _place_leads(leads)
    repairs = Counter(
        uncalibrated_leads=sum(not leads[index].calibrated for index in chosen),
        other_leads_ignored=len(leads) - len(chosen),
    )
    columns = [_fill_gaps(samples.millivolts(index), repairs) for index in chosen]
    signal = _resample(np.stack(columns, axis=1), samples.header.rate)
    with np.errstate(over="ignore"):
        finite = np.isfinite(signal.astype(np.float32)).all()  # models read float32
    if not finite:
        raise InvalidRecord("a gain turns its samples into numbers that are too large")
    return Ecg(signal, all(_counts_thousandths(leads[index]) for index in chosen), +repairs)


def _place_leads(leads: Sequence[Lead]) -> list[int]:
    """Return the position of each of `LEADS` in the record."""
    names = [lead.name.lower() for lead in leads]
    faults = [f"lacks {name}" for name in LEADS if name.lower() not in names]
    faults += [f"has {name} twice" for name in LEADS if names.count(name.lower()) > 1]
    if faults:
        listed = ", ".join(lead.name or "(no name)" for lead in leads)
        raise InvalidRecord(f"{', '.join(faults)}; its leads are {listed}")
    return [names.index(name.lower()) for name in LEADS]


def _counts_thousandths(lead: Lead) -> bool:
    return lead.millivolts == 1.0 and lead.gain == UNITS_PER_MILLIVOLT and lead.baseline == 0


def _fill_gaps(values: NDArray[np.float64], repairs: Counter[str]) -> NDArray[np.float64]:
    """Return `values` (length,) with NaN replaced."""
    missing = np.isnan(values)
    if not missing.any():
        return values
    if missing.all():
        repairs["leads_without_a_sample"] += 1
        return np.zeros_like(values)
    repairs["samples_filled"] += int(missing.sum())
    positions = np.arange(len(values))
    return np.interp(positions, positions[~missing], values[~missing])


def _resample(values: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """Resample `values` (length, 12) to (1000, 12)."""
    if len(values) * RATE != STEPS * rate:
        raise InvalidRecord(f"has {len(values) / rate:g} s at {rate:g} Hz instead of 10 s")
    if rate == RATE:
        return values
    from scipy.signal import resample_poly

    ratio = Fraction(STEPS, len(values))
    # Beyond its ends a signal continues as a line, not as 0, which would distort its first and last samples.
    resampled: NDArray[np.float64] = resample_poly(
        values, ratio.numerator, ratio.denominator, axis=0, padtype="line"
    )
    return resampled


@dataclass(frozen=True)
class Blocks:
    """Records of a folder or an archive, in blocks of 64 that any process can read."""

    source: Path
    records: Sequence[str]

    def __len__(self) -> int:
        return -(-len(self.records) // BLOCK)

    def read(self, files: FileTree, number: int) -> tuple[Stored, Counter[str]]:
        """Return the signals (64 or fewer, 1000, 12) of a block, none for one after the last; and repairs.

        They are int16 in thousandths of mV where all records count so and fit, else float32 in mV.
        """
        found = [read_ecg(files, name) for name in self.records[number * BLOCK : (number + 1) * BLOCK]]
        repairs = sum((each.repairs for each in found), Counter[str]())
        signals = np.stack([each.signal for each in found]) if found else np.zeros((0, STEPS, len(LEADS)))
        return _choose_storage(signals, all(each.exact for each in found)), repairs

    def __call__(self, number: int) -> tuple[Stored, Counter[str]]:
        """Read a block in a worker process, which keeps the archive open until it ends."""
        return self.read(_open_once(self.source)[1], number)


@cache
def _open_once(source: Path) -> tuple[ExitStack, FileTree]:
    stack = ExitStack()
    return stack, stack.enter_context(open_tree(source))


def _choose_storage(signals: NDArray[np.float64], exact: bool) -> Stored:
    units = np.rint(signals * UNITS_PER_MILLIVOLT) if exact else None
    if units is not None and np.abs(units, out=np.empty_like(units)).max(initial=0) < 2**15:
        return units.astype(np.int16)
    return signals.astype(np.float32)


def read_all(blocks: Blocks, processes: int) -> Iterator[tuple[Stored, Counter[str]]]:
    """Yield every block in order, whatever `processes`. Raises DataError naming the record that is wrong."""
    processes = min(processes, len(blocks))
    if processes <= 1:
        with open_tree(blocks.source) as files:
            yield from (blocks.read(files, number) for number in range(len(blocks)))
        return
    work = run_in_order(blocks, processes)
    try:
        yield from islice(work, len(blocks))
    finally:
        work.close()
