"""Training: resumes bit for bit, notices what is not finite, drops nothing."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from msbench import datasets as data
from msbench import models
from msbench.config import RunSpec
from msbench.datasets.dataset import Dataset
from msbench.errors import CheckpointError, Diverged, Interrupted
from msbench.results.metrics_log import LogRows, read_log, select_epochs
from msbench.runs.suite import Suite, resolve_specs
from msbench.training.batches import BatchLoader
from msbench.training.checkpoint import Checkpoint, load_weights
from msbench.training.evaluation import predict
from msbench.training.loop import Trainer, make_fabric
from msbench.training.metrics import EpochRow, EpochSums, ProgressCallback, StepLog, list_step_rows
from msbench.training.optimizer import make_parameter_groups
from msbench.training.signals import SignalFlag
from msbench.training.step import FiniteCheck, check_finite, compute_loss

MODELS = ["msssm-s6", "mamba"]


class Notes(ProgressCallback):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def spec_of(suite: Suite, model: str, *overrides: str) -> RunSpec:
    return resolve_specs(suite, [model], overrides=overrides)[0]


def trainer(spec: RunSpec, folder: Path, signals: SignalFlag | None = None) -> Trainer:
    dataset = data.setup(spec.data, data.data_root())
    model = models.build(spec.model_name, spec.model, dataset.info, spec.seed)
    fabric = make_fabric("cpu", spec.train.precision)
    return Trainer(
        spec,
        model,
        dataset,
        directory=folder,
        run_id="0123456789ab",
        fabric=fabric,
        callback=ProgressCallback(),
        signals=signals or SignalFlag(),
    )


def stop_at(step: int, flag: SignalFlag) -> Callable[[int], None]:
    def after(now: int) -> None:
        if now == step:
            flag.received = 15

    return after


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoint" / "last.safetensors")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("stops", [[1], [5], [8], [9, 16, 23], [24]])
def test_a_resumed_run_ends_bit_equal(tiny: Suite, tmp_path: Path, model: str, stops: list[int]) -> None:
    spec = spec_of(tiny, model)
    trainer(spec, tmp_path / "unbroken").run()
    for step in stops:
        flag = SignalFlag()
        part = trainer(spec, tmp_path / "broken", flag)
        part.after_step = stop_at(step, flag)
        with pytest.raises(Interrupted):
            part.run()
    last = trainer(spec, tmp_path / "broken")
    last.run()
    expected, found = weights(tmp_path / "unbroken"), weights(tmp_path / "broken")
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
    (best,) = (tmp_path / "unbroken" / "checkpoint").glob("best-*.safetensors")
    expected, found = load_file(best), load_file(tmp_path / "broken" / "checkpoint" / best.name)
    assert expected.keys() == found.keys()
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())
    assert last.progress.resumes == len(stops)
    assert len(last.progress.attempts) == len(stops) + 1


OPTIONS = {
    "constant": ("train.schedule=constant",),
    "rsqrt": ("train.schedule=rsqrt",),
    # With such a rate no score rises, and every epoch after the first lowers it.
    "plateau": ("train.schedule=plateau", "train.plateau_patience=0", "train.lr=1e-9"),
    "one-cycle": ("train.schedule=one-cycle", "train.one_cycle_beta1=0.5"),
    "averaged weights": ("train.average_weights=0.8",),
    "smoothing": ("train.label_smoothing=0.3",),
    "step sizes": ("train.dt_lr=0.1", "train.dt_decay=true"),
}


class Killed(Exception):
    """The end of a process right after an epoch's checkpoint."""


class KillAfter(ProgressCallback):
    def __init__(self, epoch: int) -> None:
        self.number = epoch

    def epoch(self, row: EpochRow) -> None:
        if row.epoch == self.number:
            raise Killed


def assert_equal_weights(one: Path, other: Path) -> None:
    """All of the last state, and the weights of the best epoch."""
    names = sorted(path.name for path in (one / "checkpoint").iterdir())
    assert sorted(path.name for path in (other / "checkpoint").iterdir()) == names
    for name in ("last.safetensors", *(name for name in names if name.startswith("best-"))):
        expected, found = (load_file(folder / "checkpoint" / name) for folder in (one, other))
        assert expected.keys() == found.keys()
        assert not [key for key, tensor in expected.items() if not torch.equal(tensor, found[key])], name


