"""Batches in pieces: the same numbers but for rounding, and halves of them where memory runs out."""

from pathlib import Path
from typing import Any

import pytest
import torch
from auxiliary_cases import MeanSquare
from torch.nn import functional

from msbench import datasets as data
from msbench import models
from msbench.errors import OutOfMemory
from msbench.models.classifier import Classifier
from msbench.runs.suite import Suite, resolve_specs
from msbench.training.batches import split_batch
from msbench.training.loop import Trainer, make_fabric
from msbench.training.metrics import ProgressCallback
from msbench.training.signals import SignalFlag
from msbench.training.step import compute_loss

TRIED = "CUDA out of memory. Tried to allocate 2.00 GiB"


class Notes(ProgressCallback):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def trainer(suite: Suite, folder: Path, model: str, *overrides: str) -> Trainer:
    spec = resolve_specs(suite, [model], overrides=["train.epochs=1", *overrides])[0]
    dataset = data.setup(spec.data, data.data_root())
    net = models.build(spec.model_name, spec.model, dataset.info, spec.seed)
    return Trainer(
        spec,
        net,
        dataset,
        directory=folder,
        run_id="0" * 12,
        fabric=make_fabric("cpu", "float32"),
        callback=Notes(),
        signals=SignalFlag(),
    )


def notes(run: Trainer) -> list[str]:
    assert isinstance(run.callback, Notes)
    return run.callback.notes


@pytest.mark.parametrize("model", ["mamba", "msssm-s6", "s5", "s4d-lin"])
@pytest.mark.parametrize("more", [(), ("model.padding=paper", "model.pooling=mean-with-padding")])
def test_pieces_have_the_gradients_of_the_whole(
    tiny: Suite, tmp_path: Path, model: str, more: tuple[str, ...]
) -> None:
    found = []
    for number, pieces in enumerate(([], ["train.micro_batch=3"])):
        options = ["model.dropout=0", "model.state=4", "model.norm=rms", "train.max_steps=1", *more, *pieces]
        run = trainer(tiny, tmp_path / str(number), model, *options)
        run.run()
        found.append(({n: x.grad for n, x in run.module.named_parameters()}, run.progress.rows[0]))
    (whole, row), (pieced, other) = found
    for name, gradient in whole.items():
        torch.testing.assert_close(pieced[name], gradient, rtol=1e-4, atol=1e-6)
    assert row.keys() == other.keys()
    for key in ("train_loss", "train_accuracy", "validation_loss", "padding"):
        assert other[key] == pytest.approx(row[key], rel=1e-4)


def run_with_auxiliary(tiny: Suite, folder: Path, weight: float | None, *overrides: str) -> Trainer:
    run = trainer(tiny, folder, "mamba", "model.dropout=0", "train.max_steps=1", *overrides)
    run.module.auxiliary = None if weight is None else MeanSquare(weight)
    run.run()
    return run


def test_an_auxiliary_loss_adds_its_gradient_and_is_logged_by_itself(tiny: Suite, tmp_path: Path) -> None:
    plain, once, twice = (
        run_with_auxiliary(tiny, tmp_path / str(weight), weight) for weight in (None, 3.0, 6.0)
    )
    gradients = [{n: x.grad for n, x in run.module.named_parameters()} for run in (plain, once, twice)]
    differ = 0.0
    for name, gradient in gradients[0].items():
        one, two = (found[name] for found in gradients[1:])
        assert gradient is not None
        assert one is not None
        assert two is not None
        torch.testing.assert_close(two - one, one - gradient, rtol=1e-4, atol=1e-6)
        differ = max(differ, float((one - gradient).abs().max()))
    assert differ > 1e-3
    rows = [run.progress.rows[0] for run in (plain, once, twice)]
    assert [row["train_loss"] for row in rows] == [pytest.approx(rows[0]["train_loss"], rel=1e-6)] * 3
    assert rows[0]["auxiliary_loss"] is None
    assert rows[1]["auxiliary_loss"] > 0
    assert rows[2]["auxiliary_loss"] == pytest.approx(2 * rows[1]["auxiliary_loss"], rel=1e-5)
    header = (tmp_path / "None" / "metrics.csv").read_text().splitlines()[0]
    assert "auxiliary" not in header
    assert (tmp_path / "3.0" / "metrics.csv").read_text().splitlines()[0] == f"{header},auxiliary_loss"


def test_an_auxiliary_loss_is_that_of_the_whole_batch_in_pieces_too(tiny: Suite, tmp_path: Path) -> None:
    whole, pieced = (
        run_with_auxiliary(tiny, tmp_path / size, 3.0, f"train.micro_batch={size}") for size in ("8", "3")
    )
    for one, other in zip(whole.module.parameters(), pieced.module.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, rtol=1e-4, atol=1e-6)
    values = [run.progress.rows[0]["auxiliary_loss"] for run in (whole, pieced)]
    assert values[1] == pytest.approx(values[0], rel=1e-5)


