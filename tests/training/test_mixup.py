"""Examples mixed in pairs: torchvision's numbers, by seed and step alone, on any number of devices."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_files import imagenet, wnid
from safetensors.torch import load_file
from torch.nn import functional

from msbench import datasets as data
from msbench import models
from msbench.config import RunSpec
from msbench.config.run import TrainConfig
from msbench.datasets.dataset import TaskInfo
from msbench.datasets.imagenet.split import cut_patches
from msbench.errors import Interrupted
from msbench.runs.suite import load_suite, resolve_specs
from msbench.training import mixup
from msbench.training.batches import DeviceBatch, split_batch
from msbench.training.loop import Trainer, make_fabric
from msbench.training.metrics import ProgressCallback
from msbench.training.mixup import draw_rectangle, mix_examples
from msbench.training.processes import Processes, deal_batches
from msbench.training.signals import SignalFlag
from msbench.training.step import compute_loss

INFO = TaskInfo("patches", 0, 5, 9, "accuracy", 0.2, {}, channels=48, patch=4)
SIDE = 12


def images(count: int) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, SIDE, SIDE, 3)).astype(np.float32)


def batch_of(pictures: np.ndarray) -> DeviceBatch:
    count = len(pictures)
    inputs = torch.from_numpy(np.stack([cut_patches(each, 4) for each in pictures]))
    lengths, labels = torch.full((count,), 9), torch.arange(count) % 5
    return DeviceBatch(inputs, lengths, labels, 9 * count, 9 * count)


def config(**options: Any) -> TrainConfig:
    return TrainConfig(**options)


class Drawn:
    """A generator whose numbers are known."""

    def __init__(self, share: float, row: int, column: int) -> None:
        self.share, self.place = share, np.array([row, column])

    def beta(self, _a: float, _b: float) -> float:
        return self.share

    def integers(self, _side: int, size: int) -> np.ndarray:
        assert size == 2
        return self.place


@pytest.mark.parametrize(
    ("name", "share", "row", "column"),
    [("mixup", 0.3, 0, 0), ("cutmix", 0.4, 6, 5), ("cutmix", 0.7, 1, 11), ("cutmix", 0.05, 11, 0)],
)
def test_a_pair_is_mixed_as_by_torchvision(
    name: str, share: float, row: int, column: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    pictures = images(2)
    with monkeypatch.context() as patch:
        drawn = iter([column, row])
        theirs = (v2.MixUp if name == "mixup" else v2.CutMix)(num_classes=5)
        patch.setattr(theirs._dist, "sample", lambda _shape: torch.tensor([share]))
        patch.setattr(torch, "randint", lambda *_args, **_size: torch.tensor([next(drawn)]))
        mixed, labels = theirs(torch.from_numpy(pictures).permute(0, 3, 1, 2), torch.tensor([0, 1]))
    monkeypatch.setattr(np.random, "default_rng", lambda _seeds: Drawn(share, row, column))
    ours = mix_examples(batch_of(pictures), config(**{name: 1.0}), INFO, 0, 0)
    expected = np.stack([cut_patches(each.permute(1, 2, 0).numpy(), 4) for each in mixed])
    np.testing.assert_allclose(ours.inputs, expected, atol=1e-6)
    assert ours.targets is not None
    np.testing.assert_allclose(ours.targets, labels, atol=1e-6)
    assert ours.labels.tolist() == labels.argmax(1).tolist()


def test_without_either_a_batch_is_what_it_was() -> None:
    batch = batch_of(images(3))
    assert mix_examples(batch, config(), INFO, 0, 0) is batch


def test_the_last_of_an_odd_number_stays_and_so_does_padding() -> None:
    whole = batch_of(images(5))
    padded = DeviceBatch(
        functional.pad(whole.inputs, (0, 0, 0, 3)), whole.lengths, whole.labels, whole.tokens, 60
    )
    for name in ("mixup", "cutmix"):
        mixed = mix_examples(padded, config(**{name: 1.0}), INFO, 3, 4)
        assert torch.equal(mixed.inputs[4], padded.inputs[4])
        assert not torch.equal(mixed.inputs[:4], padded.inputs[:4])
        assert not mixed.inputs[:, 9:].any()
        assert mixed.targets is not None
        torch.testing.assert_close(mixed.targets.sum(1), torch.ones(5))
        assert mixed.targets[4].tolist() == [0, 0, 0, 0, 1]


def test_shares_and_the_choice_of_both_are_drawn_by_seed_and_step() -> None:
    batch, both = batch_of(images(2)), config(mixup=0.8, cutmix=1.0)
    cut, shares = [], []
    for step in range(400):
        mixed = mix_examples(batch, both, INFO, 1, step)
        cut.append(bool((mixed.inputs == batch.inputs).any()))
        assert mixed.targets is not None
        if not cut[-1]:
            shares.append(float(mixed.targets[0, 0]))
    assert 160 < sum(cut) < 240
    assert abs(np.mean(shares) - 0.5) < 0.1
    assert abs(np.var(shares) - 1 / (4 * (2 * 0.8 + 1))) < 0.03  # of a beta distribution
    again, other, later = (mix_examples(batch, both, INFO, *each) for each in [(1, 7), (2, 7), (1, 8)])
    assert torch.equal(again.inputs, mix_examples(batch, both, INFO, 1, 7).inputs)
    assert not torch.equal(again.inputs, other.inputs)
    assert not torch.equal(again.inputs, later.inputs)


def test_rectangles_lie_anywhere_and_have_the_share_that_is_cut_out() -> None:
    generator = np.random.default_rng(0)
    masks = np.stack([draw_rectangle(INFO, 0.75, generator) for _ in range(500)])
    assert masks.mean((1, 2)).max() == 0.25
    assert masks.any(0).all()


class Part(Processes):
    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count


@pytest.mark.parametrize("examples", [1, 2, 5, 7, 8])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_shards_of_pairs_are_mixed_as_the_whole_batch(examples: int, count: int) -> None:
    whole, options = batch_of(images(examples)), config(mixup=0.8, cutmix=1.0)
    expected = mix_examples(whole, options, INFO, 0, 3)
    seen = []
    for rank in range(count):
        (shard,) = deal_batches(
            [np.arange(examples)], lambda: np.full(examples, 9), None, Part(rank, count), mixup.TOGETHER
        )
        assert shard.examples <= shard.most
        assert shard.whole == examples
        if not shard.examples:
            assert len(shard.indices) == 1
            continue
        part = DeviceBatch(
            whole.inputs[shard.indices], whole.lengths[shard.indices], whole.labels[shard.indices], 0, 0
        )
        mixed = mix_examples(part, options, INFO, 0, 3)
        assert torch.equal(mixed.inputs, expected.inputs[shard.indices])
        assert mixed.targets is not None
        assert expected.targets is not None
        assert torch.equal(mixed.targets, expected.targets[shard.indices])
        seen += shard.indices.tolist()
    assert sorted(seen) == list(range(examples))


def test_the_loss_of_mixed_labels_is_the_share_of_either() -> None:
    mixed = mix_examples(batch_of(images(4)), config(mixup=1.0), INFO, 0, 0)
    assert mixed.targets is not None
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 5)))
    share = float(mixed.targets[0, 0])
    own, other = torch.arange(4), torch.tensor([1, 0, 3, 2])
    expected = share * functional.cross_entropy(logits, own) + (1 - share) * functional.cross_entropy(
        logits, other
    )
    torch.testing.assert_close(compute_loss(logits, mixed.targets.double(), "cross-entropy"), expected)
    pieces = list(split_batch(mixed, 3))
    assert [len(piece.labels) for piece in pieces] == [3, 1]
    assert torch.equal(
        torch.cat([piece.targets for piece in pieces if piece.targets is not None]), mixed.targets
    )


SUITE = """\
name: small
title: Small pictures
protocol: scaled
caption: For tests.
seeds: [0]
tasks:
  pictures:
    data: {dataset: imagenet, image_size: 16, patch: 8, validation: 0.3, augmentation: crop-flip, repeats: 3}
