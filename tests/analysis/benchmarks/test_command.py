"""``msbench bench`` as a user meets it: tables, documents, refusals, exit codes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from bench_cases import modest_rates
from step_cases import tiny
from typer.testing import CliRunner, Result

from msbench.analysis.benchmarks import command
from msbench.analysis.benchmarks.options import QUICK_SIZE, BenchmarkOptions, resolve_flags
from msbench.analysis.benchmarks.problem import Size
from msbench.analysis.benchmarks.step_models import SHAPES
from msbench.cli import app
from msbench.errors import ConfigError, ExitCode

TINY = ("--b", "1", "--l", "4", "--m", "2", "--d", "4", "--n", "3", "--no-scaling", "--repeats", "3")


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    modest_rates(monkeypatch)


def bench(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


def test_tables_fit_80_columns_and_nothing_is_cut() -> None:
    done = bench("scan", *TINY)
    assert done.exit_code == 0, done.output
    assert "6 states per channel" in done.stdout
    tables = done.stdout.partition("accelerated-scan: ")[0]
    assert max(map(len, tables.splitlines())) <= 80
    for title in ("Time in ms", "x loop", "Memory beyond", "bound memory: "):
        assert title in done.stdout
    assert "accelerated-scan: skipped: its Triton kernel needs a CUDA device" in done.stdout
    assert "…" not in done.stdout
    assert "\x1b" not in done.stdout
    assert "round 1 of 3" in done.stderr
    assert "round" not in done.stdout


def test_a_document_on_stdout_and_in_a_file_then_compared_with(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "bench.json"
    first = bench("scan", *TINY, "--only", "reference", "--json", "--quiet", "--out", path)
    assert first.exit_code == 0, first.output
    assert first.stderr == ""
    found = json.loads(first.stdout)
    assert json.loads(path.read_text(encoding="utf-8")) == found
    assert [row["name"] for row in found["rows"]] == ["reference"]
    assert found["settings"]["repeats"] == 3
    second = bench("scan", *TINY, "--only", "reference", "--json", "-q", "--compare", path)
    lines = json.loads(second.stdout)["comparison"]["rows"]
    assert [line["mode"] for line in lines] == ["forward", "both"]
    assert all(line["verdict"] in ("same", "faster", "slower") for line in lines)
    old = found | {"threads": 99}
    path.write_text(json.dumps(old), encoding="utf-8")
    third = bench("scan", *TINY, "--only", "reference", "-q", "--compare", path)
    assert "Time over that of the older document" in third.stdout
    assert "not the same conditions: threads:" in third.stdout


def test_nothing_is_written_without_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert bench("scan", *TINY, "--only", "reference", "-q").exit_code == 0
    assert os.listdir(tmp_path) == []


def test_scaling_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [Size(1, length, 2, 3, 4) for length in (4, 16)]
    monkeypatch.setattr(
        "msbench.analysis.benchmarks.scan.list_scaling_sizes", lambda quick: {} if quick else {"l": sizes}
    )
    done = bench("scan", *TINY, "--scaling", "--only", "reference", "-q")
    assert done.exit_code == 0, done.output
    assert "over l in ms, and over the line before (b 1, m 2, d 3, n 4)" in done.stdout


def test_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(SHAPES, "quick", tiny())
    path = tmp_path / "step.json"
    done = bench("step", "--quick", "-q", "--out", path)
    assert done.exit_code == 0, done.output
    assert "deep: suite listops, random tokens: 2 layers of 8, b 4, l 12" in done.stdout
    assert "equal states" in done.stdout
    assert "peer, same weights" in done.stdout
    assert json.loads(path.read_text(encoding="utf-8"))["what"] == "step"
    again = bench("step", "--quick", "-q", "--only", "mamba", "--compare", path)
    assert "deep mamba/5 4x12" in again.stdout
    wrong = bench("scan", *TINY, "--compare", path)
    assert wrong.exit_code == ExitCode.USAGE
    assert "of `bench step`, not of `bench scan`" in wrong.stderr


def test_nothing_measured_is_undecided() -> None:
    done = bench("scan", *TINY, "--only", "accelerated-scan", "-q")
    assert done.exit_code == ExitCode.UNDECIDED
    assert "needs a CUDA device" in done.stdout
    assert "nothing could be measured" in done.stderr
    as_json = bench("scan", *TINY, "--only", "accelerated-scan", "-q", "--json")
    assert json.loads(as_json.stdout)["rows"][0]["status"] == "skipped"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("scam",), "did you mean 'scan'"),
        (("scan", "--only", "mambopy"), "did you mean 'mambapy'"),
        (("step", "--only", "mambo"), "did you mean 'mamba'"),
        (("step", "--shape", "deap"), "did you mean 'deep'"),
        (("step", "--b", "3"), "--shape"),
        (("scan", "--shape", "deep"), "--shape is of `bench step`"),
        (("scan", "--l", "0"), "--l 0: must be 1 or more"),
        (("scan", "--b", str(2**63)), f"--b {2**63}: must be 1 or more, and less than {2**31}"),
        (("scan", "--threads", "0"), "--threads 0"),
        (("scan", "--threads", str(2**63)), "Invalid value for '--threads'"),
        (("scan", "--repeats", "2"), "needs 3 or more"),
        (("scan", "--device", "cudo"), "did you mean 'cuda'"),
        (("scan", "--compare", "/no/such/file.json"), "cannot be read"),
    ],
)
def test_invalid_options_are_refused_before_anything_runs(
    arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "msbench.analysis.benchmarks.measurement.TimedCall.turn", lambda _task: pytest.fail("timed")
    )
    done = bench(*arguments)
    assert done.exit_code == ExitCode.USAGE, done.output
    assert words in done.stderr
    assert done.stdout == ""


def test_threads_are_set_for_the_measurement_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def measure(*_arguments: Any) -> dict[str, Any]:
        seen.append(torch.get_num_threads())
        return {"rows": []}

    before = torch.get_num_threads()
    monkeypatch.setitem(command.MEASURES, "scan", measure)
    made = command.run_benchmark(BenchmarkOptions(threads=before + 1, quiet=True))
    assert seen == [before + 1]
    assert made["threads"] == before + 1
    assert torch.get_num_threads() == before


def test_sizes_and_repeats_of_options() -> None:
    unset = dict.fromkeys("blmdn")
    assert resolve_flags(unset | {"l": 7, "n": 3})["size"] == Size(8, 7, 5, 128, 3)
    assert resolve_flags({**unset, "quick": True})["size"] == QUICK_SIZE
    assert [resolve_flags({"quick": quick})["repeats"] for quick in (False, True)] == [5, 3]
    assert resolve_flags({"quick": True, "repeats": 9})["repeats"] == 9
    with pytest.raises(ConfigError):
        resolve_flags({"repeats": 0})