@pytest.mark.parametrize("option", OPTIONS)
def test_each_option_acts_and_resumes_bit_equal(tiny: Suite, tmp_path: Path, option: str) -> None:
    """Stopped in the middle of an epoch, before a validation, and killed right after one."""
    spec = spec_of(tiny, "msssm-s6", *OPTIONS[option])
    whole = trainer(spec, tmp_path / "whole")
    whole.run()
    for step in (5, 16):
        part = trainer(spec, tmp_path / "broken", flag := SignalFlag())
        part.after_step = stop_at(step, flag)
        with pytest.raises(Interrupted):
            part.run()
    part = trainer(spec, tmp_path / "broken")
    part.callback = KillAfter(2)
    with pytest.raises(Killed):
        part.run()
    last = trainer(spec, tmp_path / "broken")
    last.run()
    assert last.progress.resumes == 3
    assert_equal_weights(tmp_path / "whole", tmp_path / "broken")
    columns = ("lr", "train_loss", "validation_loss")
    rows = [[[row[name] for name in columns] for row in run.progress.rows] for run in (whole, last)]
    assert rows[0] == rows[1]

    rates = [value for value in OPTIONS[option] if value.startswith("train.lr=")]
    trainer(spec_of(tiny, "msssm-s6", *rates), tmp_path / "usual").run()
    expected, found = weights(tmp_path / "usual"), weights(tmp_path / "whole")
    same = all(torch.equal(tensor, found[name]) for name, tensor in expected.items() if "rng/" not in name)
    assert same == (option == "averaged weights"), "which change no step, only what is kept as the best"


@pytest.mark.parametrize("model", MODELS)
def test_the_average_of_the_weights_is_validated_kept_and_tested(
    tiny: Suite, tmp_path: Path, model: str
) -> None:
    run = trainer(spec_of(tiny, model, "train.average_weights=0.8", "train.epochs=1"), tmp_path)
    expected: dict[str, torch.Tensor] = {}

    def follow(_step: int) -> None:
        for name, value in run.module.state_dict().items():
            # torch's lerp, for bits; it is 0.8 of the average and 0.2 of the weights
            before = expected.get(name)
            expected[name] = value.clone() if before is None else before.lerp(value, 1 - 0.8)

    run.after_step = follow
    run.run()
    (best,) = (tmp_path / "checkpoint").glob("best-*.safetensors")
    kept = load_file(best)
    assert {name.removeprefix("model/") for name in kept} == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(kept[f"model/{name}"], value, rtol=1e-6, atol=1e-7)
    trained = run.module.state_dict()
    assert any(not torch.equal(kept[f"model/{name}"], value) for name, value in trained.items())

    dataset = run.dataset
    net = models.build(run.spec.model_name, run.spec.model, dataset.info, seed=1)
    load_weights(net, kept)
    found = {
        split: predict(net, BatchLoader(dataset.splits[split], torch.device("cpu")), 8)
        for split in ("validation", "test")
    }
    assert run.progress.rows[0]["validation_loss"] == found["validation"].loss
    np.testing.assert_array_equal(run.test().logits, found["test"].logits)


def test_the_log_shows_the_rate_after_each_plateau(tiny: Suite, tmp_path: Path) -> None:
    run = trainer(spec_of(tiny, "mamba", *OPTIONS["plateau"], "train.epochs=5"), tmp_path)
    run.run()
    rates = [row["lr"] for row in run.progress.rows]
    assert rates == pytest.approx([1e-9, 1e-9, 2e-10, 4e-11, 8e-12], rel=1e-12)


def test_killed_after_its_last_checkpoint_it_leaves_no_other_best(tiny: Suite, tmp_path: Path) -> None:
    spec = spec_of(tiny, "mamba")
    done = trainer(spec, tmp_path)
    done.run()
    kept = sorted(path.name for path in (tmp_path / "checkpoint").iterdir())
    done.folder.save_best(Checkpoint({}, {}), epoch=77)
    trainer(spec, tmp_path).run()
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == kept


@pytest.mark.parametrize("model", MODELS)
def test_batches_beyond_the_memory_limit_give_the_same_weights(
    tiny: Suite, tmp_path: Path, model: str
) -> None:
    spec = spec_of(tiny, model)
    trainer(spec, tmp_path / "plain").run()
    tight = trainer(spec, tmp_path / "tight")
    tight.gradients.count_recomputed = lambda positions: int(positions > 100)  # of some batches
    used = set()
    tight.after_step = lambda _step: used.add(tight.module.blocks[0].recompute)
    tight.run()
    assert used == {True, False}
    expected, found = weights(tmp_path / "plain"), weights(tmp_path / "tight")
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())