def test_an_auxiliary_loss_is_not_computed_in_evaluation(tiny: Suite, tmp_path: Path) -> None:
    run = run_with_auxiliary(tiny, tmp_path, 3.0)
    run.test()
    assert isinstance(run.module.auxiliary, MeanSquare)
    assert run.module.auxiliary.calls == 1  # the only step
    assert run.module.take_auxiliary_loss() is None


def test_a_piece_is_cut_from_the_padded_batch(tiny: Suite, tmp_path: Path) -> None:
    run = trainer(tiny, tmp_path, "mamba")
    feed = run._get_loader("train", run.dataset.splits["train"])
    (batch,) = feed.batches([torch.arange(7).numpy()])
    pieces = list(split_batch(batch, 3))
    assert [len(piece.labels) for piece in pieces] == [3, 3, 1]
    assert sum(piece.positions for piece in pieces) == batch.positions
    assert sum(piece.tokens for piece in pieces) == batch.tokens
    assert torch.equal(torch.cat([piece.inputs for piece in pieces]), batch.inputs)
    assert list(split_batch(batch, 7)) == list(split_batch(batch, None)) == [batch]


class TooLarge:
    """A forward that runs out of memory above some examples, after its dropout has been drawn."""

    def __init__(self, most: int) -> None:
        self.most, self.seen, self.whole = most, [0], Classifier.forward

    def __call__(self, model: Classifier, inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        logits = self.whole(model, inputs, lengths)
        self.seen.append(len(logits))
        if len(logits) > self.most and model.training:
            raise torch.OutOfMemoryError(f"{TRIED}. GPU 0 has none")
        return logits


def shrink(monkeypatch: pytest.MonkeyPatch, most: int) -> TooLarge:
    small = TooLarge(most)
    monkeypatch.setattr(Classifier, "forward", lambda *arguments: small(*arguments))
    return small


def test_what_does_not_fit_is_halved_once_and_for_all(
    tiny: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = trainer(tiny, tmp_path / "asked", "mamba", "train.micro_batch=2", "train.max_steps=3")
    asked.run()
    small = shrink(monkeypatch, most=2)
    run = trainer(tiny, tmp_path / "auto", "mamba", "train.micro_batch=auto", "train.max_steps=3")
    run.run()
    assert [text.split(";")[0] for text in notes(run)] == [
        f"out of memory: batches are computed {size} examples at a time from now on" for size in (4, 2)
    ]
    assert small.seen[:4] == [0, 8, 4, 2]
    assert run.progress.step == 3
    assert run.progress.attempts[-1]["micro_batch"] == "auto: 2"
    # Dropout is on: a step that is tried again draws what it would have drawn at first.
    for (name, one), other in zip(
        asked.module.state_dict().items(), run.module.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other), name


def test_with_room_auto_is_the_whole_batch(tiny: Suite, tmp_path: Path) -> None:
    found: list[Any] = []
    for number, options in enumerate(((), ("train.micro_batch=auto",))):
        run = trainer(tiny, tmp_path / str(number), "msssm-s6", "train.max_steps=3", *options)
        run.run()
        found.append(run.module.state_dict())
    assert all(torch.equal(value, found[1][name]) for name, value in found[0].items())


@pytest.mark.parametrize(
    ("model", "most", "message"),
    [
        ("mamba", 0, "not enough memory for a single example: "),
        ("msssm-s6", 4, "batch norm takes its statistics"),
    ],
)
def test_what_cannot_be_halved_is_a_typed_failure(
    tiny: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, most: int, message: str
) -> None:
    shrink(monkeypatch, most)
    run = trainer(tiny, tmp_path, model, "train.micro_batch=auto")
    with pytest.raises(OutOfMemory, match=message) as caught:
        run.run()
    assert TRIED in str(caught.value)


def test_other_errors_are_not_taken_for_a_lack_of_memory(
    tiny: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object) -> torch.Tensor:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(Classifier, "forward", wrong)
    with pytest.raises(RuntimeError, match="shapes differ"):
        trainer(tiny, tmp_path, "mamba", "train.micro_batch=auto").run()


def test_smoothing_spreads_a_share_of_each_label_over_all_classes() -> None:
    logits, labels = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 3, 2, 1, 3])
    targets = 0.9 * functional.one_hot(labels, 4).double() + 0.1 / 4
    expected = -(targets * logits.log_softmax(dim=1)).sum(dim=1).mean()
    torch.testing.assert_close(
        compute_loss(logits, labels, "cross-entropy", 0.1), expected, rtol=1e-12, atol=0
    )
