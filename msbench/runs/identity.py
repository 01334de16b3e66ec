"""The identity of a run: an id made of its settings, its data, and the source of its model and training."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from msbench.config import MODELS, RunSpec
from msbench.results.record import compute_run_id
from msbench.runs.definition import Definition, SourceTree

TRAINING = (
    "msbench.training.loop:Trainer",
    "msbench.models:build",
    "msbench.datasets.dataset:RaggedTokens",
    "msbench.datasets.dataset:RaggedPairs",
    "msbench.datasets.dataset:Samples",
)
"""Definitions that every run has: its training, the seed of its model, and the batches of its data."""
BATCHES = {
    "cifar10": ("msbench.datasets.pixels",),
    "mnist": ("msbench.datasets.pixels",),
    "imagenet": ("msbench.datasets.imagenet.split:Pictures",),
}
"""Definitions of batches that are made while training, by dataset; other data are arrays with a digest."""
WITHOUT = (
    *("msbench.errors", "msbench.console", "msbench.results", "msbench.config"),
    *("msbench.ops.operators", "msbench.ops.native_library"),
)
"""Modules that decide no result; the settings and the data have digests of their own."""
_SCAN = ("msbench.ops.scan.reference:selective_scan_reference", "msbench.ops.scan.reference:step_sizes")
_BANK = ("msbench.ops.filters:TorchBankEngine",)
REFERENCES: dict[str, tuple[str, ...]] = {
    "msbench.ops.batch_norm:frozen_batch_norm": ("msbench.ops.batch_norm:apply_affine",),
    "msbench.ops.batch_norm:masked_batch_norm": ("msbench.ops.batch_norm:masked_batch_norm_reference",),
    "msbench.ops.filters:causal_conv": _BANK,
    "msbench.ops.filters:decompose": _BANK,
    "msbench.ops.linear_scan:is_linear_native": (),
    "msbench.ops.linear_scan:linear_scan": ("msbench.ops.linear_scan:linear_scan_reference",),
    "msbench.ops.lti_scan:lti_scan": ("msbench.ops.lti_scan:lti_scan_reference",),
    "msbench.ops.scan.dispatch:selective_scan": _SCAN[:1],
    "msbench.ops.scan.fused:low_rank_scan": _SCAN,
    "msbench.ops.scan.fused:makes_inputs": (),
    "msbench.ops.scan.fused:multi_scale_scan": (*_BANK, *_SCAN),
}
"""What counts for an operation that has kernels: its reference; for a choice among kernels: nothing.

Every process checks the kernel that it uses against the reference. Kernels, their choice and their check are
recorded, and a faster one changes no id.
"""
OPERATIONS = ("ops/**/*.py", "ops/native/*.[chi]*")
"""Files of the operations, with their kernels in every language."""
TREE = SourceTree(Path(__file__).parents[1], without=WITHOUT, instead=REFERENCES)


@dataclass(frozen=True)
class Identity:
    """A run's id and the digests that it is made of."""

    run_id: str
    data_digest: str
    source_digest: str
    files: dict[str, str]


def identify(spec: RunSpec, data_digest: str) -> Identity:
    """Return the id of a run with these settings, on this data, by the present source."""
    batches = BATCHES.get(spec.data.dataset, ())
    found = define((f"{MODELS[spec.model_name].module}:build", *TRAINING, *batches))
    return Identity(
        compute_run_id(spec.digest, data_digest, found.digest), data_digest, found.digest, found.files
    )


@cache
def define(roots: tuple[str, ...]) -> Definition:
    """Return the digests of the source that these definitions of msbench use."""
    return TREE.digest_definition(roots)


@cache
def digest_kernels() -> str:
    """Return one sha256 over the files of all operations."""
    paths = [path for pattern in OPERATIONS for path in sorted(TREE.folder.glob(pattern))]
    # Line ends are normalised, so that a checkout with CRLF gives the same digest.
    texts = [path.read_bytes().replace(b"\r\n", b"\n") for path in paths]
    return hashlib.sha256(b"".join(texts)).hexdigest()
