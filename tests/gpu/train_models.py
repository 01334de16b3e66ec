"""Train, stop, resume and test models on a CUDA device; print what happened, an object a line.

Usage: train_models.py [--deterministic] [--bf16] [MODEL...]
"""

import json
import signal
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from msbench import models
from msbench.analysis.determinism import DeterminismProblem
from msbench.config import MODELS, RunSpec
from msbench.datasets.dataset import Dataset
from msbench.environment import use_deterministic
from msbench.errors import Interrupted
from msbench.runs.memory import limit_step_memory, plan_recomputation
from msbench.training.loop import Trainer, make_fabric
from msbench.training.metrics import ProgressCallback
from msbench.training.signals import SignalFlag

PROBLEM = DeterminismProblem(steps=5, stop=2, epoch=3, batch=4, longest=48, width=16)


def make_trainer(spec: RunSpec, dataset: Dataset, folder: Path, flag: SignalFlag) -> Trainer:
    """Return a trainer as a run has one."""
    trainer = Trainer(
        spec,
        models.build(spec.model_name, spec.model, dataset.info, spec.seed),
        dataset,
        directory=folder,
        run_id="0" * 12,
        fabric=make_fabric("cuda", spec.train.precision),
        callback=ProgressCallback(),
        signals=flag,
    )
    limit = limit_step_memory("cuda")
    trainer.gradients.count_recomputed, _ = plan_recomputation(spec, dataset.info, "cuda", limit)
    return trainer


def train_model(name: str, precision: str) -> dict[str, Any]:
    """Train a model up to a signal, then in a new trainer to the end; predict the test split."""
    spec = PROBLEM.spec(name)
    spec = spec.model_copy(update={"train": spec.train.model_copy(update={"precision": precision})})
    dataset, flag = PROBLEM.dataset(numbers=MODELS[name].numbers_only), SignalFlag()

    def stop(step: int) -> None:
        if step == PROBLEM.stop:
            flag.received = signal.SIGTERM

    with tempfile.TemporaryDirectory(prefix="msbench-") as folder:
        first = make_trainer(spec, dataset, Path(folder), flag)
        first.after_step = stop
        stopped = None
        try:
            first.run()
        except Interrupted:
            stopped = first.progress.step
        second = make_trainer(spec, dataset, Path(folder), SignalFlag())
        second.run()
        devices = {str(x.device) for x in (*second.module.parameters(), *second.module.buffers())}
        return {
            "model": name,
            "kernel": models.find_family(name).name_kernel(spec.model, "cuda"),
            "stopped": stopped,
            "steps": second.progress.step,
            "resumes": second.progress.resumes,
            "epochs": len(second.progress.rows),
            "losses": [row["train_loss"] for row in second.progress.rows],
            "tested": list(second.test().logits.shape),
            "devices": sorted(devices),
        }


def main(arguments: list[str]) -> None:
    """Train the models that are named, or all."""
    flags = [each for each in arguments if each.startswith("--")]
    names = [each for each in arguments if not each.startswith("--")]
    with use_deterministic("cuda") if "--deterministic" in flags else nullcontext():
        for name in names or MODELS:
            began = time.monotonic()
            try:
                found = train_model(name, "bf16" if "--bf16" in flags else "float32")
            except Exception as error:  # each model gets its turn
                found = {"model": name, "error": f"{type(error).__name__}: {error}"}
            found["seconds"] = time.monotonic() - began
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
