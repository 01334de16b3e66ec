"""A small suite of the paper's protocol and of a scaled one, and records as their runs would leave them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from msbench.cli import app
from msbench.config import RunSpec
from msbench.results import store
from msbench.results.record import RunRecord, compute_run_id, write_record
from msbench.runs.identity import identify
from msbench.runs.suite import load_suite, resolve_specs

SUITE = """\
name: small
title: Small ListOps
protocol: scaled
caption: For tests.
seeds: [0, 1, 2]
data: {dataset: listops, train: 60, validation: 20, test: 20, min_length: 3, max_length: 20}
model: {d_model: 8, layers: 1}
train: {epochs: 1, batch_size: 8, lr: 1e-2}
tasks:
  listops:
models:
  mamba:
  griffin:
"""
REPORTED = 'reported:\n  table: listops\n  columns: {listops: "Accuracy (%)"}\n'
GATE = 'gate: {margin: 0.02, reason: "for tests"}\n'
DATA = "d" * 64
PRESENT = "present"
SETTLED = ((0.60, 0.604, 0.602), (0.50, 0.503, 0.498))
"""What three seeds of both models give."""


def suite_file(folder: Path, *parts: str, **replaced: str) -> Path:
    """Write the suite, with more keys and with some values replaced."""
    text = SUITE
    for key, value in replaced.items():
        (old,) = [line for line in text.splitlines() if line.startswith(f"{key}:")]
        text = text.replace(old, f"{key}: {value}")
    path = folder / "small.yaml"
    path.write_text(text + "".join(parts), encoding="utf-8")
    return path


def recorded(results: Path, spec: RunSpec, value: float | None, **changes: Any) -> RunRecord:
    """Write the record of a run of this spec that ended with this accuracy.

    Its source is an older one, or with ``source_digest=PRESENT`` that of the code here.
    """
    if changes.get("source_digest") == PRESENT:
        changes["source_digest"] = identify(spec, DATA).source_digest
    digests = {"data_digest": DATA, "source_digest": "5" * 64, **changes}
    identity = compute_run_id(spec.digest, digests["data_digest"], digests["source_digest"])
    values: dict[str, Any] = {
        "run_id": identity,
        "status": "finished",
        "suite": spec.suite,
        "task": spec.task,
        "model": spec.model_name,
        "seed": spec.seed,
        "spec": spec.model_dump(mode="json"),
        "spec_digest": spec.digest,
        "data_digest": digests["data_digest"],
        "source_digest": digests["source_digest"],
        "metrics": {} if value is None else {"test_accuracy": value},
        "n_test": 2000,
        "chance": 0.1,
        "baselines": {"majority": 0.17, "root operator only": 0.363},
        "environment": {"device": "cpu"},
        "ended": "2026-01-01T00:00:00+00:00",
    }
    record = RunRecord(**{**values, **changes})
    write_record(store.get_run_folder(results, spec, identity), record)
    return record


def run_all(
    results: Path, path: Path, mamba: Sequence[float], griffin: Sequence[float], **changes: Any
) -> None:
    """Records of seeds 0, 1, ... of both models."""
    suite = load_suite(str(path))
    for model, values in (("mamba", mamba), ("griffin", griffin)):
        for seed, value in enumerate(values):
            (spec,) = resolve_specs(suite, models=[model], seeds=[seed])
            recorded(results, spec, value, **changes)


def msbench(*arguments: str | Path) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])
