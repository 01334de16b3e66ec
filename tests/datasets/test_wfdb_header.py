import pytest
from ecg_files import header

from msbench.datasets.ptbxl.wfdb_header import parse_header
from msbench.errors import DataError


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
