"""Two folders of results: is one, bit for bit, what the other is?"""

from pathlib import Path

import pandas as pd
import torch
from safetensors.torch import load_file

from msbench.results import store

PER_MACHINE = ["seconds", "tokens_per_second"]


def assert_same(found: Path, expected: Path) -> None:
    """Weights, optimiser, logs, answers and what records say of them, whatever was stopped how often."""
    ours, theirs = (store.read_records(results) for results in (found, expected))
    assert (ours[1], theirs[1]) == ([], [])
    for mine, other in zip(ours[0], theirs[0], strict=True):
        assert (mine.status, mine.run_id, mine.metrics, mine.steps) == (
            *(other.status, other.run_id, other.metrics, other.steps),
        )
    names = [path.relative_to(expected) for path in sorted(expected.rglob("*.safetensors"))]
    assert names
    assert names == [path.relative_to(found) for path in sorted(found.rglob("*.safetensors"))]
    for name in names:
        tensors, wanted = load_file(found / name), load_file(expected / name)
        assert tensors.keys() == wanted.keys()
        assert all(torch.equal(tensor, wanted[key]) for key, tensor in tensors.items()), name
    for path in expected.rglob("predictions.parquet"):
        assert (found / path.relative_to(expected)).read_bytes() == path.read_bytes()
    for path in expected.rglob("metrics.csv"):
        pd.testing.assert_frame_equal(log(found / path.relative_to(expected)), log(path))


def log(path: Path) -> pd.DataFrame:
    """The epochs of a run, without what depends on the machine."""
    # A run that failed in its first epoch has rows within it alone, without these.
    return pd.read_csv(path, dtype=str).drop(columns=PER_MACHINE, errors="ignore")
