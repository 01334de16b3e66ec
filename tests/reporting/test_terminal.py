import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from report_runs import ODD_NAMES, RULES, PlannedRun, SmallSuite, SuiteReported, build, printed, run
from rich.cells import cell_len

from msbench.reporting.render.terminal import print_tables, render_table
from msbench.reporting.tables.cells import Cell, Column, Row, Table

PRINTABLE = [name for name in ODD_NAMES if name.isprintable() and name.strip() == name and name]
TASKS = {
    "text": "Text",
    "retrieval": "Retrieval",
    "image": "Image",
    "pathfinder": "Pathfinder",
    "path-x": "Path-X",
}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def lra(name: str = "mamba") -> Table:
    specs = [PlannedRun(task, name, seed) for task in TASKS for seed in range(3)]
    cells = [
        printed("Mamba", "82.98", model=name, column=label, note=f"{label} is odd")
        for label in TASKS.values()
    ]
    suite = SmallSuite(reported=SuiteReported("listops", TASKS))
    return build(specs, [run(spec, 0.5 + spec.seed / 9) for spec in specs[:-1]], cells, suite)


def named(*names: str) -> Table:
    rows = tuple(Row(name, "", name, (Cell("59.60"),)) for name in names)
    return Table("t", "Title", "Caption.", (Column("a", "A"),), rows)


def test_reported_is_next_to_measured() -> None:
    specs = [PlannedRun("listops", name, seed) for name in ("mamba", "msssm-s6") for seed in range(2)]
    values = [0.36, 0.37, 0.62, 0.64]
    records = [run(spec, value, baselines=RULES) for spec, value in zip(specs, values, strict=True)]
    cells = [printed("Mamba", "38.02", model="mamba"), printed("S4", "59.60")]
    lines = render_table(build(specs, records, cells)).splitlines()
    at = lines.index("Model                 reported  measured")
    assert lines[at - 1] == "                      Accuracy (%)"
    assert lines[at + 2 : at + 10] == [
        "SSMs",
        "  Mamba               38.02     36.50±0.71 [a]",
        "  S4                  59.60     --",
        "Measured only",
        "  msssm-s6            --        63.0*±1.4",
        "Trivial rules",
        "  majority            --        17.00",
        "  root operator only  --        36.30",
    ]
    assert "*  best measured" in lines
    assert any(
        line.startswith("[a]  learned no more than the trivial rule 'root operator only'") for line in lines
    )


@pytest.mark.parametrize("width", [40, 80, 200])
def test_at_a_terminal_no_line_is_wider_than_it(width: int) -> None:
    for table in (lra(), lra("a-model-of-a-very-long-name-" * 3), named(*PRINTABLE, "模型" * 40)):
        stream = Terminal()
        print_tables([table], stream, width)
        plain = _without_escapes(stream.getvalue())
        assert max(map(cell_len, plain.splitlines())) <= width


def test_a_narrow_terminal_gets_parts_and_loses_no_value() -> None:
    stream = Terminal()
    print_tables([lra()], stream, 80)
    text = _without_escapes(stream.getvalue())
    assert text.count("82.98") == len(TASKS)
    assert text.count("Model") > 1
    assert all(label in text for label in TASKS.values())


def test_a_long_name_is_folded_at_a_terminal_not_cut() -> None:
    name = "".join(f"part{number:02}" for number in range(20))
    stream = Terminal()
    print_tables([named(name)], stream, 60)
    text = _without_escapes(stream.getvalue())
    body = text.partition("─\n")[2].partition("\n\n")[0]
    folded = [line.split("  ")[0] for line in body.splitlines()]
    assert len(folded) > 1
    assert "".join(folded) == name


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_name_breaks_between_words_only(width: int) -> None:
    names = ("msssm-gate-original-self", "10 None-linear SoftMax gate", "s4d-lin † modified: train.lr 0.008")
    columns = tuple(Column(task, task) for task in TASKS)
    rows = tuple(Row(name, "Group", name, (Cell("59.60"),) * len(columns)) for name in names)
    stream = Terminal()
    print_tables([Table("t", "Title", "Caption.", columns, rows)], stream, width)
    text = _without_escapes(stream.getvalue())
    for word in " ".join(names).split():
        assert text.split().count(word) == text.count("Model"), word


def test_a_pipe_gets_whole_lines_and_no_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"FORCE_COLOR": "1", "COLUMNS": "40", "GITHUB_ACTIONS": "true"}.items():
        monkeypatch.setenv(key, value)
    stream = io.StringIO()
    table = lra("a-model-of-a-very-long-name-" * 6)
    print_tables([table], stream)
    text = stream.getvalue()
    assert "\x1b" not in text
    [line] = [line for line in text.splitlines() if line.startswith("  Mamba")]
    assert line.count("82.98") == len(TASKS)
    assert table.caption in text.splitlines()


@pytest.mark.parametrize(("key", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_that_wants_none_gets_no_escapes(
    key: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(key, value)
    stream = Terminal()
    print_tables([lra()], stream, 80)
    assert "\x1b" not in stream.getvalue()
    assert "*" in stream.getvalue()


def test_the_best_is_bold_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    print_tables([lra()], stream, 80)
    assert "\x1b[1m61\x1b[0m" in stream.getvalue()
    assert "*" not in stream.getvalue()


def test_names_are_printed_verbatim() -> None:
    text = render_table(named(*PRINTABLE))
    for name in PRINTABLE:
        assert any(line.startswith(name) for line in text.splitlines()), name


def test_control_characters_are_shown_not_sent() -> None:
    text = render_table(named("\x1b[1mbold", "two\nlines", "a\u202eb"))
    assert "\\x1b[1mbold" in text
    assert "two\\nlines" in text
    assert "a\\u202eb" in text
    assert "\x1b" not in text


def test_an_ascii_stream_degrades_without_a_crash() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    print_tables([named("MS-SSM→δ", "mamba † x", "0.5 ± 0.1")], stream)
    lines = raw.getvalue().decode("ascii").splitlines()
    assert any(line.startswith(r"MS-SSM->\u03b4") for line in lines)
    assert any(line.startswith("mamba + x") for line in lines)
    assert any(line.startswith("0.5 +/- 0.1") for line in lines)


def test_a_legacy_locale_prints_and_ends_well(tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text(
        "from msbench.reporting.tables.cells import Cell, Column, Row, Table\n"
        "from msbench.reporting.render.terminal import print_tables\n"
        "row = Row('модель ±', '模型', '', (Cell('59.60'),))\n"
        "print_tables([Table('t', 'T → δ', 'C', (Column('a', 'A'),), (row,))])\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    assert b"59.60" in done.stdout
    assert done.stdout.isascii()


def _without_escapes(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)
