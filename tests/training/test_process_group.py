"""Two processes that train together: the numbers of one, and one end for both whatever happens to either."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ranks
import torch
from auxiliary_cases import MeanSquare
from conftest import TINY_SUITE
from ecg_files import write_small
from image_files import imagenet, wnid
from safetensors.torch import load_file

from msbench import datasets as data
from msbench import models
from msbench.config import RunSpec
from msbench.errors import CheckpointError, Interrupted
from msbench.models.classifier import Classifier
from msbench.results import store
from msbench.results.metrics_log import LogRows, read_log, select_epochs
from msbench.results.record import RunRecord
from msbench.runs.execution import RunContext, execute
from msbench.runs.suite import load_suite, resolve_specs
from msbench.training.checkpoint import CheckpointFolder
from msbench.training.loop import Trainer, make_fabric
from msbench.training.metrics import ProgressCallback
from msbench.training.processes import SINGLE, Processes
from msbench.training.signals import SignalFlag

PLAIN = ("model.dropout=0", "train.epochs=2")
WIDTH = 32
"""Of all batches, where layers are computed twice for some shares' positions but not for others'."""
SCENES = {
    # Batches of 59 and of one: the second process has no example of the second one.
    "batch-norm": ("msssm-s6", *PLAIN, "model.pooling=last", "train.batch_size=59", "train.clip=0.5"),
    "averaged": (
        "msssm-s6",
        *PLAIN,
        "train.batch_size=7",
        "train.average_weights=0.5",
        "train.label_smoothing=0.1",
    ),
    "paper-padding": ("msssm-s6", *PLAIN, "train.batch_size=7", "model.padding=paper", "train.max_steps=9"),
    # Its layers have batch norms inside.
    "recomputed": (
        "inceptiontime",
        *PLAIN,
        f"train.pad_to={WIDTH}",
        "train.batch_size=7",
        "train.max_steps=9",
    ),
    "layer-norm": ("mamba", *PLAIN, "train.batch_size=7"),
    # As of the first scene: the auxiliary loss of no example counts.
    "auxiliary": ("mamba", *PLAIN, "train.batch_size=59"),
    "crops": ("mamba", *PLAIN, "train.batch_size=2"),
    # Batches of five and of one: pairs stay together.
    "mixed": ("mamba", *PLAIN, "train.batch_size=5", "train.mixup=0.8", "train.cutmix=1.0"),
}
OTHER_DATA = {
    "crops": "{dataset: ptbxl, labels: superdiagnostic, rate: 500, crop: 250}",
    "mixed": "{dataset: imagenet, image_size: 16, patch: 8, validation: 0.3, repeats: 2}",
}
"""Of the scenes that are not of the tiny suite's task."""
ONE_EXAMPLE = {"train_accuracy": 1.01 / 59, "validation_accuracy": 1.01 / 20}
"""Two classes may be as near to each other as the rounding of sums over one and two processes."""
ELSEWHERE = "elsewhere"
"""Where the second process would write."""
DROPPING = (
    "msssm-s6",
    "train.epochs=2",
    "train.batch_size=20",
    "train.average_weights=0.5",
    "train.schedule=plateau",
)


def spec_of(model: str, *overrides: str, folder: Path, suite: str = "tiny") -> RunSpec:
    return resolve_specs(load_suite(str(folder / f"{suite}.yaml")), [model], overrides=overrides)[0]


def write_suites(folder: Path) -> None:
    """Write the tiny suite, and for each of the other data one that differs in them alone."""
    (folder / "tiny.yaml").write_text(TINY_SUITE, encoding="utf-8")
    start, end = TINY_SUITE.index("{dataset"), TINY_SUITE.index("model:")
    for name, values in OTHER_DATA.items():
        text = f"{TINY_SUITE[:start]}{values}\n{TINY_SUITE[end:]}"
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def trained(
    spec: RunSpec,
    folder: Path,
    processes: Processes,
    *,
    stop: int = 0,
    tight: bool = False,
    auxiliary: bool = False,
) -> Trainer:
    """A trainer that has run to the end, or to a signal after step `stop` in the last process."""
    dataset = data.setup(spec.data, data.data_root())
    model = models.build(spec.model_name, spec.model, dataset.info, spec.seed)
    if auxiliary:
        model.auxiliary = MeanSquare(3.0)
    flag = processes.signals if processes.count > 1 else SignalFlag()  # type: ignore[attr-defined]
    fabric = make_fabric("cpu", "float32", processes)
    trainer = Trainer(
        spec,
        model,
        dataset,
        directory=folder,
        run_id="0" * 12,
        fabric=fabric,
        callback=ProgressCallback(),
        signals=flag,
        processes=processes,
    )
    if tight:  # what a share of four examples exceeds, and one of three does not
        trainer.gradients.count_recomputed = lambda positions: 99 * (positions > 3.5 * WIDTH)

    def after(step: int) -> None:
        if step == stop and processes.rank == processes.count - 1:
            flag.received = 15

    trainer.after_step = after
    trainer.run()
    return trainer


