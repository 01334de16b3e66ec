"""Documents beside older ones: verdicts by hand-made spreads."""

import pytest
from bench_cases import document, row, spread

from msbench.analysis.benchmarks.comparison import SMALLEST, change, compare


@pytest.mark.parametrize(
    ("now", "then", "verdict"),
    [
        (spread(1.0), spread(1.0), "same"),
        (spread(1.0 + 0.9 * SMALLEST), spread(1.0), "same"),
        (spread(1.1), spread(1.0), "slower"),
        (spread(0.9), spread(1.0), "faster"),
        (spread(1.1, 0.1), spread(1.0), "same"),
        (spread(1.1), spread(1.0, 0.1), "same"),
        (spread(1.1, 0.06), spread(1.0, 0.06), "slower"),
        (spread(2.0, 0.5), spread(1.0, 0.5), "slower"),
    ],
)
def test_a_change_counts_outside_both_spreads(
    now: dict[str, float], then: dict[str, float], verdict: str
) -> None:
    found = change(now, then)
    assert found["verdict"] == verdict
    assert found["ratio"] == pytest.approx(now["median"] / then["median"])
    back = change(then, now)["verdict"]
    assert back == {"slower": "faster", "faster": "slower", "same": "same"}[verdict]


def test_rows_are_matched_by_name_and_size() -> None:
    bigger = row("cpp", 8.0) | {"size": {"b": 8, "l": 8, "m": 2, "d": 4, "n": 3}}
    found = compare(document(row("cpp", 2.0), row("torch")), document(row("cpp", 1.0), bigger))
    lines = {(line["row"], line.get("mode", "")): line for line in found["rows"]}
    name = "cpp 1x8x2x4x3"
    assert lines[(name, "forward")]["ratio"] == 2.0
    assert lines[(name, "both")]["verdict"] == "slower"
    assert lines[("torch 1x8x2x4x3", "")]["verdict"] == "only now"
    assert lines[("cpp 8x8x2x4x3", "")]["verdict"] == "only before"
    assert len(found["rows"]) == 4


def test_rows_that_were_not_measured() -> None:
    bad = {"name": "cpp", "status": "invalid", "reason": "off", "size": row("cpp")["size"]}
    found = compare(document(bad), document(row("cpp")))
    assert [line["verdict"] for line in found["rows"]] == ["invalid, was measured"]
    assert compare(document(bad), document(bad))["rows"] == []
    skipped = {"name": "cpp", "status": "skipped", "reason": "no compiler"}
    found = compare(document(skipped), document(row("cpp")))
    assert [line["verdict"] for line in found["rows"]] == ["only before"]


def test_rows_that_were_not_asked_for_are_no_news() -> None:
    asked = document(row("cpp"), settings={"only": ["cpp"]})
    found = compare(asked, document(row("cpp"), row("torch")))
    assert {line["row"] for line in found["rows"]} == {"cpp 1x8x2x4x3"}


def test_steps_are_told_apart_by_their_shape() -> None:
    one = {
        "shape": "quick",
        "name": "mamba/16",
        "status": "measured",
        "size": {"b": 2, "l": 9},
        "step": spread(1.0),
    }
    other = {**one, "shape": "deep", "step": spread(3.0)}
    found = compare(document(one, other), document(other, one))
    assert [(line["row"], line["mode"], line["verdict"]) for line in found["rows"]] == [
        ("quick mamba/16 2x9", "step", "same"),
        ("deep mamba/16 2x9", "step", "same"),
    ]


def test_other_conditions_are_said() -> None:
    old = document(row("cpp"), threads=1, device={"type": "cpu", "name": "Another"})
    found = compare(document(row("cpp")), old)
    assert found["differences"] == [
        "name of the device: A processor, was Another",
        "threads: 2, was 1",
    ]
    assert compare(document(), document())["differences"] == []
