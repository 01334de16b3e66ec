"""Tables of a document: narrow enough for a terminal, whole, with the reasons for missing rows."""

from typing import Any

import pytest
from bench_cases import SMALL, broken, contender, document, modest_rates, row, silent, wrong

from msbench.analysis.benchmarks import terminal
from msbench.analysis.benchmarks.bounds import make_cpu_rates, make_gpu_rates
from msbench.analysis.benchmarks.command import build_document, compare_documents
from msbench.analysis.benchmarks.options import BenchmarkOptions
from msbench.analysis.benchmarks.scan import MODES, measure_scan
from msbench.analysis.benchmarks.step import measure_steps
from msbench.analysis.benchmarks.step_models import SHAPES, make_deep_shape

OPTIONS = BenchmarkOptions(repeats=3, scaling=False, size=SMALL)
LONGEST = 80


def at_a_terminal(table: terminal.Table) -> int:
    """Characters of a line as rich draws it: three a column, and one."""
    _, header, rows = table
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return sum(widths) + 3 * len(widths) + 1


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    modest_rates(monkeypatch)
    who = [
        contender("reference"),
        contender("accelerated-scan"),
        contender("wrong", wrong),
        contender("broken", broken),
    ]
    return build_document(OPTIONS, 1.0, measure_scan(OPTIONS, silent, who))


def test_tables_of_the_scan_fit_a_terminal(found: dict[str, Any]) -> None:
    for median in (1e-5, 12.3456):
        for one in found["rows"][:2]:
            for mode in MODES:
                one[mode] |= {"median": median, "p20": median * 0.98, "p80": median * 1.02, "cpu": 2 * median}
        tables = [table for table in terminal.list_tables(found) if table[2]]
        assert len(tables) == 5
        assert max(map(at_a_terminal, tables)) <= LONGEST


def test_rows_without_times_are_printed_with_their_reasons(
    found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.print_document(found)
    text = capsys.readouterr().out
    assert "wrong: INVALID: its gradient of A is off by 5.0e-01 (more than 1e-04)" in text
    assert "broken: failed: RuntimeError: no kernel image" in text
    assert "wrong  " not in text
    assert "60 states" not in text
    assert "12 states per channel" in text


def test_shares_and_bounds_are_named(found: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    found["rates"] = dict(make_cpu_rates((14.3e9, 7.41e9), (46.8e9, 36.8e9)).facts)
    for mode, share in (("forward", 0.62), ("forward_backward", 1.0)):
        found["rows"][0][mode] |= {"bound": "registers", "of_bound": share}
    found["rows"][1]["forward"] |= {"bound": "memory", "of_bound": 0.005}
    found["rows"][1]["forward_backward"] |= {"bound": None, "of_bound": None}
    terminal.print_document(found)
    text = capsys.readouterr().out
    for best in ("14.3 G forward updates/s", "7.41 G backward updates/s", "36.8 G backward bytes/s"):
        assert f"at best: {best}\n" in text
    assert [" ".join(line.split()[-3:]) for line in text.splitlines() if "registers" in line] == [
        "62.0% 100.0% registers",
        "measured in turns",
    ]
    assert "0.5%     --      memory/--" in text
    lines = [line for line in text.splitlines() if line.startswith(("at best", "bound "))]
    assert [line.split(":")[0] for line in lines] == ["at best"] * 4 + ["bound registers", "bound memory"]
    assert max(map(len, lines)) <= LONGEST


def test_the_best_of_a_gpu_and_of_no_library_are_named_too() -> None:
    assert terminal.format_rates(make_gpu_rates(1e12, 3e12).facts) == [
        "at best: 128000 G instructions/s",
        "at best: 16000 G exp/s",
        "at best: 3000 G copy bytes/s",
    ]
    assert terminal.format_rates({"source": "no bounds: why"}) == ["no bounds: why"]
    lines = [f"bound {name}: {meaning}" for name, meaning in terminal.BOUNDS.items()]
    assert max(map(len, lines)) <= LONGEST


def test_without_the_loop_there_is_no_ratio_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    modest_rates(monkeypatch)
    made = measure_scan(OPTIONS, silent, [contender("alone")])
    (one,) = made["rows"]
    assert terminal.format_speedup(one, "over_loop", "forward") == "--"
    one["peak_bytes"] = None
    one["peak_per_input"] = None
    (memory,) = (table for table in terminal.list_tables(made | {"what": "scan"}) if "MiB" in table[1])
    assert memory[2][0][1:3] == ["--", "--"]
    assert terminal.format_flag(None) == "--"


def test_tables_of_steps_fit_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = ("model.layers=1", "model.d_model=8", "model.state=5")
    monkeypatch.setitem(SHAPES, "tiny", lambda: make_deep_shape(2, 1024, *tiny))
    options = BenchmarkOptions(what="step", repeats=3, shapes=("tiny",))
    made = build_document(options, 1.0, measure_steps(options, silent))
    made["rows"][0]["step"] |= {"median": 123.456, "p20": 120.0, "p80": 130.0}
    tables = [table for table in terminal.list_tables(made) if table[2]]
    assert len(tables) == 3
    assert max(map(at_a_terminal, tables)) <= LONGEST


def test_a_comparison_fits_too() -> None:
    size = {"b": 50, "l": 16384, "m": 5, "d": 1024, "n": 128}
    one = row("accelerated-scan", size=size)
    compared = compare_documents(document(one, row("new")), document(one))
    table = terminal.make_comparison_table(compared)
    assert [line[-1] for line in table[2]] == ["same", "same", "only now"]
    assert at_a_terminal(table) <= LONGEST


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1e-6, "0.001"), (0.001234, "1.23"), (0.0123, "12.3"), (0.99, "990"), (9.0, "9000")],
)
def test_three_digits_that_count(seconds: float, text: str) -> None:
    assert terminal.format_ms(seconds) == text
