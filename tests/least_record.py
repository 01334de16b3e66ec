"""The least that a record says, for tests of what reads one."""

from typing import Any

LEAST: dict[str, Any] = {
    "run_id": "0123456789ab",
    "status": "finished",
    "suite": "s",
    "task": "t",
    "model": "m",
    "seed": 0,
    "spec": {"train": {"lr": 0.1}},
    "spec_digest": "a",
    "data_digest": "b",
    "source_digest": "c",
}
