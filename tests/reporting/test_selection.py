from datetime import UTC, datetime

import pytest
from report_runs import PlannedRun, as_spec, run

from msbench.reporting.tables.selection import describe_difference, find_newest, parse_end_time, select_runs

SPEC = PlannedRun("listops", "mamba")


def at(day: int) -> str:
    return f"2026-01-{day:02d}T00:00:00+00:00"


def test_times_are_compared_across_time_zones() -> None:
    early = run(SPEC, ended="2026-01-01T12:00:00+02:00")
    late = run(SPEC, ended="2026-01-01T11:00:00+00:00")
    assert find_newest([late, early]) is late
    assert parse_end_time(run(SPEC, ended="2026-01-01T11:00:00")) == datetime(2026, 1, 1, 11, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "yesterday"])
def test_a_record_without_an_end_is_the_oldest(text: str) -> None:
    assert find_newest([run(SPEC, ended=text), run(SPEC, ended=at(1))]).ended == at(1)


def test_an_interrupted_rerun_does_not_displace_a_result() -> None:
    result = run(SPEC, ended=at(1))
    rerun = run(SPEC, None, status="interrupted", ended=at(2), source_digest="source-2")
    found = select_runs([result, rerun], "data-1")
    assert (found.finished, found.left_out) == ((result,), (rerun,))


def test_what_ended_without_a_result_after_all_that_count_is_newer() -> None:
    result = run(SPEC, ended=at(2))
    before, after = (
        run(SPEC, None, status="failed", ended=at(day), source_digest="source-2") for day in (1, 3)
    )
    assert select_runs([before, result, after], "data-1").newer == (after,)
    assert select_runs([after], "data-2").newer == ()


def test_a_result_from_older_source_is_not_newer() -> None:
    old = run(SPEC, ended=at(1), source_digest="source-2")
    assert select_runs([old, run(SPEC, ended=at(2))], "data-1").newer == ()


def test_a_divergence_under_newer_source_displaces_a_result() -> None:
    result = run(SPEC, ended=at(1))
    rerun = run(SPEC, None, status="diverged", ended=at(2), source_digest="source-2")
    found = select_runs([result, rerun], "data-1")
    assert (found.finished, found.unfinished, found.left_out) == ((), (rerun,), (result,))


def test_sources_never_merge() -> None:
    old = [run(PlannedRun("listops", "mamba", seed), ended=at(1)) for seed in range(3)]
    new = run(SPEC, 0.6, ended=at(2), source_digest="source-2")
    found = select_runs([*old, new], "data-1")
    assert (found.finished, len(found.left_out)) == ((new,), 3)


def test_other_data_is_left_out_even_where_nothing_else_is_left() -> None:
    found = select_runs([run(SPEC)], "data-2")
    assert (found.finished, len(found.left_out)) == ((), 1)


def test_a_seed_counts_once() -> None:
    """Two records of one seed come from merging machines."""
    first, second = run(SPEC, 0.5, ended=at(1)), run(SPEC, 0.6, ended=at(2))
    assert select_runs([second, first], "data-1").finished == (second,)


def test_the_difference_names_keys_and_values() -> None:
    changed = SPEC.model_dump(mode="json")
    changed["train"] = {"epochs": 1, "max_steps": 20}
    assert (
        describe_difference(run(SPEC, spec=changed), as_spec(SPEC))
        == "modified: train.epochs 1, train.max_steps 20"
    )
    assert describe_difference(run(PlannedRun("listops", "mamba", 7)), as_spec(SPEC)) == "modified: seed 7"
    del changed["train"]
    assert describe_difference(run(SPEC, spec=changed), as_spec(SPEC)) == (
        "modified: train.epochs absent, train.max_steps absent"
    )
    assert describe_difference(run(SPEC), as_spec(SPEC)) == "modified: another version of the spec"
    assert describe_difference(run(SPEC), None) == "modified: not in the suite"
