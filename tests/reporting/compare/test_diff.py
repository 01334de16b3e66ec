"""Two runs side by side, and the changes under the plan of ``explain``."""

from pathlib import Path

import pytest
from made_runs import answered, keep, write_curve

from msbench import datasets
from msbench.config.differences import Change
from msbench.reporting.compare.diff import (
    build_document,
    build_page,
    build_plan_document,
    build_plan_page,
    compare_runs,
)
from msbench.reporting.compare.page import Facts, Grid, Part
from msbench.reporting.outcomes import FoundRun
from msbench.runs.identity import identify
from msbench.runs.plan import PlannedRun, plan_runs
from msbench.runs.suite import Suite, resolve_specs

FIRST, SECOND = "a" * 12, "b" * 12


def by_title(found: list[Part], start: str) -> Part | None:
    """The part that holds anything and whose title begins so."""
    filled = (part for part in found if (part.pairs if isinstance(part, Facts) else part.rows))
    return next((part for part in filled if part.title.startswith(start)), None)


def rows(first: FoundRun, second: FoundRun, start: str) -> list[tuple[object, ...]]:
    part = by_title(list(build_page(compare_runs(first, second))), start)
    if part is None:
        return []
    return [tuple(row) for row in (part.pairs if isinstance(part, Facts) else part.rows)]


def test_everything_that_differs_is_named_with_both_values(tmp_path: Path) -> None:
    first = answered(
        tmp_path,
        FIRST,
        range(30),
        spec={"suite": "s", "train": {"lr": 0.1, "clip": None}, "model": {"norm": "[s4]"}},
        sources={"same.py": "1", "changed.py": "2" * 16, "models/mamba.py": "3"},
        kernel="cpp",
        environment={"packages": {"torch": "2.11"}, "host": "one"},
    )
    second = answered(
        tmp_path,
        SECOND,
        range(20, 32),
        spec={"suite": "z", "train": {"lr": 1e-5}, "model": {"norm": "[s4]"}},
        source_digest="d",
        sources={"same.py": "1", "changed.py": "4" * 16, "models/s4.py": "5"},
        kernel="torch",
        environment={"packages": {"torch": "2.12"}, "host": "one"},
    )
    assert rows(first, second, "settings") == [("train.lr", "0.1", "1e-05"), ("train.clip", "null", "absent")]
    assert rows(first, second, "source files that differ") == [("changed.py", "2" * 8, "4" * 8)]
    assert rows(first, second, "source files that only") == [
        ("first", "models/mamba.py"),
        ("second", "models/s4.py"),
    ]
    assert rows(first, second, "machine") == [("kernel", "cpp", "torch"), ("packages.torch", "2.11", "2.12")]
    assert rows(first, second, "data") == []
    assert rows(first, second, "result")[-1] == ("difference", "+9.00 pp in accuracy")
    assert rows(first, second, "test examples") == [("168", "2", "20", "10")]
    assert ("", "what differs: settings, source files, machine") in rows(first, second, "two runs")

    found = build_document(compare_runs(first, second))
    assert found["identical"] is False
    assert found["settings"][0] == {"kind": "setting", "name": "train.lr", "first": 0.1, "second": 1e-5}
    assert found["paired"]["counts"] == {"both": 168, "only_first": 2, "only_second": 20, "neither": 10}
    assert found["no_paired_test"] is None


def test_runs_on_other_data_have_no_paired_test(tmp_path: Path) -> None:
    first = answered(tmp_path, FIRST, [1])
    second = answered(tmp_path, SECOND, [2], data_digest="d" * 64)
    assert rows(first, second, "data") == [("data", "b", "d" * 8)]
    assert rows(first, second, "paired test") == [
        ("", f"none: runs {FIRST} and {SECOND} are on different data; run both again")
    ]
    found = build_document(compare_runs(first, second))
    assert (found["paired"], found["difference"]) == (None, 0.0)
    assert "on different data" in found["no_paired_test"]


def test_a_run_without_a_result_is_compared_all_the_same(tmp_path: Path) -> None:
    first, second = answered(tmp_path, FIRST, [1]), keep(tmp_path, SECOND, status="diverged")
    write_curve(first, [0.1, 0.2])
    assert rows(first, second, "result") == [("first", "99.50%"), ("second", "-- (diverged)")]
    assert rows(first, second, "learning curves")[0] == ("1", "1.9000", "--", "10.00%", "--", "--")
    assert build_document(compare_runs(first, second))["difference"] is None


