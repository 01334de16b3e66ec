"""Checkpoints are whole, another run's are refused, and a cut one is passed over."""

import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from archives import flipped
from torch import nn

from msbench.errors import CheckpointError
from msbench.results import files as reading
from msbench.training import checkpoint
from msbench.training.checkpoint import (
    Checkpoint,
    CheckpointFolder,
    UnreadableCheckpoint,
    get_model_tensors,
    get_optimizer_tensors,
    load_optimizer,
    load_weights,
)


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    made = CheckpointFolder(tmp_path / "checkpoint", "0123456789ab")
    made.prepare(needed=0)
    return made


def moment(number: int) -> Checkpoint:
    return Checkpoint({"model/w": torch.full((300,), float(number))}, {"step": number, "text": "δ"})


def test_what_was_saved_is_loaded(folder: CheckpointFolder) -> None:
    folder.save_last(moment(1))
    found, skipped = folder.load_last()
    assert found is not None
    assert found.state == {"step": 1, "text": "δ"}
    assert torch.equal(found.tensors["model/w"], torch.ones(300))
    assert skipped == []


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.1, 0.2, 0.4, 0.6, 0.8, 0.99, 0.9999])
def test_a_cut_file_is_passed_over_for_the_one_before(folder: CheckpointFolder, share: float) -> None:
    folder.save_last(moment(1))
    folder.save_last(moment(2))
    data = folder.last.read_bytes()
    folder.last.write_bytes(data[: int(share * len(data))])
    found, skipped = folder.load_last()
    assert found is not None
    assert found.state["step"] == 1
    assert len(skipped) == 1
    assert str(folder.last) in skipped[0]


def test_a_flipped_bit_is_found_wherever_it_is(folder: CheckpointFolder) -> None:
    """In the header, which is JSON, and in the tensors, of which safetensors itself would notice none."""
    folder.save_best(moment(1), epoch=0)
    path, data = folder.best_path(0), folder.best_path(0).read_bytes()
    for place in range(len(data)):
        path.write_bytes(flipped(data, place))
        try:
            found = folder.load(path)
        except CheckpointError:
            continue
        # Blanks that fill the header up to a multiple of eight are nobody's.
        assert data[place : place + 1] == b" "
        assert found.state == moment(1).state
        assert torch.equal(found.tensors["model/w"], moment(1).tensors["model/w"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64, torch.int64, torch.bool, torch.uint8])
