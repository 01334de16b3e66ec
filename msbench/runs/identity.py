"""The identity of a run: an id made of its settings, its data, and the source of its model and training."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from msbench.config import MODELS, RunSpec
from msbench.config.definition import Definition, SourceTree
from msbench.config.own import find_own
from msbench.datasets import get_dataset
from msbench.results.files import find_package
from msbench.results.record import compute_run_id

TRAINING = (
    "msbench.training.loop:make_fabric",
    "msbench.training.loop:Trainer",
    "msbench.training.process_group:ProcessGroup",
    "msbench.runs.execution:compute_metrics",
)
"""Definitions that every run has, next to those of its model and its data."""
REGISTERED, OWN = "msbench.models:build_registered", "msbench.models.own:build_seeded"
"""Definitions that build a model of msbench, and one of the user's own."""
Sources = tuple[tuple[str, Path], ...]
"""Packages and modules of the user's, as `SourceTree` takes them."""
WITHOUT = (
    *("msbench.errors", "msbench.console", "msbench.environment", "msbench.results"),
    *("msbench.config.models", "msbench.config.layers", "msbench.config.messages", "msbench.config.own"),
    *("msbench.ops.native_library", "msbench.ops.gpu"),
    *("msbench.ops.scan.native_engine", "msbench.ops.scan.triton_engine"),
    "msbench.ops.scan.triton_low_rank",
)
"""Modules that decide no result. Those of kernels do not, as their results are those of the reference."""
KERNELS: dict[str, tuple[str, ...]] = {
    "msbench.ops.batch_norm:_frozen_norm": (),
    "msbench.ops.batch_norm:_norm": (),
    "msbench.ops.batch_norm:is_norm_native": (),
    "msbench.ops.batch_norm:is_norm_on_gpu": (),
    "msbench.ops.filters:ENGINES": ("msbench.ops.filters:TorchBankEngine",),
    "msbench.ops.filters:_silu_conv": (),
    "msbench.ops.filters:is_bank_native": (),
    "msbench.ops.filters:is_bank_on_gpu": (),
    "msbench.ops.gate:is_gate_on_gpu": (),
    "msbench.ops.layer_norm:is_layer_norm_on_gpu": (),
    "msbench.ops.linear_scan:ENGINES": ("msbench.ops.linear_scan:TorchLinearEngine",),
    "msbench.ops.linear_scan:_recurrence": ("msbench.ops.linear_scan:_apply_engine",),
    "msbench.ops.linear_scan:is_linear_native": (),
    "msbench.ops.lti_scan:ENGINES": ("msbench.ops.lti_scan:TorchLtiEngine",),
    "msbench.ops.lti_scan:is_lti_native": (),
    "msbench.ops.lti_scan:is_lti_on_gpu": (),
    "msbench.ops.lti_scan:run_triton": (),
    "msbench.ops.residual:is_residual_on_gpu": (),
    "msbench.ops.scan.dispatch:KERNELS": (
        "msbench.ops.scan.engines:run_engine",
        "msbench.ops.scan.reference:selective_scan_reference",
    ),
    "msbench.ops.scan.dispatch:get_engine": (),
    "msbench.ops.scan.engines:ENGINES": ("msbench.ops.scan.torch_engine:TorchScanEngine",),
    "msbench.ops.scan.fused:_fused_scan": (),
    "msbench.ops.scan.fused:is_fused_native": (),
    "msbench.ops.scan.fused:is_low_rank_triton": (),
}
"""What counts in place of kernels in C++ and Triton: the same in PyTorch; for their choice, nothing.

A process checks each of these kernels against a reference before it uses one. They are recorded, and a faster
one changes no id.
"""
OPERATIONS = ("ops/**/*.py", "ops/native/*.[chi]*")
"""Files of the operations, with their kernels in every language."""
TREE = SourceTree(find_package(), without=WITHOUT, instead=KERNELS)


@dataclass(frozen=True)
class Identity:
    """A run's id and the digests that it is made of."""

    run_id: str
    data_digest: str
    source_digest: str
    files: dict[str, str]


def identify(spec: RunSpec, data_digest: str) -> Identity:
    """Return the id of a run with these settings, on this data, by the present source.

    Raises ConfigError if the source of a user's own model or dataset cannot be followed.
    """
    codes = [code for code in (find_own(spec.model), find_own(spec.data)) if code is not None]
    try:
        found = define(
            list_roots(spec), tuple(dict.fromkeys(each for code in codes for each in code.sources))
        )
    except (LookupError, SyntaxError) as error:
        if not codes:
            raise
        key = "model.use" if find_own(spec.model) else "data.use"
        raise codes[0].error(key, f"the run's id needs all of its source: {error}") from None
    run_id = compute_run_id(spec.digest, data_digest, found.digest)
    return Identity(run_id, data_digest, found.digest, found.files)


def list_roots(spec: RunSpec) -> tuple[str, ...]:
    """Return the definitions at which the source of a run starts.

    The classes of its settings are among them, because they compute values from the given ones, and so is the
    function that makes splits of its data: the digest of data is of the arrays before it.
    """
    model, data = find_own(spec.model), find_own(spec.data)
    # The class of a user's settings is derived from the one in the source.
    configs = (type(each).__base__ if find_own(each) else type(each) for each in (spec.data, spec.model))
    view = (get_dataset(spec.data) if data is None else data.target).view
    roots = [f"{each.__module__}:{each.__qualname__}" for each in (view, *configs, type(spec.train)) if each]
    if data is not None:
        roots[0] = data.find_root(view)
    if model is not None:
        return model.find_root(model.function), *roots, OWN, *TRAINING
    return f"{MODELS[spec.model_name].module}:build", *roots, REGISTERED, *TRAINING


@cache
def define(roots: tuple[str, ...], own: Sources = ()) -> Definition:
    """Return the digests of the source that these definitions, of msbench and of the user's code, use."""
    tree = SourceTree(TREE.folder, TREE.without, TREE.instead, dict(own)) if own else TREE
    return tree.digest_definition(roots)


@cache
def digest_kernels() -> str:
    """Return one sha256 over the files of all operations."""
    paths = [path for pattern in OPERATIONS for path in sorted(TREE.folder.glob(pattern))]
    # Line ends are normalised, so that a checkout with CRLF gives the same digest.
    texts = [path.read_bytes().replace(b"\r\n", b"\n") for path in paths]
    return hashlib.sha256(b"".join(texts)).hexdigest()
