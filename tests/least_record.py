"""The least that a record has, for tests of what reads one; it agrees with itself."""

from typing import Any

from msbench.config.run import compute_spec_digest
from msbench.results.record import compute_run_id

SPEC: dict[str, Any] = {"suite": "s", "task": "t", "model_name": "m", "seed": 0, "train": {"lr": 0.1}}
LEAST: dict[str, Any] = {
    "run_id": compute_run_id(compute_spec_digest(SPEC), "b", "c"),
    "status": "finished",
    "suite": "s",
    "task": "t",
    "model": "m",
    "seed": 0,
    "spec": SPEC,
    "spec_digest": compute_spec_digest(SPEC),
    "data_digest": "b",
    "source_digest": "c",
}
