"""Thousands of run folders, as years of runs leave them: suites, models, seeds, states, and some damage.

python tests/reporting/many_runs.py RESULTS [COUNT]
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from itertools import count as numbers
from pathlib import Path
from typing import Any

from msbench.config import RunSpec
from msbench.results import store
from msbench.results.record import Metric, compute_run_id, get_metric_key
from msbench.runs.suite import load_suite, resolve_specs

SUITES = {
    "listops": ("mamba", "msssm-s6", "msssm-s4", "s5", "msssm-no-ssm", "msssm-mixer-static", "griffin"),
    "ptbxl": ("mamba", "msssm-s4", "msssm-s6", "lstm", "msssm-no-ssm", "msssm-mamba-init"),
    "lra": ("mamba", "msssm-s4", "msssm-s6", "s5", "lru"),
    "scifar": ("mamba", "msssm-s4", "msssm-s6"),
    "quick": ("mamba", "msssm-s6"),
    "smnist": ("mamba", "msssm-s6"),
}
SOURCE = "5" * 64
SOURCES = {f"ops/native/file_{number:02}.inl": f"{number:016x}" for number in range(80)}
ENVIRONMENT = {
    "cores": 2,
    "cpu": "a processor of some length of name, 2.45GHz",
    "cuda": "13.0",
    "device": "cpu",
    "git": {"commit": "0" * 40, "dirty": False},
    "gpus": [],
    "packages": dict.fromkeys(("lightning-fabric", "msbench", "numpy", "torch", "triton"), "1.2.3"),
    "platform": "Linux-6.18-x86_64-with-glibc2.36",
    "python": "3.11.7",
}
DAMAGE = ('{"run_id": ', "[]", "", '{"status": "finished"}')


def write_many(results: Path, count: int) -> dict[str, int]:
    """Write `count` run folders, and return how many of them there are of each state.

    Seeds that the suites do not plan are among them, and every twentieth run was changed by ``--set``. Of a
    hundred runs, five are not finished, one is damaged and one has not ended.
    """
    states: dict[str, int] = {}
    specs = _specs()
    for number in range(count):
        spec = next(specs)
        state = {20: "diverged", 40: "failed", 60: "interrupted", 80: "out-of-memory", 99: "diverged"}.get(
            number % 100, "finished"
        )
        state = {50: "damaged", 70: "not ended"}.get(number % 100, state)
        states[state] = states.get(state, 0) + 1
        _write(results, spec, number, state)
    return states


def _specs() -> Iterator[RunSpec]:
    """Every model on every task of the suites, seed after seed."""
    suites = [load_suite(name) for name in SUITES]
    for seed in numbers():
        for each in suites:
            sets = ["train.max_steps=20"] if seed % 20 == 19 else []
            yield from resolve_specs(each, models=SUITES[each.name], seeds=[seed], overrides=sets)


def _write(results: Path, spec: RunSpec, number: int, state: str) -> None:
    identity = compute_run_id(spec.digest, _data(spec), SOURCE)
    folder = store.get_run_folder(results, spec, identity)
    folder.mkdir(parents=True)
    (folder / "run.lock").touch()
    (folder / "checkpoint").mkdir()
    if state == "damaged":
        (folder / "run.json").write_text(DAMAGE[number // 100 % len(DAMAGE)], encoding="utf-8")
    elif state != "not ended":
        text = json.dumps(_record(spec, identity, number, state), indent=2, sort_keys=True)
        (folder / "run.json").write_text(text + "\n", encoding="utf-8")


def _data(spec: RunSpec) -> str:
    return hashlib.sha256(spec.task.encode()).hexdigest()


def _record(spec: RunSpec, identity: str, number: int, state: str) -> dict[str, Any]:
    metric: Metric = "macro-auroc" if spec.suite == "ptbxl" else "accuracy"
    value = 0.3 + number % 500 / 1000
    attempt = {"device": "cpu", "host": "node", "kernel": "cpp-avx2", "threads": "1"}
    finished = state == "finished"
    return {
        "run_id": identity,
        "status": state,
        "suite": spec.suite,
        "task": spec.task,
        "model": spec.model_name,
        "seed": spec.seed,
        "spec": spec.model_dump(mode="json"),
        "spec_digest": spec.digest,
        "data_digest": _data(spec),
        "source_digest": SOURCE,
        "sources": SOURCES,
        "metric": metric,
        "metrics": {get_metric_key("test", metric): value} if finished else {},
        "failure": None if finished else {"type": "Error", "message": "why it has no result"},
        "n_test": 2000,
        "chance": 0.1,
        "baselines": {"majority": 0.17, "root operator only": 0.363} if spec.suite == "listops" else {},
        "environment": ENVIRONMENT,
        "attempts": [{**attempt, "started": f"2026-01-{day:02}T00:00:00+00:00"} for day in range(1, 4)],
        "started": "2026-01-01T00:00:00+00:00",
        "ended": f"2026-01-02T00:{number % 60:02}:00+00:00",
        "timing": {"train_seconds": 100.0, "test_seconds": 1.0, "tokens_per_second": 1e5},
    }


if __name__ == "__main__":
    print(write_many(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10_000))
