"""Detection of hardware and precision differences between a column's runs, which alone change numbers."""

from collections import defaultdict
from collections.abc import Iterable

from msbench.results.record import RunRecord


def unlike(label: str, records: Iterable[RunRecord]) -> str | None:
    """Return a note if the runs of a column used different hardware or precision; None if not."""
    groups: dict[str, set[str]] = defaultdict(set)
    for record in records:
        if found := arithmetic(record):
            groups[found].add(record.model)
    if len(groups) < 2:
        return None
    listed = "; ".join(f"{name}: {', '.join(sorted(models))}" for name, models in sorted(groups.items()))
    return f"not all runs of {label} were computed alike, which changes digits by itself: {listed}"


def arithmetic(record: RunRecord) -> str:
    """Return the class of device, on a GPU with its precision; empty where the record lacks it."""
    found = record.environment
    if not record.hardware or found.get("device") != "cuda":
        return record.hardware
    cudnn = found.get("cudnn")
    # Earlier records have TF32 for matrix products only; PyTorch's default for cuDNN was on.
    in_cudnn = cudnn.get("tf32") is True if isinstance(cudnn, dict) else True
    places = [
        name for name, on in (("products", found.get("tf32") is True), ("convolutions", in_cudnn)) if on
    ]
    tf32 = f" with TF32 in {' and '.join(places)}" if places else " without TF32"
    return f"{record.hardware}{tf32}{', deterministic' if found.get('deterministic') is True else ''}"
