"""What is said under the plan of ``explain``."""

from pathlib import Path

import pytest
from made_runs import keep

from msbench import datasets as data
from msbench.config.differences import Change
from msbench.reporting.compare import explanation
from msbench.reporting.compare.page import Grid
from msbench.runs import plan as agenda
from msbench.runs.suite import Suite, plan

pytestmark = pytest.mark.usefixtures("handmade_records")


@pytest.fixture
def entries(tiny: Suite, tmp_path: Path, data_folder: Path) -> list[agenda.PlannedRun]:
    """Two models, each with a stored run of other source; one more entry without any."""
    specs = plan(tiny)
    digest = data.setup(specs[0].data, data_folder).digest
    for number, spec in enumerate(specs):
        identity = agenda.identify(spec, digest)
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
    return agenda.agenda([*specs, *plan(tiny, ["mamba"], seeds=[7])], tmp_path, data_folder)


def test_what_changed_is_told_once_for_all_runs(entries: list[agenda.PlannedRun]) -> None:
    assert [entry.action for entry in entries] == ["train"] * 3
    (part,) = explanation.pages(entries)
    assert isinstance(part, Grid)
    assert part.title == (
        "listops-tiny msssm-s6 seed 0; listops-tiny mamba seed 0: since 000000000000, 111111111111"
    )
    ((name, stored, now),) = part.rows
    assert (name, stored) == ("training/loop.py", "01234567")
    assert entries[0].changes[0].now[:8] == now


def test_the_document_has_the_changes_in_full(entries: list[agenda.PlannedRun]) -> None:
    first, _, last = explanation.document(entries)
    assert first["unlike"] == "000000000000"
    assert first["changes"] == [
        Change("source", "training/loop.py", "0123456789abcdef", entries[0].changes[0].now).as_dict()
    ]
    assert (last["unlike"], last["changes"], last["why"]) == (None, [], "no run yet")
