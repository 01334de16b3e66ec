"""A table says where its runs were not computed alike."""

from typing import Any

import pytest
from report_runs import PlannedRun, SmallSuite, build, run

from msbench.reporting.tables.notes import describe_hardware

CPU = {"device": "cpu", "tf32": False}
GPU = {"device": "cuda", "gpus": ["NVIDIA H100"], "tf32": False, "cudnn": {"tf32": False}}
TF32 = {**GPU, "tf32": True, "cudnn": {"tf32": True}}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ""),
        (CPU, "cpu"),
        ({**CPU, "tf32": True, "deterministic": True}, "cpu"),  # the same digits there
        (GPU, "NVIDIA H100 without TF32"),
        ({**GPU, "deterministic": True}, "NVIDIA H100 without TF32, deterministic"),
        (TF32, "NVIDIA H100 with TF32 in products and convolutions"),
        ({**GPU, "cudnn": {"tf32": True}}, "NVIDIA H100 with TF32 in convolutions"),
        (
            {"device": "cuda", "gpus": ["A"], "tf32": False},
            "A with TF32 in convolutions",
        ),  # nothing else is named
        ({"device": "cuda", "gpus": ["A"], "tf32": "?", "cudnn": None}, "A with TF32 in convolutions"),
    ],
)
def test_what_a_record_tells(environment: dict[str, Any], expected: str) -> None:
    assert describe_hardware(run(PlannedRun("listops", "mamba"), 0.5, environment=environment)) == expected


@pytest.mark.parametrize("other", [CPU, TF32, {**GPU, "deterministic": True}])
def test_rows_that_were_computed_in_another_way_are_named(other: dict[str, Any]) -> None:
    specs = [PlannedRun("listops", model) for model in ("mamba", "lstm")]
    suite = SmallSuite(tasks=("listops",), models=("mamba", "lstm"))
    for places, count in (((GPU, GPU), 0), ((GPU, other), 1)):
        runs = [run(spec, 0.5, environment=each) for spec, each in zip(specs, places, strict=True)]
        notes = [note for note in build(specs, runs, suite=suite).notes if "same hardware" in note]
        assert len(notes) == count
        assert all("without TF32: mamba" in text and "lstm" in text for text in notes)
