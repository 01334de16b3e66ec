"""The training that is repeated: small, generated, and with every component that could differ."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from msbench.config import MODELS, RunSpec
from msbench.config.layers import Located
from msbench.config.run import resolve_data
from msbench.datasets.dataset import SPLITS, Dataset, RaggedTokens, TaskInfo

TOKENS, CLASSES = 12, 4


@dataclass(frozen=True)
class DeterminismProblem:
    """Sizes: `epoch` batches per epoch; the resumed run of `steps` was stopped after `stop` of them.

    With another number of threads only the first `threads_steps` are trained: small differences grow, and
    threads that wait for each other on a busy machine take long.

    By default all models take a minute or two on two cores, and the stop is within an epoch, after one that
    was validated. Few operations are so large that PyTorch would split them among threads.
    """

    steps: int = 20
    stop: int = 10
    threads_steps: int = 3
    epoch: int = 7
    batch: int = 8
    longest: int = 64
    width: int = 24
    layers: int = 2


def dataset_of(problem: DeterminismProblem) -> Dataset:
    """Generate random tokens of unequal length; the first one decides the class."""
    info = TaskInfo("tokens", TOKENS, CLASSES, problem.longest, "accuracy", 1 / CLASSES, {})
    counts = (problem.epoch * problem.batch, problem.batch, problem.batch)
    splits = {
        name: _split(problem, count, seed)
        for seed, (name, count) in enumerate(zip(SPLITS, counts, strict=True))
    }
    return Dataset(info, splits, "0" * 64, {})


def _split(problem: DeterminismProblem, examples: int, seed: int) -> RaggedTokens:
    source = np.random.default_rng(seed)
    lengths = source.integers(1, problem.longest + 1, examples)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    tokens = source.integers(1, TOKENS, int(offsets[-1]), dtype=np.uint8)
    return RaggedTokens(tokens, offsets, tokens[offsets[:-1]] % CLASSES)


def spec_of(problem: DeterminismProblem, model: str) -> RunSpec:
    """Return a run of this size, with dropout and batch norm (random numbers and state), and clipping."""
    part = Located({"dataset": "listops"}, {}, "doctor")
    return RunSpec(
        suite="doctor",
        task="determinism",
        model_name=model,
        seed=0,
        data=resolve_data(part),
        model=MODELS[model].config(**_settings(problem, model)),
        train={  # type: ignore[arg-type]  # pydantic converts it
            "epochs": -(-problem.steps // problem.epoch),
            "max_steps": problem.steps,
            "batch_size": problem.batch,
            "clip": 1e3,  # never reached: once clipped, every gradient would carry the difference of any one
        },
    )


def _settings(problem: DeterminismProblem, model: str) -> dict[str, Any]:
    """Return the small sizes that this model has; its preset is kept."""
    entry = MODELS[model]
    small = {
        "d_model": problem.width,
        "layers": problem.layers,
        "dropout": 0.1,
        "norm": "batch",
        "state": 16,
        "levels": 3,
        "pattern": ("recurrent", "attention"),
        "window": problem.longest // 3,
    }
    known = {key: value for key, value in small.items() if key in entry.config.model_fields}
    return {**known, **entry.preset}
