"""What a report reads of many run folders: counted, as times depend on the machine.

``python tests/reporting/many_runs.py FOLDER`` makes 10,000, to time ``msbench report --results FOLDER`` on.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from many_runs import write_many
from report_runs import read_report

from msbench.results import files, store

COUNT = 500


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    results = tmp_path_factory.mktemp("many")
    return results, write_many(results, COUNT)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[Path]:
    """How often each file was read."""
    counts: Counter[Path] = Counter()

    def counting(plain: Callable[..., Any]) -> Callable[..., Any]:
        def opening(path: Path, *options: Any, **more: Any) -> Any:
            counts[path] += 1
            return plain(path, *options, **more)

        return opening

    monkeypatch.setattr(Path, "open", counting(Path.open))
    monkeypatch.setattr("msbench.results.record.read_bytes", counting(files.read_bytes))
    return counts


def test_each_record_is_read_once_whatever_tables_show_it(
    many: tuple[Path, dict[str, int]], opened: Counter[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    results, states = many
    tables = read_report([], results).tables
    inside = {path: times for path, times in opened.items() if path.is_relative_to(results)}
    assert len(inside) == COUNT
    assert set(inside.values()) == {1}
    assert {path.name for path in inside} == {"run.json"}
    assert {times for path, times in opened.items() if path.suffix == ".yaml"} == {1}
    assert len(tables) > 6
    assert capsys.readouterr().err.count("not a run record") == states["damaged"]


def test_one_table_reads_the_runs_of_its_suites_alone(
    many: tuple[Path, dict[str, int]], opened: Counter[Path]
) -> None:
    results, _ = many
    read_report(["listops"], results)
    inside = {path.relative_to(results).parts[0] for path in opened if path.is_relative_to(results)}
    assert inside == {"listops"}


def test_no_run_is_lost(many: tuple[Path, dict[str, int]]) -> None:
    results, states = many
    loaded = read_report([], results)
    found = Counter(record.status for records in loaded.records.values() for record in records)
    assert found == {state: n for state, n in states.items() if state not in ("damaged", "not ended")}
    assert len(store.list_run_folders(results).folders) == COUNT


def test_a_report_imports_nothing_that_trains(many: tuple[Path, dict[str, int]]) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from msbench.reporting.render.terminal import print_tables\n"
        "from msbench.reporting.tables.load import ReportOptions, load_report\n"
        "options = ReportOptions(names=['paper'], results=Path(sys.argv[1]))\n"
        "print_tables(load_report(options).tables)\n"
        "heavy = {'torch', 'pandas', 'pyarrow', 'scipy', 'matplotlib', 'lightning_fabric', 'jinja2'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(many[0])], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