def curves(folder: Path, processes: Processes) -> dict[str, Any]:
    """Test loss by scene; the rest is in the folders."""
    found = {}
    for name, options in SCENES.items():
        spec = spec_of(*options, folder=folder, suite=name if name in OTHER_DATA else "tiny")
        place, special = folder / f"{name}-{processes.count}", name == "auxiliary"
        trainer = trained(spec, place, processes, tight=name == "recomputed", auxiliary=special)
        found[name] = trainer.test().loss
    return found


def two(folder: Path) -> None:
    """All that the two processes do, one thing after the other in one group."""
    from msbench.runs.launchers.distributed import join_processes

    signals = SignalFlag()
    with join_processes("cpu", signals) as group:
        found: dict[str, Any] = {"curves": curves(folder, group)}
        found["stop"] = stopped_and_resumed(folder, group, signals)
        place = RunContext(
            folder / ("results" if group.first else ELSEWHERE), data.data_root(), "cpu", signals, group
        )
        for name, spoil in SPOILS.items():
            # Another learning rate, another run.
            spec = spec_of("msssm-s6", *SPOILED, f"train.lr={1 + len(found)}e-3", folder=folder)
            found[name] = outcome(spec, place, spoil)
        few = spec_of("mamba", "train.epochs=1", "data.test=5", folder=folder)
        found["few"] = outcome(few, place, lambda _: None)
        found["kept"] = outcome(few, place, lambda _: None)
    (folder / f"found-{group.rank}.json").write_text(json.dumps(found))


def stopped_and_resumed(folder: Path, group: Processes, signals: SignalFlag) -> list[int]:
    """Steps at which the two stopped; then both go on, and finish a run that one process began."""
    spec = spec_of(*DROPPING, folder=folder)
    trained(spec, folder / "unbroken", group)
    try:
        with group.agreed():
            trained(spec, folder / "broken", group, stop=2)
    except Interrupted as error:
        number = error.number
    signals.received = group.received = None  # type: ignore[attr-defined]
    group.pause()
    if group.first:
        shutil.copytree(folder / "broken", folder / "two-then-one")
    group.pause()
    return [
        number,
        trained(spec, folder / "broken", group).progress.resumes,
        trained(spec, folder / "one-then-two", group).progress.step,
    ]


def outcome(spec: RunSpec, place: RunContext, spoil: Callable[[Processes], Any]) -> dict[str, Any]:
    """What a run comes to whose trainers, or one of them, are spoiled."""
    undo = spoil(place.processes)
    try:
        record = execute(spec, place, ProgressCallback())
    finally:
        for owner, name, value in undo or ():
            setattr(owner, name, value)
    assert record is not None
    failure = record.failure.model_dump() if record.failure else {}
    return {"status": record.status, "n_test": record.n_test, "run_id": record.run_id, **failure}


SPOILED = ("train.epochs=1", "train.max_steps=3")
Undo = list[tuple[Any, str, Any]]


def in_last(group: Processes, owner: Any, name: str, function: Callable[..., Any]) -> Undo:
    """Replace a function in the last process."""
    before = getattr(owner, name)
    if group.rank == group.count - 1:
        setattr(owner, name, function)
    return [(owner, name, before)]


def out_of_memory(group: Processes) -> Undo:
    """In the middle of the forward: after the first of its batch norms."""
    whole = Classifier._compute_logits

    def fail(self: Classifier, pooled: torch.Tensor) -> torch.Tensor:
        if self.training:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 is full.")
        return whole(self, pooled)

    return in_last(group, Classifier, "_compute_logits", fail)


def bug(group: Processes) -> Undo:
    """Between steps."""

    def fail(_trainer: Trainer) -> None:
        raise KeyError("a bug")

    return in_last(group, Trainer, "_report", fail)


def not_a_number(group: Processes) -> Undo:
    """A weight of one process after its first step."""
    step = Trainer._step

    def poisoned(self: Trainer, *arguments: Any) -> None:
        if self.progress.step == 1:
            with torch.no_grad():
                next(self.module.head.parameters()).fill_(float("nan"))
        step(self, *arguments)

    return in_last(group, Trainer, "_step", poisoned)


def full_disk(group: Processes) -> Undo:
    """Where the first process keeps the best weights."""
    before = CheckpointFolder.save_best

    def fail(*_: Any) -> None:
        raise CheckpointError("no room")

    if group.first:
        setattr(CheckpointFolder, "save_best", fail)  # noqa: B010
    return [(CheckpointFolder, "save_best", before)]


SPOILS = {"out-of-memory": out_of_memory, "bug": bug, "nan": not_a_number, "full-disk": full_disk}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Iterator[Path]:
    """The folder in which two processes, and one, have done all of the above."""
    folder = tmp_path_factory.mktemp("group")
    write_suites(folder)
    hearts = spec_of(*SCENES["crops"], folder=folder, suite="crops").data
    data.setup(hearts, shared_data, source=write_small(folder / "hearts"), processes=1)
    pictures = spec_of(*SCENES["mixed"], folder=folder, suite="mixed").data
    data.setup(pictures, shared_data, source=imagenet(folder / "pictures", [wnid(3), wnid(7)], train=4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MSBENCH_DATA", str(shared_data))
        with pytest.raises(Interrupted):
            trained(spec_of(*DROPPING, folder=folder), folder / "one-then-two", SINGLE, stop=2)
        started = ranks.start(2, two, folder, environment={"MSBENCH_DATA": str(shared_data)})
        (folder / "curves.json").write_text(json.dumps(curves(folder, SINGLE)))
        assert ranks.ended(started, within=240) == [0, 0]
        yield folder


def found(folder: Path, rank: int) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / f"found-{rank}.json").read_text())
    return loaded


