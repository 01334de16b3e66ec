"""Growth over the length and the states, for the kernel in use."""

import pytest
from bench_cases import silent

from msbench.analysis.benchmarks import scaling
from msbench.analysis.benchmarks.problem import Size
from msbench.analysis.benchmarks.settings import Settings
from msbench.ops.scan.dispatch import choose_kernel


def test_each_line_refers_to_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [Size(1, length, 2, 3, 4) for length in (4, 16)]
    monkeypatch.setattr(scaling, "tables", lambda quick: [("l", sizes)] if quick else [])
    (table,) = scaling.measure(Settings(repeats=3, quick=True), silent)
    assert table["engine"] == choose_kernel("cpu").engine
    first, second = table["rows"]
    assert first["size"]["l"] == 4
    assert first["forward_ratio"] is None
    for mode in ("forward", "forward_backward"):
        assert second[f"{mode}_ratio"] == pytest.approx(second[mode]["median"] / first[mode]["median"])


def test_a_size_that_fails_leaves_the_others() -> None:
    def fail() -> None:
        raise MemoryError

    made = scaling.task(fail, Settings())
    found = scaling.line(Size(), {"forward": made}, {})
    assert found["error"] == "out of memory"
    assert "forward" not in found
    after = scaling.line(Size(), {"forward": scaling.task(lambda: None, Settings())}, found)
    assert "error" in after  # never timed


def test_default_tables_have_lengths_in_steps_of_four() -> None:
    (by_length, by_states) = scaling.tables(quick=False)
    assert [size.l for size in by_length[1]] == [256, 1024, 4096, 16384]
    assert [size.n for size in by_states[1]] == [1, 16, 26, 64, 128, 256]
    assert {size.b for _, sizes in (by_length, by_states) for size in sizes} == {1}