model: {d_model: 4, layers: 1, dropout: 0}
train: {epochs: 3, batch_size: 4, lr: 3e-2, mixup: 0.8, cutmix: 1.0}
models: {mamba: {model: {state: 3}}}
"""


@pytest.fixture
def trainer(tmp_path: Path) -> Callable[..., Trainer]:
    path, root = tmp_path / "small.yaml", tmp_path / "data"
    path.write_text(SUITE, encoding="utf-8")
    spec: RunSpec = resolve_specs(load_suite(str(path)))[0]
    tree = imagenet(tmp_path / "tree", [wnid(number) for number in (3, 7)], train=8)
    dataset = data.setup(spec.data, root, source=tree)

    def build(folder: str, signals: SignalFlag | None = None) -> Trainer:
        model = models.build(spec.model_name, spec.model, dataset.info, spec.seed)
        return Trainer(
            spec,
            model,
            dataset,
            directory=tmp_path / folder,
            run_id="0123456789ab",
            fabric=make_fabric("cpu", "float32"),
            callback=ProgressCallback(),
            signals=signals or SignalFlag(),
        )

    return build


def stop_at(stop: int, flag: SignalFlag) -> Callable[[int], None]:
    def after(step: int) -> None:
        if step == stop:
            flag.received = 15

    return after


def test_a_run_that_mixes_and_repeats_resumes_bit_equal(
    trainer: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer("unbroken").run()
    for stop in (2, 7):
        flag = SignalFlag()
        part = trainer("broken", flag)
        part.after_step = stop_at(stop, flag)
        with pytest.raises(Interrupted):
            part.run()
    last = trainer("broken")
    last.run()
    assert last.progress.step == 9
    expected, found = (
        load_file(tmp_path / name / "checkpoint" / "last.safetensors") for name in ("unbroken", "broken")
    )
    assert all(torch.equal(tensor, found[name]) for name, tensor in expected.items())
