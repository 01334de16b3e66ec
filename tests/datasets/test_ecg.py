from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ecg_files import memory, signal, sums
from numpy.typing import NDArray

from msbench.datasets.ptbxl.ecg import LEADS, Blocks, read_all, read_ecg
from msbench.errors import DataError

SHUFFLED = ("I", "II", "V1", "V2", "V3", "V4", "V5", "V6", "III", "AVR", "avl", "aVf")


def ecg(digital: NDArray[np.int16], **options: Any) -> NDArray[np.float64]:
    return read_ecg(memory(digital, **options), "r").signal


def test_leads_are_placed_by_name_whatever_their_order_and_case() -> None:
    digital = signal()
    order = [[name.lower() for name in SHUFFLED].index(name.lower()) for name in LEADS]
    assert np.array_equal(ecg(digital, leads=SHUFFLED), digital[:, order] / 1000)
    assert np.array_equal(ecg(digital), digital / 1000)


@pytest.mark.parametrize(
    ("leads", "fault"),
    [
        ((*LEADS[:5], "V1", *LEADS[6:]), "lacks aVF, has V1 twice"),
        ((*LEADS[:5], "V7", *LEADS[6:]), "lacks aVF; its leads are I, II, III, aVR, aVL, V7"),
        ((*LEADS[:11], ""), r"lacks V6; its leads are .*\(no name\)"),
        (LEADS[:11], "lacks V6"),
    ],
)
def test_a_lead_that_is_missing_or_repeated_is_refused(leads: tuple[str, ...], fault: str) -> None:
    files = memory(signal(leads=len(leads)), leads=leads)
    with pytest.raises(DataError, match=f"^record r: {fault}"):
        read_ecg(files, "r")


def test_leads_beyond_the_twelve_are_left_out_and_counted() -> None:
    digital = signal(leads=15)
    found = read_ecg(memory(digital, leads=("VX", *LEADS, "VY", "VZ")), "r")
    assert np.array_equal(found.signal, digital[:, 1:13] / 1000)
    assert found.repairs == Counter(other_leads_ignored=3)


def test_invalid_samples_are_filled_between_their_neighbours() -> None:
    digital = signal()
    digital[:, 8] = 0
    digital[[10, 14], 8] = 100, 500
    digital[11:14, 8] = digital[:2, 0] = digital[998:, 0] = -(2**15)
    found = read_ecg(memory(digital), "r")
    np.testing.assert_allclose(found.signal[10:15, 8], [0.1, 0.2, 0.3, 0.4, 0.5])
    assert set(found.signal[:3, 0]) == {digital[2, 0] / 1000}
    assert set(found.signal[997:, 0]) == {digital[997, 0] / 1000}
    assert found.repairs == Counter(samples_filled=7)
    kept = np.delete(np.arange(12), [0, 8])
    assert np.array_equal(found.signal[:, kept], digital[:, kept] / 1000)


def test_a_lead_without_any_sample_is_0_and_counted() -> None:
    digital = signal()
    digital[:, 4] = -(2**15)
    found = read_ecg(memory(digital), "r")
    assert not found.signal[:, 4].any()
    assert found.repairs == Counter(leads_without_a_sample=1)


def test_uncalibrated_leads_are_counted() -> None:
    digital = signal()
    assert read_ecg(memory(digital, gain="0"), "r").repairs == Counter(uncalibrated_leads=12)
    assert read_ecg(memory(digital), "r").repairs == Counter()


def test_a_wrong_checksum_is_an_error_that_names_the_record_and_its_leads() -> None:
    digital = signal()
    totals = sums(digital)
    totals[7] += 1
    expected = rf"^record r: samples do not add up .*: V2 \({totals[7] - 1} instead of {totals[7]}\);"
    with pytest.raises(DataError, match=expected):
        read_ecg(memory(digital, checksums=totals), "r")
    # A lead that nobody asks for is in the same file.
    more = memory(digital[:, [*range(12), 0]], leads=[*LEADS, "VX"], checksums=[*sums(digital), 1])
    with pytest.raises(DataError, match=r"VX \(\d+ instead of 1\)"):
        read_ecg(more, "r")


@pytest.mark.parametrize(
    ("gain", "factor"), [("1000/mV", 1.0), ("1/uV", 1.0), ("5/V", 200e3), ("0/µV", 5e-3)]
)
def test_signals_are_in_millivolts(gain: str, factor: float) -> None:
    digital = signal()
    np.testing.assert_allclose(ecg(digital, gain=gain), digital * factor / 1000, rtol=1e-12)


