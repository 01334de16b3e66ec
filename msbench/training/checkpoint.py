"""Checkpoints: one safetensors file each, plain JSON in its header, nothing that needs unpickling.

``last.safetensors`` holds all that a run needs to resume (weights, their average if there is one, optimiser,
generators, running sums), and ``previous.safetensors`` is the one before it. ``best-<epoch>.safetensors``
holds the weights, or their average, of the epoch that validated best so far. Each is written completely under
another name and then renamed.
"""

import contextlib
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from msbench.config.messages import format_bytes
from msbench.errors import CheckpointError, explain_unwritable
from msbench.results.files import parse_json, read_bytes, write_atomically
from msbench.training.processes import Processes

FORMAT = "2"


class UnreadableCheckpoint(CheckpointError):
    """Error for a file that the system cannot read: its content may be intact."""


class MissingCheckpoint(CheckpointError):
    """Error for a file that does not exist."""


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, and a JSON-serialisable state."""

    tensors: dict[str, torch.Tensor]
    state: dict[str, Any]


class CheckpointFolder:
    """The ``checkpoint/`` folder of one run; refuses files that another run wrote."""

    def __init__(self, path: Path, run_id: str) -> None:
        self.path, self.run_id = path, run_id
        self.last, self.previous = path / "last.safetensors", path / "previous.safetensors"
        self.next = path / "next.safetensors"

    def prepare(self, needed: int) -> None:
        """Create the folder, and check that it can be written and has room for `needed` bytes.

        Raises CheckpointError, naming the folder, before any training is done.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for leftover in self.path.glob(".*.tmp"):
                leftover.unlink()
            write_atomically(self.path / "writable", b"")
            (self.path / "writable").unlink()
            free = shutil.disk_usage(self.path).free
        except OSError as error:
            raise CheckpointError(
                f"cannot keep checkpoints: {explain_unwritable(self.path, error, '--results')}"
            ) from error
        if free < needed:
            raise CheckpointError(
                f"{self.path}: {format_bytes(needed)} of checkpoints will not fit into"
                f" {format_bytes(free)}; make room, or choose another --results"
            )

    def save_last(self, checkpoint: Checkpoint) -> None:
        """Save the state to resume from; the last one becomes ``previous``."""
        self._write(self.next, self.pack(checkpoint))
        self._settle()

    def _settle(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # there is none before the first save
            os.replace(self.last, self.previous)
        os.replace(self.next, self.last)

    def best_path(self, epoch: int) -> Path:
        """Return the path of this epoch's weights, while it is the best."""
        return self.path / f"best-{epoch}.safetensors"

    def save_best(self, checkpoint: Checkpoint, epoch: int) -> None:
        """Save the weights of an epoch that is the best so far.

        The earlier ones stay until `forget_other_bests`: a run stopped before its next ``last`` resumes at a
        step where they were the best.
        """
        self._write(self.best_path(epoch), self.pack(checkpoint))

    def forget_other_bests(self, epoch: int | None) -> None:
        """Remove the weights of all epochs but this one."""
        for path in self.path.glob("best-*.safetensors"):
            if epoch is None or path != self.best_path(epoch):
                path.unlink()

    def load_best(self, epoch: int | None) -> Checkpoint:
        """Load the weights of the best epoch.

        If they are damaged or missing, the run's files cannot be trusted to belong together: its checkpoints
        are archived, and CheckpointError reports that the same command trains again. If they only cannot be
        read, all files stay.
        """
        try:
            if epoch is None:
                raise CheckpointError("no epoch was validated")
            return self.load(self.best_path(epoch))
        except UnreadableCheckpoint:
            raise
        except CheckpointError as error:
            kept = self._archive(self._all())
            raise CheckpointError(f"{error}{kept}; the same command now trains from the start") from error

    def load_last(self) -> tuple[Checkpoint | None, list[str]]:
        """Load the newest intact checkpoint, and report those skipped; None if there is none to resume from.

        Damaged files are archived, as later saves would replace them. Raises Unreadable if a checkpoint
        cannot be read but may be intact, rather than train from the start.
        """
        found, damaged = self._newest()
        # Without a state to resume from, the weights of the best epoch would be replaced too.
        kept = self._archive(self._all() if damaged and found is None else list(damaged))
        return found, [f"{error}{kept}" for error in damaged.values()]

    def _newest(self) -> tuple[Checkpoint | None, dict[Path, CheckpointError]]:
        """Return the newest intact checkpoint, and the damaged ones that are newer."""
        damaged: dict[Path, CheckpointError] = {}
        for path in (self.next, self.last, self.previous):
            try:
                found = self.load(path)
            except MissingCheckpoint:
                continue
            except UnreadableCheckpoint:
                raise
            except CheckpointError as error:
                damaged[path] = error
                continue
            # The process was killed before the renaming, which after the last save no other would do.
            if path == self.next:
                self._settle()
            return found, damaged
        return None, damaged

    def _all(self) -> list[Path]:
        return sorted(self.path.glob("*.safetensors"))

    def _archive(self, paths: Sequence[Path]) -> str:
        """Move files into a new folder ``damaged-<k>`` here, and return a note; nothing is ever deleted."""
        if not paths:
            return ""
        folder = next(
            place for k in itertools.count(1) if not os.path.lexists(place := self.path / f"damaged-{k}")
        )
        try:
            folder.mkdir()
            for path in paths:
                path.rename(folder / path.name)
        except OSError as error:
            raise CheckpointError(explain_unwritable(error.filename or folder, error, "--results")) from error
        return f" (archived in {folder})"

    def load(self, path: Path) -> Checkpoint:
        """Read one file; CheckpointError if it is damaged or another run's, else Absent or Unreadable."""
        try:
            data = read_bytes(path, largest=None)
        except FileNotFoundError as error:
            raise MissingCheckpoint(f"{path}: no such file") from error
        except OSError as error:
            raise UnreadableCheckpoint(
                f"{path}: cannot be read: {error.strerror}; see to it, or remove it"
            ) from error
        try:
            tensors, metadata = load(data), _metadata(data)
        except (SafetensorError, ValueError, LookupError, TypeError) as error:
            raise CheckpointError(f"{path}: not a whole checkpoint: {error}") from error
        if metadata.get("format") != FORMAT or metadata.get("run") != self.run_id:
            raise CheckpointError(f"{path}: written by another run or version ({metadata.get('run')})")
        state = metadata.get("state", "")
        if metadata.get("digest") != _digest(state, tensors):
            raise CheckpointError(f"{path}: is damaged: its bytes are not those that were written")
        try:
            values = parse_json(state)
            if not isinstance(values, dict):
                raise ValueError("its state is no mapping")
        except ValueError as error:
            raise CheckpointError(f"{path}: not a whole checkpoint: {error}") from error
        return Checkpoint(tensors, values)

    def broadcast(self, found: Checkpoint | None, processes: Processes) -> Checkpoint | None:
        """Return the checkpoint that the first of several processes has read."""
        if processes.count == 1:
            return found
        data = processes.broadcast(None if found is None else self.pack(found))
        return None if data is None else unpack(data)

    def pack(self, checkpoint: Checkpoint) -> bytes:
        """Return a checkpoint as the bytes of a file."""
        # The JSON is in the header, so that tensors and state are always of the same step.
        state = json.dumps(checkpoint.state, allow_nan=False)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
        metadata = {"format": FORMAT, "run": self.run_id, "state": state, "digest": _digest(state, tensors)}
        return save(tensors, metadata)

    def _write(self, path: Path, data: bytes) -> None:
        try:
            write_atomically(path, data)
        except OSError as error:
            raise CheckpointError(explain_unwritable(path, error, "--results")) from error


def _digest(state: str, tensors: dict[str, torch.Tensor]) -> str:
    """Return sha256 of state, names, types, shapes and bytes: safetensors misses flipped bits."""
    total = hashlib.sha256(state.encode())
    for name, tensor in sorted(tensors.items()):
        total.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def unpack(data: bytes) -> Checkpoint:
    """Return the checkpoint that another process of the same run has packed."""
    return Checkpoint(load(data), json.loads(_metadata(data)["state"]))


def _metadata(data: bytes) -> dict[str, str]:
    """Return the texts in a file's header; safetensors only reads them from a path, which it would map."""
    # The first eight bytes are the length of the header, which is JSON.
    header = parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")])
    found: dict[str, str] = header.get("__metadata__", {})
    return found


def load_weights(model: torch.nn.Module, tensors: dict[str, torch.Tensor], prefix: str = "model/") -> None:
    """Load ``model/...`` tensors; CheckpointError lists names and shapes that do not match."""
    weights = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    try:
        model.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        raise CheckpointError(f"the checkpoint does not fit this model: {error}") from error


def get_model_tensors(model: torch.nn.Module, prefix: str = "model/") -> dict[str, torch.Tensor]:
    """Return parameters and buffers under ``model/...``."""
    return {f"{prefix}{name}": value for name, value in model.state_dict().items()}


def get_optimizer_tensors(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, torch.Tensor]:
    """Return optimiser state under ``optimizer/<parameter>/<key>``: by name, not by position."""
    return {
        f"optimizer/{name}/{key}": torch.as_tensor(value)
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]
) -> None:
    """Load the state from `optimizer_tensors`; CheckpointError if a parameter has none."""
    for name, parameter in model.named_parameters():
        prefix = f"optimizer/{name}/"
        state = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        if not state:
            raise CheckpointError(f"the checkpoint holds no optimiser state of {name}")
        # AdamW keeps its step count on the CPU, unless it is fused; the moments live with the parameter.
        fused = optimizer.defaults.get("fused")
        optimizer.state[parameter] = {
            key: value.to("cpu" if key == "step" and not fused else parameter.device, copy=True)
            for key, value in state.items()
        }