def log(folder: Path) -> LogRows:
    rows, problem = read_log(folder)
    assert not problem
    assert len(rows) > len(select_epochs(rows)), "there are rows within epochs"
    return select_epochs(rows)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoint" / "last.safetensors")


@pytest.mark.parametrize("scene", SCENES)
def test_two_processes_have_the_loss_curve_of_one(both: Path, scene: str) -> None:
    one, other = log(both / f"{scene}-1"), log(both / f"{scene}-2")
    assert len(one) == len(other) > 0
    per_machine = {"seconds", "tokens_per_second"}
    for row, twin in zip(one, other, strict=True):
        for key in row.keys() - per_machine - ONE_EXAMPLE.keys():
            assert float(twin[key]) == pytest.approx(float(row[key]), rel=1e-4), key
        for key, least in ONE_EXAMPLE.items():
            assert float(twin[key]) == pytest.approx(float(row[key]), abs=least), key
    expected, got = weights(both / f"{scene}-1"), weights(both / f"{scene}-2")
    for name in (name for name in expected if name.startswith("model/")):
        torch.testing.assert_close(got[name], expected[name], rtol=1e-3, atol=2e-4, msg=name)
    alone = json.loads((both / "curves.json").read_text())[scene]
    assert [found(both, rank)["curves"][scene] for rank in (0, 1)] == pytest.approx([alone] * 2, rel=1e-4)


def test_a_signal_to_one_stops_both_and_both_resume_bit_equal(both: Path) -> None:
    assert [found(both, rank)["stop"] for rank in (0, 1)] == [[15, 1, 6]] * 2
    expected, got = weights(both / "unbroken"), weights(both / "broken")
    assert all(torch.equal(tensor, got[name]) for name, tensor in expected.items() if "model/" in name)


def test_one_process_goes_on_where_two_stopped(both: Path) -> None:
    trainer = trained(spec_of(*DROPPING, folder=both), both / "two-then-one", SINGLE)
    assert (trainer.progress.resumes, trainer.progress.step) == (1, 6)
    assert [row["epoch"] for row in log(both / "two-then-one")] == ["1", "2"]


@pytest.mark.parametrize(
    ("what", "status", "kind", "text"),
    [
        (
            "out-of-memory",
            "out-of-memory",
            "OutOfMemory",
            "process 1: CUDA out of memory. Tried to",
        ),
        ("bug", "failed", "ElsewhereFailed", "process 1: KeyError: 'a bug'"),
        ("nan", "diverged", "Diverged", "not finite at step 2"),
        ("full-disk", "failed", "CheckpointError", "no room"),
    ],
)
def test_what_fails_in_one_process_ends_the_run_in_both_and_the_next_run_goes_on(
    both: Path, what: str, status: str, kind: str, text: str
) -> None:
    first, second = (found(both, rank)[what] for rank in (0, 1))
    assert (first["status"], second["status"]) == (status, status)
    assert first["type"] == kind
    assert text in first["message"]
    record = record_of(both, first["run_id"])
    assert (record.status, record.environment["devices"]) == (status, 2)
    assert record.attempts[-1]["devices"] == "2"


def test_the_traceback_of_another_process_is_kept(both: Path) -> None:
    (path,) = (both / "results").rglob(f"{found(both, 0)['bug']['run_id']}/run.log")
    assert "in fail" in path.read_text()


def record_of(folder: Path, run_id: str) -> RunRecord:
    (record,) = (each for each in store.read_records(folder / "results")[0] if each.run_id == run_id)
    return record


def test_five_test_examples_on_two_processes_are_five(both: Path) -> None:
    first, second = (found(both, rank)["few"] for rank in (0, 1))
    assert first == second
    record = record_of(both, first["run_id"])
    assert (record.status, record.n_test) == ("finished", 5)
    (path,) = (both / "results").rglob("predictions.parquet")
    frame = pd.read_parquet(path)
    split = data.open_dataset(spec_of("mamba", "data.test=5", folder=both).data, data.data_root()).splits[
        "test"
    ]
    assert frame["example"].tolist() == list(range(5))
    np.testing.assert_array_equal(frame["label"], split.targets)
    assert record.metrics["test_accuracy"] == frame["correct"].mean()
    assert found(both, 1)["kept"] == second


def test_only_the_first_process_writes(both: Path) -> None:
    record = record_of(both, found(both, 0)["few"]["run_id"])
    assert record.resumed == 0
    assert len(record.attempts) == 1
    assert not list((both / "results").rglob("*.tmp"))
    assert not (both / ELSEWHERE).exists()
