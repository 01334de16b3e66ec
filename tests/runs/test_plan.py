"""What would be done, and why."""

from pathlib import Path

import pytest

from msbench import datasets
from msbench.config import RunSpec
from msbench.config.data import Cifar10Config
from msbench.config.definition import Definition
from msbench.errors import OutOfMemory
from msbench.results import store
from msbench.results.record import RunRecord, write_record
from msbench.runs import identity
from msbench.runs.execution import RunContext, execute
from msbench.runs.memory import estimate_size
from msbench.runs.plan import RESUMABLE, PlannedRun, describe_bucketed_norms, plan_runs
from msbench.runs.suite import Suite, resolve_specs
from msbench.training.checkpoint import CheckpointFolder
from msbench.training.metrics import ProgressCallback
from msbench.training.signals import SignalFlag

pytestmark = pytest.mark.usefixtures("handmade_records")


@pytest.fixture
def place(tmp_path: Path, data_folder: Path) -> RunContext:
    return RunContext(tmp_path / "results", data_folder, "cpu", SignalFlag())


def ask(suite: Suite, place: RunContext, *overrides: str, fresh: bool = False) -> PlannedRun:
    specs = resolve_specs(suite, ["mamba"], overrides=overrides)
    (entry,) = plan_runs(specs, place.results, place.data_root, fresh=fresh)
    return entry


def test_a_run_resumes_from_every_checkpoint_that_training_keeps(tmp_path: Path) -> None:
    """Named twice, as a plan must not wait for PyTorch to be imported."""
    kept = CheckpointFolder(tmp_path, "0" * 12)
    assert [path.stem for path in (kept.next, kept.last, kept.previous)] == list(RESUMABLE)


def test_batch_norm_on_batches_of_similar_length_is_warned_of(tiny: Suite) -> None:
    on = "train.bucketing=true"
    (warning,) = describe_bucketed_norms(resolve_specs(tiny, seeds=[0, 1], overrides=[on]))
    assert warning.startswith("listops-tiny: msssm-s6: model.norm: batch on batches of similar length")
    assert "set train.bucketing=false" in warning
    assert describe_bucketed_norms(resolve_specs(tiny)) == []
    assert describe_bucketed_norms(resolve_specs(tiny, overrides=[on, "model.norm=layer"])) == []
    both = describe_bucketed_norms(resolve_specs(tiny, overrides=[on, "model.norm=batch"]))
    assert len(both) == 1
    assert "listops-tiny: msssm-s6, mamba: " in both[0]
    same_length = resolve_specs(tiny, overrides=[on])[0].model_copy(update={"data": Cifar10Config()})
    assert describe_bucketed_norms([same_length]) == []


def test_data_that_is_not_set_up_comes_first(tiny: Suite, place: RunContext, tmp_path: Path) -> None:
    empty = tmp_path / "nothing"
    (entry,) = plan_runs(resolve_specs(tiny, ["mamba"]), place.results, empty)
    assert (entry.action, entry.run_id) == ("set up", None)
    row = estimate_size(entry, "cpu")
    assert row["parameters"] > 0
    assert row["steps"] == 24
    assert row["tokens"] is None
    assert not empty.exists()
    assert not place.results.exists()


