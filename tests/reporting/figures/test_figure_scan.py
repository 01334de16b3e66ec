"""The benchmark of the scan drawn: what is read of a document, and what the pictures hold."""

import json
from pathlib import Path
from typing import Any

import pytest
from figure_values import points_of

from msbench.reporting.figures.scan import (
    Scan,
    draw_backends,
    draw_lengths,
    parse_scan,
    read_scan,
)
from msbench.reporting.figures.style import apply_style

SIZE = {"b": 2, "l": 8, "d": 4, "m": 5, "n": 26}


def times(seconds: float) -> dict[str, float]:
    return {"median": seconds, "p20": seconds / 2, "p80": seconds * 2}


def measured(name: str, seconds: float, **changes: Any) -> dict[str, Any]:
    both = {"forward": times(seconds), "forward_backward": times(3 * seconds)}
    return {
        "name": name,
        "label": name,
        "status": "measured",
        "size": SIZE,
        "peak_bytes": 640,
        **both,
        **changes,
    }


def length(l: int, **changes: Any) -> dict[str, Any]:  # noqa: E741
    return {
        "size": {**SIZE, "l": l},
        "forward": times(l * 1e-3),
        "forward_backward": times(l * 4e-3),
        **changes,
    }


def values(**changes: Any) -> dict[str, Any]:
    made = {
        "schema": "msbench-bench",
        "schema_version": 1,
        "what": "scan",
        "ended": "2026-01-02T03:04:05+00:00",
        "device": {"type": "cpu", "name": "A Processor"},
        "threads": 2,
        "size": SIZE,
        "rows": [
            {"name": "triton", "label": "", "status": "skipped", "reason": "no GPU"},
            measured("slow", 1e-3),
            measured("fast", 1e-6),
            measured("short", 1e-5, size={**SIZE, "b": 1, "l": 4}, peak_bytes=None),
        ],
        "scaling": [
            {"engine": "cpp", "varied": "l", "rows": [length(16), length(64)]},
            {"engine": "cpp", "varied": "n", "rows": [length(16)]},
        ],
    }
    return {**made, **changes}


def found(**changes: Any) -> Scan:
    return parse_scan("scan-cpu", values(**changes))


def test_rows_of_a_document() -> None:
    one = found()
    assert one.machine == "A Processor, 2 threads, 2026-01-02"
    assert one.notes == ("triton: not measured: no GPU",)
    assert [(each.engine, each.mode, each.l, each.seconds, each.p20, each.p80) for each in one.lengths] == [
        ("cpp", "forward", 16, 0.016, 0.008, 0.032),
        ("cpp", "forward", 64, 0.064, 0.032, 0.128),
        ("cpp", "forward_backward", 16, 0.064, 0.032, 0.128),
        ("cpp", "forward_backward", 64, 0.256, 0.128, 0.512),
    ]
    each: dict[tuple[str, str], Any] = {
        (row.name, row.mode): (row.nanoseconds_each, row.bytes_each) for row in one.backends
    }
    # 2 · 8 · 4 channels of tokens, and 1 · 4 · 4 of the short one.
    assert each == {
        ("fast", "forward"): (pytest.approx(15.625), 10.0),
        ("fast", "forward_backward"): (pytest.approx(46.875), 10.0),
        ("short (b 1, l 4)", "forward"): (pytest.approx(625.0), None),
        ("short (b 1, l 4)", "forward_backward"): (pytest.approx(1875.0), None),
        ("slow", "forward"): (pytest.approx(15625.0), 10.0),
        ("slow", "forward_backward"): (pytest.approx(46875.0), 10.0),
    }


def test_a_gpu_has_no_threads() -> None:
    assert found(device={"type": "cuda", "name": "NVIDIA H100"}).machine == "NVIDIA H100, 2026-01-02"


def test_the_picture_over_the_length_holds_the_rows() -> None:
    one = found()
    with apply_style():
        [axes] = draw_lengths(one.lengths).axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    curves = [points_of(line) for line in axes.get_lines()]
    assert curves[:2] == [
        [(row.l, row.seconds) for row in one.lengths if row.mode == mode]
        for mode in ("forward", "forward_backward")
    ]
    (first, low), (last, high) = curves[2]
    assert high / low == last / first == 4
    [ticks] = [[text.get_text() for text in axes.get_xticklabels()]]
    assert ticks == ["16", "64"]


def test_memory_over_the_length_is_drawn_where_it_was_measured() -> None:
    rows = [length(16, peak_bytes=100), length(64, peak_bytes=400)]
    one = found(scaling=[{"engine": "cpp", "varied": "l", "rows": rows}])
    with apply_style():
        times_, memory = draw_lengths(one.lengths).axes
    assert times_.get_ylabel() == "time of a call"
    assert points_of(memory.get_lines()[0]) == [(16, 100), (64, 400)]


def test_the_picture_of_backends_holds_the_rows() -> None:
    one = found()
    with apply_style():
        left, right = draw_backends(one.backends).axes
    names = [text.get_text() for text in left.get_yticklabels()]
    assert names == ["fast", "short (b 1, l 4)", "slow"]
    for line, mode in zip(left.get_lines(), ("forward", "forward_backward"), strict=True):
        expected = [(row.nanoseconds_each, names.index(row.name)) for row in one.backends if row.mode == mode]
        assert points_of(line) == expected
    assert points_of(right.get_lines()[0]) == [(10.0, 0), (10.0, 2)]


def test_a_document_with_nothing_measured_has_no_rows() -> None:
    one = found(rows=[], scaling=None)
    assert (one.lengths, one.backends, one.notes) == ((), (), ())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "no JSON"),
        ("[" * 500 + "]" * 500, "nested too deeply"),
        ("[]", "not written by `msbench bench --out`"),
        ("{}", "not written by `msbench bench --out`"),
        (json.dumps(values(what="step")), "of `bench step`, not of `bench scan`"),
        (json.dumps(values(schema_version=9)), "schema version 9, this is 1"),
        (json.dumps(values(rows=[{"name": "x"}])), "rows.0.status: Field required"),
        (json.dumps(values(rows=[measured("x", 1.0, size={**SIZE, "b": 0})])), "rows.0.size.b"),
        (json.dumps(values(rows=[measured("x", 1.0, size={})])), "no 'b'"),
        (json.dumps(values(device={"type": "cpu", "name": 3})), "device.name"),
    ],
)
def test_an_invalid_file_is_reported(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "scan-cpu.json"
    path.write_text(content, encoding="utf-8")
    one, message = read_scan(path)
    assert one is None
    assert message.startswith(f"{path}: no benchmark of the scan: ")
    assert problem in message


def test_the_published_documents_can_be_drawn() -> None:
    [path] = (Path(__file__).parents[3] / "results" / "bench").glob("scan*.json")
    one, problem = read_scan(path)
    assert problem == ""
    assert one is not None
    assert {row.mode for row in one.lengths} == {"forward", "forward_backward"}
    assert "cpp-avx512" in {row.name for row in one.backends}


def test_times_in_words() -> None:
    [path] = (Path(__file__).parents[3] / "results" / "bench").glob("scan*.json")
    one, _ = read_scan(path)
    assert one is not None
    words = draw_lengths(one.lengths).axes[0].yaxis.get_major_formatter()
    expected = {2.0: "2 s", 1.0: "1 s", 0.1: "100 ms", 1e-3: "1 ms", 2e-6: "2 µs", 5e-9: "5 ns"}
    assert {seconds: words(seconds) for seconds in expected} == expected
