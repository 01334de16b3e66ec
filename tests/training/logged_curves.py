"""What loggers wrote, as their own programs read it: TensorBoard's reader, and the records of W&B's files."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

Curves = dict[str, list[tuple[int, float]]]
"""By name, the steps and values of its points, as they were logged."""
RECORD: Any = vars(wandb_internal_pb2)["Record"]
BLOCK = 2**15
"""Bytes of a block of a file of W&B, which has the form of a log of LevelDB behind a header of 7 bytes."""


def read_tensorboard(folder: Path) -> tuple[Curves, EventAccumulator]:
    """Return the curves of a run's folder, and all else that TensorBoard finds there."""
    found = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    curves = {
        tag: [(each.step, each.value) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]
    }
    return curves, found


def read_wandb(folder: Path) -> tuple[Curves, dict[str, Any]]:
    """Return the curves of the one offline run in a run's folder, and its id, settings, summary and code."""
    wandb.teardown()  # W&B's own process writes the last records, and may do so after a run has ended
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    curves: Curves = {}
    about: dict[str, Any] = {"config": {}, "summary": {}}
    for data in _read_records(path.read_bytes()):
        record = RECORD.FromString(data)
        match record.WhichOneof("record_type"):
            case "run":
                about |= {"id": record.run.run_id, "project": record.run.project}
                about["config"] |= _read_items(record.run.config.update)
            case "history":
                row = _read_items(record.history.item)
                for name in row.keys() - {"step", "_step", "_runtime", "_timestamp"}:
                    curves.setdefault(name, []).append((row["step"], row[name]))
            case "summary":
                about["summary"] |= _read_items(record.summary.update)
            case "exit":
                about["code"] = record.exit.exit_code
    return curves, about


def _read_items(items: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def _read_records(data: bytes) -> Iterator[bytes]:
    """Yield the records of such a log: pieces of (checksum, length, kind), none beyond its block."""
    assert data[:4] == b":W&B"
    place, whole = 7, b""
    while place + 7 <= len(data):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a record in one piece, or the last piece of one
            yield whole
            whole = b""
