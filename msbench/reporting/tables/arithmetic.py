"""What the runs of a column were computed on and with, where that alone could make their numbers unlike."""

from collections import defaultdict
from collections.abc import Iterable

from msbench.results.store import RunRecord


def unlike(label: str, records: Iterable[RunRecord]) -> str | None:
    """A note where the runs of a column were not all computed alike; None where they were."""
    groups: dict[str, set[str]] = defaultdict(set)
    for record in records:
        if found := arithmetic(record):
            groups[found].add(record.model)
    if len(groups) < 2:
        return None
    listed = "; ".join(f"{name}: {', '.join(sorted(models))}" for name, models in sorted(groups.items()))
    return f"not all runs of {label} were computed alike, which changes digits by itself: {listed}"


def arithmetic(record: RunRecord) -> str:
    """The class of device, and on a GPU what its precision was; empty where the record does not tell."""
    found = record.environment
    if not record.hardware or found.get("device") != "cuda":
        return record.hardware
    cudnn = found.get("cudnn")
    # Earlier records tell of matrix products alone; PyTorch's default for cuDNN was on.
    in_cudnn = cudnn.get("tf32") is True if isinstance(cudnn, dict) else True
    places = [
        name for name, on in (("products", found.get("tf32") is True), ("convolutions", in_cudnn)) if on
    ]
    tf32 = f" with TF32 in {' and '.join(places)}" if places else " without TF32"
    return f"{record.hardware}{tf32}{', deterministic' if found.get('deterministic') is True else ''}"