def tone(hertz: float, rate: float, seconds: int = 10) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate)
    return found


def sampled(values: NDArray[np.float64]) -> NDArray[np.int16]:
    return np.rint(np.tile(values[:, None], 12) * 10_000).astype("<i2")


@pytest.mark.parametrize("rate", [500, 250, 360, 1000, 50])
def test_other_rates_become_100_hz(rate: int) -> None:
    found = ecg(sampled(tone(5, rate)), rest=f"{rate} {rate * 10}")
    assert found.shape == (1000, 12)
    assert np.abs(found[30:-30, 6] - 10 * tone(5, 100)[30:-30]).max() < 0.1


def test_what_100_hz_cannot_hold_is_filtered_before() -> None:
    found = ecg(sampled(tone(120, 500)), rest="500 5000")
    assert np.abs(found[30:-30]).max() < 0.1, "a tone of 120 Hz would show as one of 20 Hz"


def test_a_constant_stays_one_to_its_ends() -> None:
    digital = np.full((5000, 12), 700, "<i2")
    np.testing.assert_allclose(ecg(digital, rest="500 5000"), 0.7, rtol=1e-6)


def test_one_invalid_sample_does_not_spread_when_resampled() -> None:
    clean = sampled(tone(5, 500))
    marked = clean.copy()
    marked[2500, 3] = -(2**15)
    difference = np.abs(ecg(clean, rest="500 5000") - ecg(marked, rest="500 5000"))
    assert np.isfinite(difference).all()
    assert difference.max() < 0.02
    assert not difference[:, np.arange(12) != 3].any()


@pytest.mark.parametrize(
    ("steps", "rest", "fault"),
    [
        (999, "100 999", "has 9.99 s at 100 Hz instead of 10 s"),
        (1000, "500 1000", "has 2 s at 500 Hz instead of 10 s"),
        (1000, "", "has 4 s at 250 Hz instead of 10 s"),
    ],
)
def test_what_is_not_ten_seconds_long_is_refused(steps: int, rest: str, fault: str) -> None:
    with pytest.raises(DataError, match=f"record r: {fault}"):
        ecg(signal(steps=steps), rest=rest)


@pytest.mark.parametrize(
    "gain", ["1e400/mV", "-1e400/mV", "1e300/mV", "1e-307/mV", "1e-400/mV", "0.0001e-400"]
)
def test_a_gain_that_makes_no_numbers_is_refused(gain: str) -> None:
    with pytest.raises(DataError, match=r"^record r: signal 1: gain .* is out of range"):
        ecg(signal(), gain=gain)


def test_numbers_that_are_too_large_for_models_are_refused() -> None:
    """They are finite in float64, in which they are computed, and not in float32, in which they are kept."""
    with pytest.raises(DataError, match=r"^record r: .*numbers that are too large"):
        ecg(signal(), gain="1e-30(2147483647)/V")


def written(folder: Path, count: int, **options: Any) -> Blocks:
    for number in range(count):
        for name, data in memory(signal(number), name=f"r{number}", **options).content.items():
            (folder / name).write_bytes(data)
    return Blocks(folder, [f"r{number}" for number in range(count)])


@pytest.mark.parametrize("processes", [1, 2])
def test_blocks_come_in_order_whatever_the_processes(processes: int, tmp_path: Path) -> None:
    found = list(read_all(written(tmp_path, 130), processes))
    assert [len(block) for block, _ in found] == [64, 64, 2]
    values = np.concatenate([block for block, _ in found])
    assert values.dtype == np.int16
    assert all(np.array_equal(values[number], signal(number)) for number in range(130))


def test_other_gains_are_stored_as_they_are(tmp_path: Path) -> None:
    [(block, repairs)] = read_all(written(tmp_path, 2, gain="0/mV"), 1)
    assert block.dtype == np.float32
    np.testing.assert_allclose(block[1], signal(1) / 200, rtol=1e-6)
    assert repairs == Counter(uncalibrated_leads=24)


def test_resampled_values_beyond_16_bits_do_not_wrap() -> None:
    digital = np.full((5000, 12), 32767, "<i2")
    digital[2500:] = -32767
    block, _ = Blocks(Path(), ["r"]).read(memory(digital, rest="500 5000"), 0)
    assert block.dtype == np.float32, "the filter overshoots at a step"
    assert block.max() > 32.767