def test_identical_runs_say_so(tmp_path: Path) -> None:
    first = answered(tmp_path, FIRST, [1], environment={"host": "one"})
    replicate = answered(tmp_path / "other", FIRST, [1], environment={"host": "two"})
    for found in (first, replicate):
        write_curve(found, [0.1, 0.2])
    assert "identical: " in rows(first, replicate, "two runs")[-1][1]  # type: ignore[operator]
    assert rows(first, first, "two runs")[-1] == ("", "these are one and the same run")
    assert build_document(compare_runs(first, replicate))["identical"] is True
    assert build_document(compare_runs(first, replicate))["same_run"] is False

    write_curve(replicate, [0.1, 0.3])
    assert build_document(compare_runs(first, replicate))["identical"] is False
    write_curve(replicate, [0.1, 0.2])
    moved = answered(tmp_path / "moved", FIRST, [2])
    write_curve(moved, [0.1, 0.2])
    assert build_document(compare_runs(first, moved))["identical"] is False


def test_a_learning_curve_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    first, second = answered(tmp_path, FIRST, [1]), answered(tmp_path, SECOND, [1])
    assert build_document(compare_runs(first, second))["identical"] is True
    for found in (first, second):
        (found.folder / "metrics.csv").write_text("epoch\n0\n", encoding="utf-8")
    messages = [text for _, text in rows(first, second, "learning curves that cannot be read")]
    assert [str(text).partition(":")[0] for text in messages] == [
        str(found.folder / "metrics.csv") for found in (first, second)
    ]
    document = build_document(compare_runs(first, second))
    assert (document["identical"], document["unreadable"]) == (False, messages)


def test_learning_curves_stand_side_by_side(tmp_path: Path) -> None:
    first, second = answered(tmp_path, FIRST, [1]), answered(tmp_path, SECOND, [1])
    write_curve(first, [0.1] * 100)
    write_curve(second, [0.2] * 90)
    part = by_title(list(build_page(compare_runs(first, second))), "learning curves")
    assert isinstance(part, Grid)
    assert part.title.endswith("12 of 100 epochs)")
    assert part.rows[0] == ("1", "1.9000", "1.8000", "10.00%", "20.00%", "+10.00 pp")
    assert part.rows[-1] == ("100", "1.9000", "--", "10.00%", "--", "--")
    assert len(build_document(compare_runs(first, second))["curve"]) == 100


@pytest.fixture
def entries(tiny: Suite, tmp_path: Path, data_folder: Path) -> list[PlannedRun]:
    """Two models, each with a stored run of other source; one more entry without any."""
    specs = resolve_specs(tiny)
    digest = datasets.setup(specs[0].data, data_folder).digest
    for number, spec in enumerate(specs):
        identity = identify(spec, digest)
        older = identity.files | {"training/loop.py": "0123456789abcdef"}
        keep(
            tmp_path,
            str(number) * 12,
            suite="tiny",
            task=spec.task,
            model=spec.model_name,
            spec=spec.model_dump(mode="json"),
            spec_digest=spec.digest,
            data_digest=digest,
            sources=older,
            source_digest="older",
        )
    return plan_runs([*specs, *resolve_specs(tiny, ["mamba"], seeds=[7])], tmp_path, data_folder)


@pytest.mark.usefixtures("handmade_records")
def test_what_changed_is_named_once_for_all_runs(entries: list[PlannedRun]) -> None:
    assert [entry.action for entry in entries] == ["train"] * 3
    (part,) = build_plan_page(entries)
    assert isinstance(part, Grid)
    assert part.title == (
        "listops-tiny msssm-s6 seed 0; listops-tiny mamba seed 0: since 000000000000, 111111111111"
    )
    ((name, stored, now),) = part.rows
    assert (name, stored) == ("training/loop.py", "01234567")
    assert entries[0].changes[0].now[:8] == now


@pytest.mark.usefixtures("handmade_records")
def test_the_document_has_the_changes_in_full(entries: list[PlannedRun]) -> None:
    first, _, last = build_plan_document(entries)
    assert (first["suite"], first["unlike"]) == (entries[0].spec.suite, "000000000000")
    assert first["changes"] == [
        Change("source", "training/loop.py", "0123456789abcdef", entries[0].changes[0].now).as_dict()
    ]
    assert (last["unlike"], last["changes"], last["why"]) == (None, [], "no run yet")