@pytest.mark.parametrize("shape", [(), (0,), (3, 2)])
def test_tensors_of_every_kind_are_verified(
    folder: CheckpointFolder, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    tensor = torch.ones(shape, dtype=dtype)
    folder.save_last(Checkpoint({"x": tensor, "y": torch.ones(4, 3).T}, {}))
    found, skipped = folder.load_last()
    assert skipped == []
    assert found is not None
    assert torch.equal(found.tensors["x"], tensor)


def test_a_stop_between_the_two_renames_loses_nothing(folder: CheckpointFolder) -> None:
    folder.save_last(moment(1))
    folder.save_last(moment(2))
    os.replace(folder.last, folder.path / "next.safetensors")
    found, _ = folder.load_last()
    assert found is not None
    assert found.state["step"] == 2
    # And ends what was begun: after the last save of a run nobody else would.
    assert sorted(path.name for path in folder.path.iterdir()) == ["last.safetensors", "previous.safetensors"]
    assert folder.load(folder.last).state["step"] == 2


def test_another_runs_file_is_refused(folder: CheckpointFolder) -> None:
    folder.save_best(moment(1), epoch=3)
    other = CheckpointFolder(folder.path, "ffffffffffff")
    with pytest.raises(CheckpointError, match="another run"):
        other.load(other.best_path(3))


def test_the_best_before_stays_until_the_next_last_is_safe(folder: CheckpointFolder) -> None:
    folder.save_best(moment(1), epoch=1)
    folder.save_best(moment(2), epoch=4)
    assert folder.load_best(1).state["step"] == 1
    folder.forget_other_bests(4)
    assert [path.name for path in folder.path.iterdir()] == ["best-4.safetensors"]
    assert folder.load_best(4).state["step"] == 2


def names(folder: CheckpointFolder) -> list[str]:
    return sorted(path.relative_to(folder.path).as_posix() for path in folder.path.rglob("*.safetensors"))


@pytest.mark.parametrize("damage", ["cut", "gone", "never"])
def test_without_the_best_weights_a_run_starts_anew_and_keeps_the_others(
    folder: CheckpointFolder, damage: str
) -> None:
    folder.save_last(moment(1))
    folder.save_best(moment(1), epoch=2)
    if damage == "cut":
        folder.best_path(2).write_bytes(folder.best_path(2).read_bytes()[:-8])
    elif damage == "gone":
        folder.best_path(2).unlink()
    before = names(folder)
    with pytest.raises(CheckpointError, match=r"damaged-1\); the same command now trains from the start"):
        folder.load_best(None if damage == "never" else 2)
    assert folder.load_last() == (None, [])
    assert names(folder) == [f"damaged-1/{name}" for name in before]


def test_what_is_damaged_is_archived_before_a_save_would_replace_it(folder: CheckpointFolder) -> None:
    folder.save_last(moment(1))
    folder.save_last(moment(2))
    for attempt in (1, 2):
        folder.last.write_bytes(b"damaged")
        found, (text,) = folder.load_last()
        assert found is not None
        assert found.state["step"] == 1
        assert text.endswith(f"(archived in {folder.path}/damaged-{attempt})")
        assert (folder.path / f"damaged-{attempt}" / "last.safetensors").read_bytes() == b"damaged"
        folder.save_last(moment(2))


def test_best_weights_without_a_state_to_go_on_from_are_archived_too(folder: CheckpointFolder) -> None:
    folder.save_best(moment(1), epoch=2)
    folder.save_last(moment(1))
    folder.last.write_bytes(b"damaged")
    found, skipped = folder.load_last()
    assert (found, len(skipped)) == (None, 1)
    assert names(folder) == ["damaged-1/best-2.safetensors", "damaged-1/last.safetensors"]


NOT_DAMAGE = [errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE, errno.ENOMEM, errno.ENODEV, errno.EACCES]


class Failing(io.BytesIO):
    """A file that opens and cannot be read."""

    number = 0

    def read(self, _size: int | None = -1) -> bytes:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("number", NOT_DAMAGE)
@pytest.mark.parametrize("at", ["open", "fstat", "read"])
def test_what_cannot_be_read_is_no_damage_and_stays(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch, number: int, at: str
) -> None:
    folder.save_last(moment(1))
    folder.save_best(moment(1), epoch=2)
    files = {path: path.read_bytes() for path in sorted(folder.path.iterdir())}

    def failing(*_: Any, **__: Any) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        if at == "read":
            patch.setattr(Failing, "number", number)
            patch.setattr(reading, "open", lambda *_, **__: Failing(), raising=False)
        else:
            patch.setattr(os, at, failing)
        for read in (lambda: folder.load_best(2), folder.load_last):
            with pytest.raises(
                UnreadableCheckpoint, match=rf"\.safetensors: cannot be read: {os.strerror(number)}; see"
            ):
                read()
    assert {path: path.read_bytes() for path in sorted(folder.path.iterdir())} == files


def test_too_little_memory_to_read_is_no_damage(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.save_best(moment(1), epoch=2)

    def exhaust(*_: Any, **__: Any) -> bytes:
        raise MemoryError

    monkeypatch.setattr(checkpoint, "read_bytes", exhaust)
    with pytest.raises(MemoryError):
        folder.load_best(2)
    assert names(folder) == ["best-2.safetensors"]


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    made = CheckpointFolder(tmp_path / os.fsdecode(b"caf\xe9") / "checkpoint", "0123456789ab")
    made.prepare(needed=0)
    made.save_last(moment(1))
    made.save_best(moment(1), epoch=2)
    assert made.load_best(2).state == moment(1).state
    found, skipped = made.load_last()
    assert (found is not None, skipped) == (True, [])


def test_a_pipe_is_not_waited_for(folder: CheckpointFolder) -> None:
    os.mkfifo(folder.last)
    with pytest.raises(CheckpointError, match="cannot be read: not a regular file"):
        folder.load_last()


def test_leftovers_of_a_killed_save_are_removed(folder: CheckpointFolder) -> None:
    (folder.path / ".last.safetensors.abc.tmp").write_bytes(b"half")
    folder.prepare(needed=0)
    assert list(folder.path.iterdir()) == []


def test_no_room_and_no_folder_are_said_before_training(folder: CheckpointFolder, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="will not fit"):
        folder.prepare(needed=10**18)
    (tmp_path / "file").write_text("")
    with pytest.raises(
        CheckpointError, match=r"cannot keep checkpoints: .*Not a directory; choose another --results"
    ):
        CheckpointFolder(tmp_path / "file" / "checkpoint", "x").prepare(needed=0)


def test_a_full_disk_leaves_the_old_checkpoint(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.save_last(moment(1))

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left"):
        folder.save_last(moment(2))
    found, _ = folder.load_last()
    assert found is not None
    assert found.state["step"] == 1


def test_weights_must_fit_name_for_name_and_shape_for_shape() -> None:
    tensors = get_model_tensors(nn.Linear(3, 2))
    load_weights(nn.Linear(3, 2), tensors)
    with pytest.raises(CheckpointError, match="does not fit"):
        load_weights(nn.Linear(4, 2), tensors)
    with pytest.raises(CheckpointError, match="bias"):
        load_weights(nn.Linear(3, 2, bias=False), tensors)
    del tensors["model/bias"]
    with pytest.raises(CheckpointError, match="bias"):
        load_weights(nn.Linear(3, 2), tensors)


def adamw(*groups: torch.Tensor) -> torch.optim.AdamW:
    return torch.optim.AdamW([{"params": [tensor]} for tensor in groups])


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


def test_optimiser_state_goes_by_name() -> None:
    model = nn.Linear(3, 2)
    optimizer = adamw(model.weight, model.bias)
    step(model, optimizer)
    copy = nn.Linear(3, 2)
    load_weights(copy, get_model_tensors(model))
    # The groups stand in another order: positions would mix the two up.
    other = adamw(copy.bias, copy.weight)
    load_optimizer(copy, other, get_optimizer_tensors(model, optimizer))
    step(model, optimizer)
    step(copy, other)
    assert torch.equal(model.weight, copy.weight)
    assert torch.equal(model.bias, copy.bias)


def test_a_missing_optimiser_state_is_an_error() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(CheckpointError, match="weight"):
        load_optimizer(model, torch.optim.AdamW(model.parameters()), {})


@pytest.mark.parametrize("state", ["", "{", "[]", "3", "[" * 500 + "]" * 500])
def test_a_state_that_is_none_is_damage_whatever_the_digest(
    folder: CheckpointFolder, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    folder.save_last(moment(1))
    with monkeypatch.context() as patch:
        patch.setattr(json, "dumps", lambda *_, **__: state)
        folder.save_last(moment(2))
    with pytest.raises(CheckpointError, match=f"{folder.last}: not a whole checkpoint: "):
        folder.load(folder.last)
    found, skipped = folder.load_last()
    assert found is not None
    assert found.state["step"] == 1
    assert "archived in" in skipped[0]
