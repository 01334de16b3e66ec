"""`docs/results.md`: its tables are what the published records give, its commands can be given."""

import re
from pathlib import Path

import pytest
from documents import VERBS, options
from measured_tables import (
    BASES,
    BY,
    PUBLISHED,
    REPOSITORY,
    RESULTS,
    accuracies_by,
    blocks,
    chosen,
    distances,
    overview,
    rates,
    readings,
    suite_of,
)

from msbench.results import store
from msbench.runs.suite import list_suites, load_suite, resolve_specs

TEXT = (REPOSITORY / "docs" / "results.md").read_text(encoding="utf-8")
SUITES = {suite.name for suite in list_suites(REPOSITORY / "suites")}
PLANNED = {spec.digest for name in PUBLISHED for spec in resolve_specs(load_suite(suite_of(name)))}
RUNS = [path.parent for name in PUBLISHED for path in sorted((RESULTS / name).glob("*/*/*/run.json"))]


def made() -> list[str]:
    """Every table that the page has to have, in the page's order."""
    tables = [overview()]
    for name in PUBLISHED:
        tables += [*blocks(name, BASES.get(name, "mamba")), *rates(name)]
        tables += [*accuracies_by(name, BY.get(name, ())), *distances(name)]
    tables.append(readings("laptop-listops", "msssm-s6"))
    return [*tables, chosen("laptop-listops", "msssm-s6", "model.input_conv true", "mamba")]


def test_tables_are_those_of_the_records_and_no_others() -> None:
    there = [block.rstrip("\n") for block in re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE)]
    expected = made()
    for block in expected:
        assert block in there, f"make it this:\n{block}"
    assert there == expected, "in this order, and no other"


def test_numbers_of_the_summary_stand_in_the_tables() -> None:
    numbers = re.findall(r"\d+(?:\.\d+)? ± \d+(?:\.\d+)?|\d+\.\d+", "\n".join(TEXT.splitlines()[:10]))
    tables = "\n".join(made())
    assert len(numbers) > 6
    assert [number for number in numbers if not re.search(rf"(?<![\d.]){number}(?!\d)", tables)] == []


def test_accuracies_of_longer_runs_are_those_of_the_records() -> None:
    longer = [
        record for record in map(store.read_run, RUNS) if record and record.spec["train"]["epochs"] == 8
    ]
    assert {record.model for record in longer} == {"mamba", "msssm-s6"}
    assert all(f"{record.result:.2%}".replace("%", " %") in TEXT for record in longer)


def test_commands_can_be_given() -> None:
    shown = re.findall(r"(?:`|\$ )msbench ([a-z]+)([^`\n]*)", TEXT)
    assert {verb for verb, _ in shown} >= {"run", "report", "trace", "mixing"}
    for verb, words in shown:
        assert verb in VERBS
        assert set(re.findall(r"--[a-z]+", words)) <= options(verb)
        assert set(re.findall(r"\blaptop-[a-z]+", words)) <= SUITES


@pytest.mark.parametrize("folder", RUNS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_a_published_run_is_whole(folder: Path) -> None:
    record = store.read_run(folder)
    assert record is not None
    assert record.finished
    assert not record.environment["git"]["dirty"]
    assert (folder / "metrics.csv").is_file()
    assert record.spec_digest not in PLANNED or (folder / "predictions.parquet").is_file()
    # Weights are not published: what lies there is of whoever ran it.
    files = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "checkpoint"]
    assert all(path.stat().st_size < 2**20 for path in files)
