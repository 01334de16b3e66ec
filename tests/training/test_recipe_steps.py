"""Two steps of every recipe of the paper's suites, at full width and depth.

Not part of the default run, as it takes minutes: ``make recipes``.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from msbench import datasets, models
from msbench.config import RunSpec
from msbench.datasets.dataset import SPLITS, Dataset, RaggedPairs, RaggedTokens, Samples, Split, TaskInfo
from msbench.reporting.tables.definitions import PAPER_SUITES
from msbench.runs.suite import load_suite
from msbench.training.loop import Trainer, make_fabric
from msbench.training.metrics import ProgressCallback
from msbench.training.signals import SignalFlag

EVERY = {
    f"{name}-{task}-{model}": spec
    for name in PAPER_SUITES
    for (task, model), spec in load_suite(name).planned.items()
}
RECIPES = {(spec.model_name, spec.model, spec.train): cell for cell, spec in EVERY.items()}
"""One cell of those that differ in their data alone, as the tasks of PTB-XL do."""
SHORT = 64
"""Positions of an example; the models are made for the longest of the task."""


def make_split(info: TaskInfo, examples: int, seed: int) -> Split:
    source = np.random.default_rng(seed)
    labels = source.integers(0, info.classes, examples).astype(np.uint16)
    if info.multi_label:  # every class with a positive and a negative, which their ranking needs
        labels = np.tile(np.arange(examples, dtype=np.uint16) % 2, (info.classes, 1)).T
    if info.real_valued:
        # The rectangles that are exchanged between images are those of all their patches.
        length = info.longest if info.patch else min(info.longest, SHORT)
        values = source.standard_normal((examples, length, info.channels)).astype(np.float32)
        return Samples(values, labels)
    length = min(info.longest, SHORT)
    count = examples * info.sequences
    tokens = source.integers(1, info.vocabulary, count * length).astype(np.uint8)
    kind = RaggedPairs if info.kind == "pairs" else RaggedTokens
    return kind(tokens, np.arange(count + 1) * length, labels.astype(np.uint8))


def train_two_steps(spec: RunSpec, folder: Path) -> tuple[Trainer, dict[str, torch.Tensor]]:
    info = datasets.outline(spec.data)
    # Two examples where they are mixed or ranked with each other.
    examples = 2 if info.multi_label or spec.train.mixup is not None else 1
    splits = {name: make_split(info, examples, 0) for name in SPLITS}
    short = spec.model_copy(update={"train": spec.train.model_copy(update={"max_steps": 2})})
    model = models.build(spec.model_name, spec.model, info, spec.seed)
    start = {name: each.detach().clone() for name, each in model.named_parameters()}
    run = Trainer(
        short,
        model,
        Dataset(info, splits, "0" * 64, {}),
        directory=folder,
        run_id="0" * 12,
        fabric=make_fabric("cpu", spec.train.precision),
        callback=ProgressCallback(),
        signals=SignalFlag(),
    )
    run.run()
    return run, start


@pytest.mark.recipes
@pytest.mark.parametrize("cell", RECIPES.values())
def test_two_steps_change_the_weights_and_keep_them_finite(cell: str, tmp_path: Path) -> None:
    run, start = train_two_steps(EVERY[cell], tmp_path)
    assert run.progress.step == 2
    assert all(np.isfinite(row["train_loss"]) for row in run.progress.rows)
    now = dict(run.module.named_parameters())
    assert all(each.isfinite().all() for each in now.values())
    moved = [name for name, each in now.items() if not torch.equal(each, start[name])]
    assert len(moved) > 0.8 * len(start), sorted(start.keys() - set(moved))
    assert np.isfinite(run.test().logits).all()
