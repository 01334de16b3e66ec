"""The training loop: one run, from the first step to the last, resumable at any of them."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import numpy as np
from lightning_fabric import Fabric
from torch import nn

from msbench.config import RunSpec
from msbench.datasets.dataset import Dataset, Split
from msbench.errors import CheckpointError, Diverged, Interrupted
from msbench.models.classifier import Classifier
from msbench.results.metrics_log import write_log
from msbench.training import checkpoint as ckpt
from msbench.training.average import WeightAverage
from msbench.training.batches import BatchLoader, DeviceBatch, draw_batches
from msbench.training.checkpoint import load_weights
from msbench.training.evaluation import Predictions, find_unscored_classes, predict
from msbench.training.metrics import (
    EpochRow,
    EpochSums,
    ProgressCallback,
    StepLog,
    StepReport,
    TrainingProgress,
    list_step_rows,
)
from msbench.training.mixup import TOGETHER, mix_examples
from msbench.training.optimizer import build_optimizer
from msbench.training.processes import SINGLE, BatchShard, Processes, deal_batches
from msbench.training.schedule import LearningRateSchedule
from msbench.training.seeding import derive_seed, get_generator_states, restore_generators, seed_everything
from msbench.training.signals import SignalFlag
from msbench.training.step import FiniteCheck, GradientComputer, check_finite

PRECISIONS: dict[str, Literal["32-true", "bf16-mixed"]] = {"float32": "32-true", "bf16": "bf16-mixed"}
SAVE_SECONDS = 20.0
SAVE_SHARE = 0.02
"""A checkpoint is due after SAVE_SECONDS, or later if saving would take a larger share of the time."""
LOGGED_STEPS = 100
"""The most rows within epochs that a run logs by default."""


class Trainer:
    """Training of one model on one dataset; `run` returns when the last epoch is done.

    Raises Diverged at the first loss or parameter that is not finite, Interrupted after a signal (state
    saved), CheckpointError if state cannot be saved, DataError if a split cannot be scored. With several
    `processes`, each has such a trainer; the first one writes.

    With `average_weights` each step also moves an average of the weights. It is the average that every epoch
    validates and that ``best-<epoch>`` holds; ``last`` holds both, and the average never enters a step.
    """

    def __init__(
        self,
        spec: RunSpec,
        model: Classifier,
        dataset: Dataset,
        *,
        directory: Path,
        run_id: str,
        fabric: Fabric,
        callback: ProgressCallback,
        signals: SignalFlag,
        processes: Processes = SINGLE,
    ) -> None:
        self.spec, self.config, self.dataset = spec, spec.train, dataset
        self.directory, self.fabric, self.callback, self.signals = directory, fabric, callback, signals
        self.module, self.processes = model, processes
        decay = spec.train.average_weights
        self.average = None if decay is None else WeightAverage(model, decay)
        self.model, self.optimizer = fabric.setup(model, build_optimizer(model.to(fabric.device), spec.train))
        self.validated = self.model if self.average is None else fabric.setup(self.average.module)
        processes.join(model)
        self.gradients = GradientComputer(fabric, self.model, model, spec.train, self._note_pieces)
        self.finite = FiniteCheck(model, self.optimizer.optimizer, late=fabric.device.type == "cuda")
        self.schedule = LearningRateSchedule.from_config(spec.train, len(dataset.splits["train"]))
        self.base_rates = [group["lr"] for group in self.optimizer.param_groups]
        self.reduction = 1.0
        """Factor of the learning rates in this epoch, from the scores of earlier ones."""
        self.folder = ckpt.CheckpointFolder(directory / "checkpoint", run_id)
        self.progress, self.sums = TrainingProgress(), EpochSums.make_zero(fabric.device)
        self.log = StepLog(spec.train.log_every or math.ceil(self.schedule.total / LOGGED_STEPS))
        self._last_save, self._save_cost = time.monotonic(), 0.0
        self.attempt: dict[str, str] = {}
        """Start and environment of this attempt: kept in the state, so that a resumed run shows all."""
        self.room = 0
        """Bytes of device memory in which splits may be kept."""
        self._loaders: dict[str, BatchLoader] = {}
        self.after_step: Callable[[int], None] = lambda _step: None

    def run(self) -> None:
        """Train to the end, resuming from a checkpoint if there is one."""
        for text in find_unscored_classes(self.dataset):
            self.callback.note(text)
        if self.processes.first:
            size = sum(tensor.numel() * tensor.element_size() for tensor in self.module.state_dict().values())
            # last and previous hold weights and two moments, best holds weights, one more is being written.
            copies = 10 if self.average is None else 13
            self.folder.prepare(needed=copies * size)
        if not self._resume():
            seed_everything(self.spec.seed)
        self.progress.attempts.append(self.attempt)
        self.model.train()
        # A run stopped in its last validation has all its steps, but not yet its last row.
        try:
            while self.progress.step < self.schedule.total or self.progress.batch > 0:
                self._epoch()
        except Diverged:
            self._write_log()
            raise

    def _resume(self) -> bool:
        found, skipped = self.folder.load_last() if self.processes.first else (None, [])
        for text in skipped:
            self.callback.note(f"passed over {text}")
        if (found := self.folder.broadcast(found, self.processes)) is None:
            return False
        try:
            self._restore(found)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            text = f"{self.folder.path}: a checkpoint lacks what this training needs ({error!r})"
            raise CheckpointError(f"{text}; --fresh trains from the start") from error
        if self.processes.first:  # left to do if the run was killed right after its checkpoint
            self.folder.forget_other_bests(self.progress.best_epoch)
        self._write_log()
        self.callback.note(f"resumed at step {self.progress.step} of {self.schedule.total}")
        return True

    def _restore(self, found: ckpt.Checkpoint) -> None:
        load_weights(self.module, found.tensors)
        if self.average is not None:
            load_weights(self.average, found.tensors, "average/")
        if found.state["progress"]["step"] > 0:
            ckpt.load_optimizer(self.module, self.optimizer.optimizer, found.tensors)
        restore_generators(found.tensors, found.state["generators"])
        self.progress = TrainingProgress(**found.state["progress"])
        plain = found.state["sums"]
        self.sums = EpochSums.make_zero(self.fabric.device)
        self.sums.loss.copy_(found.tensors["sums/loss"])
        self.sums.auxiliary.copy_(found.tensors["sums/auxiliary"])
        self.sums.correct.copy_(found.tensors["sums/correct"])
        self.sums = replace(self.sums, **plain)
        self.progress.resumes += 1

    def _epoch(self) -> None:
        config, seed, epoch = self.config, self.spec.seed, self.progress.epoch
        self.reduction = self.schedule.compute_reduction(
            [EpochRow(**row).score for row in self.progress.rows]
        )
        split = self.dataset.splits["train"].augmented(derive_seed(seed, "augmentation"), epoch)
        batches = draw_batches(
            split.lengths,
            config.batch_size,
            seed,
            epoch,
            bucketing=config.bucketing,
            repeats=split.repeats,
        )
        left = self.schedule.total - self.progress.step
        chosen = batches[self.progress.batch :][:left]
        together = 1 if config.mixup is None and config.cutmix is None else TOGETHER
        shards = deal_batches(
            chosen,
            lambda: np.tile(split.lengths, split.repeats),
            config.pad_to,
            self.processes,
            together,
        )
        cut = self._get_loader("train", split).batches(
            [x.indices for x in shards], [x.pad_to for x in shards]
        )
        began = time.monotonic()
        for shard, batch in zip(shards, cut, strict=True):
            self._step(batch, shard)
            self.progress.batch += 1
            self.sums.seconds += time.monotonic() - began
            self._report()
            self.after_step(self.progress.step)
            self._save_if_due()
            began = time.monotonic()
        self._finish_check()
        self.sums.seconds += time.monotonic() - began
        self._end_epoch()

    def _get_loader(self, name: str, split: Split) -> BatchLoader:
        if (known := self._loaders.get(name)) is not None and known.turn_to(split):
            return known
        room = self.room - sum(loader.resident_bytes for loader in self._loaders.values())
        self._loaders[name] = loader = BatchLoader(split, self.fabric.device, room)
        return loader

    def _step(self, batch: DeviceBatch, shard: BatchShard) -> None:
        rate = self.schedule.get_factor(self.progress.step) * self.reduction
        betas = self.schedule.get_beta1(self.progress.step), self.config.beta2
        for group, base in zip(self.optimizer.param_groups, self.base_rates, strict=True):
            group["lr"], group["betas"] = base * rate, betas
        batch = mix_examples(batch, self.config, self.dataset.info, self.spec.seed, self.progress.step)
        self.processes.counts = shard.examples > 0
        self.processes.seed(self.spec.seed, self.progress.step)
        result = self.processes.combine(self.module, self.gradients(batch, shard))
        self._finish_check()
        self.finite.start(result.mean, self.progress.step + 1)
        if self.config.clip is not None:
            self.fabric.clip_gradients(
                self.model, self.optimizer, max_norm=self.config.clip, error_if_nonfinite=False
            )
        self.optimizer.step()
        if self.average is not None:
            self.average.update_parameters(self.module)
        self.progress.step += 1
        self.sums.add(result)
        if self.processes.first:
            self.log.add(self.progress.epoch + 1, self.progress.step, self.config.lr * rate, self.sums)

    def _finish_check(self) -> None:
        """Wait for the check of the last step, with all sums before it; raise Lost or Diverged."""
        try:
            self.finite.finish()
        finally:
            self.processes.check_peers()

    def _note_pieces(self, text: str, size: int) -> None:
        self.callback.note(text)
        self.attempt["micro_batch"] = f"auto: {size}"

    def test(self) -> Predictions:
        """Predict the test split with the weights of the best epoch; only after `run`.

        Raises Diverged if the loss is not finite, CheckpointError if those weights are missing.
        """
        found = self.folder.load_best(self.progress.best_epoch) if self.processes.first else None
        best = self.folder.broadcast(found, self.processes)
        assert best is not None, "where there is no best epoch, the first process has raised"
        load_weights(self.module, best.tensors)
        test = self._predict(self.model, "test", lambda: self.processes.check(self.signals))
        if not math.isfinite(test.loss):
            raise Diverged(self.progress.step, "test loss", test.loss)
        return test

    def _predict(self, model: nn.Module, split: str, between: Callable[[], None]) -> Predictions:
        def after(_done: int, _total: int) -> None:
            self.processes.pause()
            between()

        return predict(
            model,
            self._get_loader(split, self.dataset.splits[split]),
            self.config.batch_size,
            pad_to=self.config.pad_to,
            at_once=self.gradients.size,
            between=after,
            processes=self.processes,
        )

    def _report(self) -> None:
        progress, decisions = self.progress, self.dataset.info.decisions
        report = StepReport(
            progress.epoch + 1, self.config.epochs, progress.step, self.schedule.total, self.sums, decisions
        )
        self.callback.step(report)

    def _end_epoch(self) -> None:
        sums, progress = self.sums, self.progress
        validation = self._predict(self.validated, "validation", self._stop_on_signal)
        if not math.isfinite(validation.loss):
            check_finite(self.module, sums.loss, progress.step)
            raise Diverged(progress.step, "validation loss", validation.loss)
        row = EpochRow(
            epoch=progress.epoch + 1,
            step=progress.step,
            lr=self.config.lr * (self.schedule.get_factor(progress.step - 1) * self.reduction),
            train_loss=sums.compute_loss(),
            train_accuracy=sums.compute_accuracy(self.dataset.info.decisions),
            validation_loss=validation.loss,
            validation_accuracy=validation.accuracy,
            seconds=sums.seconds,
            tokens_per_second=sums.tokens_per_second,
            padding=1 - sums.tokens / sums.positions,
            validation_macro_auroc=validation.score_auroc(self.dataset.info),
            auxiliary_loss=None if self.module.auxiliary is None else float(sums.auxiliary) / sums.seen,
        )
        self._finish_epoch(row)

    def _finish_epoch(self, row: EpochRow) -> None:
        progress = self.progress
        progress.rows.append(asdict(row))
        progress.train_seconds += self.sums.seconds
        progress.train_tokens += self.sums.tokens
        if better := row.score > progress.best_score:
            progress.best_score, progress.best_epoch = row.score, row.epoch
        progress.epoch, progress.batch = progress.epoch + 1, 0
        self.sums = EpochSums.make_zero(self.fabric.device)
        self._keep_epoch(row, better=better)
        self.callback.epoch(row)

    def _keep_epoch(self, row: EpochRow, *, better: bool) -> None:
        if not self.processes.first:
            return
        if better:
            state = {"epoch": row.epoch, "score": row.score}
            kept = self.module if self.average is None else self.average.module
            self.folder.save_best(ckpt.Checkpoint(ckpt.get_model_tensors(kept), state), row.epoch)
        self.save()
        self.folder.forget_other_bests(self.progress.best_epoch)

    def _write_log(self) -> None:
        self.progress.steps += self.log.collect()
        steps = list_step_rows(self.progress.steps, self.dataset.info.decisions)
        rows = [asdict(each) for each in steps]
        rows += [asdict(EpochRow(**values)) for values in self.progress.rows]
        if rows and self.processes.first:
            write_log(self.directory, rows)

    def _stop_on_signal(self) -> None:
        """Save and raise Interrupted if a signal has arrived.

        Called between validation batches too: the state is then that of the epoch's last step, and the
        resumed run validates again.
        """
        try:
            self.processes.check(self.signals)
        except Interrupted:
            self.save()
            raise

    def _save_if_due(self) -> None:
        self._stop_on_signal()
        waited = time.monotonic() - self._last_save
        if waited > max(SAVE_SECONDS, self._save_cost / SAVE_SHARE):
            self.save()

    def save(self) -> None:
        """Write ``last.safetensors``; Diverged if the last step's numbers are not finite."""
        self._finish_check()
        began = self._last_save = time.monotonic()
        if not self.processes.first:
            return
        self.progress.steps += self.log.collect()
        random_tensors, random_plain = get_generator_states()
        sums = self.sums
        tensors = {
            **ckpt.get_model_tensors(self.module),
            **({} if self.average is None else ckpt.get_model_tensors(self.average, "average/")),
            **ckpt.get_optimizer_tensors(self.module, self.optimizer.optimizer),
            **random_tensors,
            "sums/loss": sums.loss,
            "sums/auxiliary": sums.auxiliary,
            "sums/correct": sums.correct,
        }
        plain = {name: getattr(sums, name) for name in ("seen", "tokens", "positions", "seconds")}
        state = {"progress": asdict(self.progress), "sums": plain, "generators": random_plain}
        self.folder.save_last(ckpt.Checkpoint(tensors, state))
        self._write_log()
        self._last_save = time.monotonic()
        self._save_cost = self._last_save - began


def make_fabric(device: str, precision: str, processes: Processes = SINGLE) -> Fabric:
    """Return Fabric for devices ``cpu`` or ``cuda``, one per process, in the precision of a TrainConfig."""
    # Its advice is about what `train.matmul` decides.
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    fabric = Fabric(accelerator=device, precision=PRECISIONS[precision], **processes.fabric_options())
    if processes.count > 1:
        fabric.launch()
    return fabric