def test_a_log_that_a_kill_cut_short_is_mended(tiny: Suite, tmp_path: Path) -> None:
    spec = spec_of(tiny, "mamba")
    trainer(spec, tmp_path).run()
    log = tmp_path / "metrics.csv"
    whole = log.read_text()
    log.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    trainer(spec, tmp_path).run()
    assert log.read_text() == whole


def test_the_log_survives_a_resume(tiny: Suite, tmp_path: Path) -> None:
    spec = spec_of(tiny, "mamba")
    flag = SignalFlag()
    part = trainer(spec, tmp_path, flag)
    part.after_step = stop_at(12, flag)
    with pytest.raises(Interrupted):
        part.run()
    trainer(spec, tmp_path).run()
    rows, problem = read_log(tmp_path)
    assert ([row["epoch"] for row in select_epochs(rows)], problem) == (["1", "2", "3"], "")


def read_rows(folder: Path) -> LogRows:
    """The rows of the log without what depends on the machine."""
    rows, _ = read_log(folder)
    return [{name: row[name] for name in row if name not in ("seconds", "tokens_per_second")} for row in rows]


@pytest.mark.parametrize("every", [1, 3])
def test_rows_within_epochs_survive_a_stop_and_a_kill(tiny: Suite, tmp_path: Path, every: int) -> None:
    spec = spec_of(tiny, "mamba", "data.train=64", f"train.log_every={every}")  # batches of one size
    assert spec.digest == spec_of(tiny, "mamba", "data.train=64").digest
    trainer(spec, tmp_path / "whole").run()
    for step in (5, 8, 15):
        part = trainer(spec, tmp_path / "broken", flag := SignalFlag())
        part.after_step = stop_at(step, flag)
        with pytest.raises(Interrupted):
            part.run()
    part = trainer(spec, tmp_path / "broken")
    part.callback = KillAfter(2)
    with pytest.raises(Killed):
        part.run()
    trainer(spec, tmp_path / "broken").run()
    rows = read_rows(tmp_path / "whole")
    assert read_rows(tmp_path / "broken") == rows
    within = [row for row in rows if not row["validation_loss"]]
    assert [int(row["step"]) for row in within] == list(range(every, 25, every))
    assert [row["epoch"] for row in within] == [str((int(row["step"]) + 7) // 8) for row in within]
    if every == 1:
        for epoch, whole in enumerate(select_epochs(rows), 1):
            losses = [float(row["train_loss"]) for row in within if row["epoch"] == str(epoch)]
            assert float(whole["train_loss"]) == pytest.approx(np.mean(losses), rel=1e-9)


def test_a_run_without_a_setting_logs_about_a_hundred_rows(tiny: Suite, tmp_path: Path) -> None:
    spec = spec_of(tiny, "mamba", "train.batch_size=1", "train.max_steps=150")
    trainer(spec, tmp_path).run()
    assert len([row for row in read_rows(tmp_path) if not row["validation_loss"]]) == 75


def test_a_row_is_copied_without_reading_the_device() -> None:
    log = StepLog(2)
    sums = EpochSums.make_zero(torch.device("meta"))  # which has no values to read
    for step in range(5):
        log.add(0, step, 0.1, sums)
    with pytest.raises(RuntimeError, match="meta"):
        log.collect()


def test_rows_are_means_since_the_row_before() -> None:
    names = ("epoch", "step", "lr", "loss", "correct", "seen")
    sums = [dict(zip(names, each, strict=True)) for each in ((0, 2, 1, 6.0, 3, 4), (0, 4, 1, 8.0, 7, 8))]
    later = dict(zip(names, (1, 6, 1, 3.0, 1, 2), strict=True))
    rows = [(row.train_loss, row.train_accuracy) for row in list_step_rows([*sums, later], 2)]
    assert rows == [(1.5, 3 / 8), (0.5, 0.5), (1.5, 0.25)]


def test_a_run_that_diverges_in_its_first_epoch_has_a_log(tiny: Suite, tmp_path: Path) -> None:
    run = trainer(spec_of(tiny, "mamba"), tmp_path)
    run.after_step = lambda step: run.module.head.weight.data.fill_(float("nan")) if step == 4 else None
    with pytest.raises(Diverged):
        run.run()
    assert [row["step"] for row in read_rows(tmp_path)] == ["1", "2", "3", "4"]


def test_best_so_far_survives_a_resume(tiny: Suite, tmp_path: Path) -> None:
    spec = spec_of(tiny, "mamba")
    flag = SignalFlag()
    part = trainer(spec, tmp_path, flag)
    part.after_step = stop_at(9, flag)
    with pytest.raises(Interrupted):
        part.run()
    resumed = trainer(spec, tmp_path)
    resumed._resume()
    resumed.progress.best_score, resumed.progress.best_epoch = 2.0, 0
    resumed.save()
    trainer(spec, tmp_path).run()
    final = trainer(spec, tmp_path)
    final._resume()
    assert (final.progress.best_score, final.progress.best_epoch) == (2.0, 0)


@pytest.mark.parametrize("model", MODELS)
def test_a_parameter_that_is_not_finite_stops_the_run_at_once(
    tiny: Suite, tmp_path: Path, model: str
) -> None:
    run = trainer(spec_of(tiny, model), tmp_path)
    name, parameter = next((n, p) for n, p in run.module.named_parameters() if "A_log" in n)

    def poison(step: int) -> None:
        if step == 10:
            with torch.no_grad():
                parameter.view(-1)[0] = float("nan")

    run.after_step = poison
    with pytest.raises(Diverged) as caught:
        run.run()
    assert (caught.value.step, caught.value.name) == (11, name)


def test_a_buffer_that_is_not_finite_is_named(tiny: Suite, tmp_path: Path) -> None:
    run = trainer(spec_of(tiny, "msssm-s6"), tmp_path)

    def poison(step: int) -> None:
        if step == 10:
            run.module.get_buffer("blocks.0.norm.running_var")[3] = float("nan")

    run.after_step = poison
    with pytest.raises(Diverged) as caught:
        run.run()
    assert (caught.value.step, caught.value.name) == (11, "blocks.0.norm.running_var")


def test_a_loss_that_is_not_finite_by_itself_is_called_loss() -> None:
    model = torch.nn.Linear(2, 2)
    check_finite(model, torch.tensor(1.0), 1)
    with pytest.raises(Diverged, match="at step 5: loss is inf"):
        check_finite(model, torch.tensor(float("inf")), 5)
    model.bias.grad = torch.tensor([0.0, float("nan")])
    with pytest.raises(Diverged, match="at step 6: gradient of bias is nan"):
        check_finite(model, torch.tensor(1.0), 6)


def make_late(run: Trainer) -> None:
    """Let a run on the CPU check its steps as one on a GPU does."""
    fused = torch.optim.AdamW(make_parameter_groups(run.module, run.config), fused=True)
    run.optimizer = run.fabric.setup_optimizers(fused)
    run.finite = FiniteCheck(run.module, fused, late=True)


@pytest.mark.parametrize("step", [3, 8, 10, 24])  # 8 and 24 are the last of an epoch, and of the run
def test_a_late_check_blames_the_same_step_and_keeps_the_weights(
    tiny: Suite, tmp_path: Path, step: int
) -> None:
    run = trainer(spec_of(tiny, "mamba"), tmp_path)
    make_late(run)
    weights: dict[str, torch.Tensor] = {}
    first = next(iter(dict(run.module.named_parameters())))

    def poison(done: int) -> None:
        if done == step - 1:
            weights.update({name: x.detach().clone() for name, x in run.module.named_parameters()})
            parameter = run.module.get_parameter(first)
            parameter.register_hook(lambda g: g * float("nan"))  # type: ignore[no-untyped-call]

    run.after_step = poison
    with pytest.raises(Diverged) as caught:
        run.run()
    assert (caught.value.step, caught.value.name) == (step, f"gradient of {first}")
    assert all(torch.equal(x, weights[name]) for name, x in run.module.named_parameters())


def test_nothing_is_saved_before_a_late_check_has_ended(tiny: Suite, tmp_path: Path) -> None:
    run = trainer(spec_of(tiny, "mamba"), tmp_path)
    make_late(run)
    run.finite.start(torch.tensor(float("inf")), 5)
    with pytest.raises(Diverged, match="at step 5: loss is inf"):
        run.save()
    assert not list(tmp_path.rglob("*.safetensors"))
    run.save()
    assert list(tmp_path.rglob("*.safetensors"))


def test_a_last_step_that_explodes_is_caught_in_validation(tiny: Suite, tmp_path: Path) -> None:
    run = trainer(spec_of(tiny, "mamba"), tmp_path)

    def poison(step: int) -> None:
        if step == 8:  # the last step of the first epoch
            with torch.no_grad():
                run.module.head.bias[0] = float("nan")

    run.after_step = poison
    with pytest.raises(Diverged) as caught:
        run.run()
    assert (caught.value.step, caught.value.name) == (8, "head.bias")


def test_a_rate_that_explodes_is_diverged(tiny: Suite, tmp_path: Path) -> None:
    with pytest.raises(Diverged):
        trainer(spec_of(tiny, "mamba", "train.lr=1e30", "train.warmup_epochs=0"), tmp_path).run()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("size", [59, 60, 64])
def test_a_last_batch_of_one_breaks_nothing(tiny: Suite, tmp_path: Path, model: str, size: int) -> None:
    run = trainer(spec_of(tiny, model, f"train.batch_size={size}", "model.norm=batch"), tmp_path)
    seen = 0

    def count(_step: int) -> None:
        nonlocal seen
        seen = max(seen, run.sums.seen)

    run.after_step = count
    run.run()
    assert seen == 60


@pytest.mark.parametrize("model", MODELS)
def test_accuracy_does_not_depend_on_the_batch_size(tiny: Suite, model: str) -> None:
    spec = spec_of(tiny, model)
    dataset: Dataset = data.setup(spec.data, data.data_root())
    net = models.build(spec.model_name, spec.model, dataset.info, spec.seed)
    feed = BatchLoader(dataset.splits["test"], torch.device("cpu"))
    found = [predict(net, feed, size) for size in (1, 3, 7, 20, 64)]
    for one in found[1:]:
        np.testing.assert_allclose(one.logits, found[0].logits, atol=1e-5)
        assert one.accuracy == found[0].accuracy
    assert list(found[0].labels) == list(dataset.splits["test"].batch(np.arange(20)).labels)


@pytest.mark.parametrize("model", MODELS)
def test_bf16_trains_with_float32_parameters(tiny: Suite, tmp_path: Path, model: str) -> None:
    run = trainer(spec_of(tiny, model, "train.precision=bf16", "train.epochs=1"), tmp_path)
    run.run()
    assert {parameter.dtype for parameter in run.module.parameters()} == {torch.float32}
    assert np.isfinite(run.progress.rows[0]["train_loss"])


def test_the_two_losses() -> None:
    logits, labels = torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([0, 1])
    once = compute_loss(logits, labels, "cross-entropy")
    assert once == pytest.approx((np.log1p(np.exp(-2)) + np.log(2)) / 2)
    twice = compute_loss(logits, labels, "double-softmax")
    assert twice == pytest.approx(float(compute_loss(logits.softmax(1), labels, "cross-entropy")))


def test_clipping_bounds_the_step(tiny: Suite, tmp_path: Path) -> None:
    run = trainer(spec_of(tiny, "mamba", "train.clip=1e-3"), tmp_path)
    norms = []

    def measure(_step: int) -> None:
        gradients = [p.grad for p in run.module.parameters() if p.grad is not None]
        norms.append(float(torch.stack([g.norm() for g in gradients]).norm()))

    run.after_step = measure
    run.run()
    assert max(norms) <= 1e-3 * 1.001


@pytest.mark.parametrize(
    ("key", "value"),
    [*((key, None) for key in ("progress", "sums", "generators")), ("progress", {}), ("progress", {"x": 1})],
)
def test_a_state_that_lacks_keys_is_one_message(
    tiny: Suite, tmp_path: Path, key: str, value: dict[str, int] | None
) -> None:
    spec = spec_of(tiny, "mamba")
    part = trainer(spec, tmp_path)
    part.save()
    found = part.folder.load(part.folder.last)
    state = {name: each for name, each in found.state.items() if name != key}
    part.folder.save_last(Checkpoint(found.tensors, state | ({} if value is None else {key: value})))
    with pytest.raises(
        CheckpointError, match=r"lacks what this training needs .*--fresh trains from the start"
    ):
        trainer(spec, tmp_path).run()