def test_each_state_of_a_run_has_its_action_and_reason(
    tiny: Suite, place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = resolve_specs(tiny, ["mamba"])[0]
    datasets.setup(spec.data, place.data_root)
    assert (ask(tiny, place).action, ask(tiny, place).reason) == ("train", "no run yet")
    record = execute(spec, place, ProgressCallback())
    assert record is not None
    entry = ask(tiny, place)
    assert (entry.action, entry.reason, entry.run_id) == ("keep", "finished", record.run_id)

    again = ask(tiny, place, fresh=True)
    assert (again.action, again.reason) == ("train", "finished; --fresh")

    changed = ask(tiny, place, "train.lr=0.02", "model.layers=2")
    assert changed.action == "train"
    assert "model.layers 1 → 2" in changed.reason
    assert "train.lr 0.01 → 0.02" in changed.reason

    change_source(monkeypatch)
    edited = ask(tiny, place)
    assert edited.action == "train"
    assert edited.reason == f"unlike run {record.run_id}: source differs: models/mamba.py"


def test_a_run_that_stopped_is_resumed(tiny: Suite, place: RunContext) -> None:
    spec = resolve_specs(tiny, ["mamba"])[0]
    record = execute(spec, place, ProgressCallback())
    assert record is not None
    folder = store.get_run_folder(place.results, spec, record.run_id)
    (folder / "run.json").unlink()
    assert ask(tiny, place).action == "resume"
    (folder / "checkpoint" / "last.safetensors").rename(folder / "checkpoint" / "next.safetensors")
    assert ask(tiny, place).action == "resume"


def test_a_damaged_record_is_an_entry_of_its_own(tiny: Suite, place: RunContext) -> None:
    spec = resolve_specs(tiny, ["mamba"])[0]
    record = execute(spec, place, ProgressCallback())
    assert record is not None
    (store.get_run_folder(place.results, spec, record.run_id) / "run.json").write_text("{", encoding="utf-8")
    entry = ask(tiny, place)
    assert entry.action == "damaged"
    assert "run.json: not a run record" in entry.reason


def test_sizes_are_those_of_the_run(tiny: Suite, place: RunContext) -> None:
    spec = resolve_specs(tiny, ["mamba"])[0]
    record = execute(spec, place, ProgressCallback())
    assert record is not None
    row = estimate_size(ask(tiny, place), "cpu")
    assert (row["parameters"], row["steps"]) == (record.parameters, record.steps)
    lengths = datasets.open_dataset(spec.data, place.data_root).splits["train"].lengths
    assert row["tokens"] == pytest.approx(3 * lengths.sum(), rel=0.1)
    pieces = ask(tiny, place, "train.micro_batch=4")
    halved = estimate_size(pieces, "cpu")
    shared = estimate_size(ask(tiny, place), "cpu", devices=2)
    assert pieces.run_id == record.run_id
    assert 0 < halved["memory"] == shared["memory"] < row["memory"]


def stored(results: Path, spec: RunSpec, run_id: str, ended: str = "", **values: object) -> None:
    """A finished run of this spec, on other data and from other source than is here."""
    base: dict[str, object] = {"run_id": run_id, "status": "finished", "suite": spec.suite, "task": spec.task}
    base |= {
        "model": spec.model_name,
        "seed": spec.seed,
        "spec": spec.model_dump(mode="json"),
        "ended": ended,
    }
    base |= {
        "spec_digest": spec.digest,
        "data_digest": "0" * 64,
        "source_digest": "1",
        "sources": {"a.py": "2"},
    }
    record = RunRecord.model_validate(base | values)
    write_record(store.get_run_folder(results, spec, run_id), record)


def test_a_run_is_explained_by_the_nearest_one_whatever_the_order(
    tiny: Suite, place: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, far = (
        resolve_specs(tiny, ["mamba"])[0],
        resolve_specs(tiny, ["mamba"], overrides=["train.lr=1", "model.layers=2"])[0],
    )
    near = resolve_specs(tiny, ["mamba"], overrides=["train.lr=0.5"])[0]
    digest = datasets.setup(spec.data, place.data_root).digest
    stored(place.results, far, "0" * 12, "2026-03-01", data_digest=digest)
    stored(place.results, near, "1" * 12, "2026-01-01")
    stored(place.results, near, "2" * 12, "2026-02-01")
    stored(place.results, near, "3" * 12, "2026-02-01", seed=1)
    entry = ask(tiny, place)
    assert entry.nearest is not None
    assert entry.nearest.run_id == "2" * 12
    assert [change.name for change in entry.changes[:3]] == ["train.lr", "data", "a.py"]
    assert entry.reason.startswith(
        f"unlike run {'2' * 12}: settings differ: train.lr 0.5 → 0.01; data differs: 0000"
    )
    files = len(entry.changes) - 2
    assert entry.reason.endswith(f"and {files - 3} more files")

    read = store.read_records
    monkeypatch.setattr(store, "read_records", lambda *given: (read(*given)[0][::-1], []))
    again = ask(tiny, place)
    assert (again.reason, again.changes, again.nearest) == (entry.reason, entry.changes, entry.nearest)


def test_without_data_settings_and_source_are_still_compared(
    tiny: Suite, place: RunContext, tmp_path: Path
) -> None:
    spec = resolve_specs(tiny, ["mamba"], overrides=["train.lr=0.5"])[0]
    stored(place.results, spec, "0" * 12)
    (entry,) = plan_runs(resolve_specs(tiny, ["mamba"]), place.results, tmp_path / "nothing")
    assert entry.action == "set up"
    assert "msbench setup listops --set data.train=60" in entry.reason
    assert {change.kind for change in entry.changes} == {"setting", "source"}


def test_a_model_too_large_for_any_memory_is_no_crash(tiny: Suite, place: RunContext) -> None:
    entry = ask(tiny, place, f"model.d_model={2**31 - 1}")
    with pytest.raises(
        OutOfMemory, match=r"mamba · seed 0: its parameters do not fit: .*; use a smaller model"
    ):
        estimate_size(entry, "cpu")


def change_source(monkeypatch: pytest.MonkeyPatch) -> None:
    original = identity.define

    def changed(roots: tuple[str, ...], own: identity.Sources = ()) -> Definition:
        return Definition(digest="0" * 64, files={**original(roots, own).files, "models/mamba.py": "new"})

    monkeypatch.setattr(identity, "define", changed)
