"""The benchmark of a whole training step: forward, loss, backward, check, optimiser.

Our Mamba has peers, those of `transformers` and of mamba-ssm, which must agree with it on loss and gradients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from msbench import models
from msbench.analysis.benchmarks import contenders, measurement
from msbench.analysis.benchmarks.measurement import BenchmarkEntry, Report, TimedCall
from msbench.analysis.benchmarks.options import BenchmarkOptions
from msbench.analysis.benchmarks.problem import compute_error
from msbench.analysis.benchmarks.step_models import (
    SHAPES,
    StepRunner,
    StepShape,
    Variant,
    choose_shapes,
    convert_to_peer,
    install_peer,
    make_runner,
)
from msbench.config.selective import MambaConfig
from msbench.environment import measure_free_memory
from msbench.errors import UnknownName
from msbench.models.selective import compute_inner_width
from msbench.ops.scan.dispatch import kernel_name

MODELS = ("mamba", "msssm-s6")
PEER_REPEATS = 2
"""Repeats of a peer whose step is slow."""
STEP_PEERS = {
    "transformers": ("transformers",),
    "transformers-mambapy": ("transformers", "mambapy"),
    "mamba-ssm": ("mamba-ssm",),
}
"""Packages by peer: with mambapy its scan (option ``use_mambapy``), else a loop over time, the default."""
LOSS_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
"""Relative to a parameter's largest gradient: float32 through 20 layers with batch norm."""
KEPT, WORKING = 4.2, 5.0
"""Measured numbers of (b, l, i, n) float32 arrays that each layer of `transformers` keeps, and one uses."""
KEPT_FUSED = 10.0
"""An upper estimate of the (b, l, i) float32 arrays that a layer with mamba-ssm keeps: it has no states."""
SHARE = 0.7
"""Share of the free memory that a step of the peer may take."""
PATIENCE = 120.0
"""Seconds that a step may take by the probe, unless the peer is requested by name."""
LONG = 256
"""Sequence length above which the peer is probed: the backward of its loop is quadratic in the length."""
PROBED = 16
"""The probe uses 1/PROBED of the length."""


@dataclass(kw_only=True)
class StepEntry(BenchmarkEntry):
    """A variant, or a peer of the variant `of`, on the first `examples` of the batch, with its results."""

    variant: Variant
    examples: int
    of: str | None = None
    runner: StepRunner | None = None
    parameters: int = 0
    agreement: dict[str, float] = field(default_factory=dict)

    def stop(self, status: str, reason: str) -> None:
        """Stop measuring, and release the model."""
        super().stop(status, reason)
        self.runner = None

    @property
    def ready(self) -> StepRunner:
        """Return the runner that `start_entry` has built."""
        assert self.runner is not None
        return self.runner


def list_entries(shape: StepShape, options: BenchmarkOptions, report: Report) -> list[StepEntry]:
    """Return the requested variants and peers of a shape; of a peer with the reason if it is skipped."""
    only, whole = options.only, len(shape.batch.labels)
    label = kernel_name(options.device)
    entries = [
        StepEntry(name=name, variant=variant, label=label, examples=whole)
        for name, variant in shape.variants.items()
        if not only or variant.model in only
    ]
    of, variant = next((name, one) for name, one in shape.variants.items() if one.model == "mamba")
    for name in STEP_PEERS:
        if not only or name in only:
            report(f"{shape.name}: {name}")
            peer = StepEntry(name=name, variant=variant, examples=whole, of=of)
            prepare_peer(peer, shape, options)
            entries.append(peer)
    return entries


def prepare_peer(peer: StepEntry, shape: StepShape, options: BenchmarkOptions) -> None:
    """Give a peer its label and the batch that fits; stop it if it is unavailable, too large or too slow."""
    known = {each.name: each for each in contenders.choose_contenders()}
    packages = [known[name] for name in STEP_PEERS[peer.name]]
    for package in packages:
        if fault := package.missing(options.device):
            peer.stop("skipped", fault)
            return
    peer.label = " + ".join(package.label() for package in packages)
    whole = peer.examples
    peer.examples, fault = fit_examples(
        peer.variant, shape, SHARE * measure_free_memory(options.device), fused=peer.name == "mamba-ssm"
    )
    if not fault and peer.name not in options.only:
        fault = explain_slow_step(peer, shape, options.device)
    if fault:
        peer.stop("skipped", fault)
    elif peer.examples < whole:
        peer.reason = f"b {whole} would take too much memory; ratios are per token"


def build_peer(
    peer: StepEntry, shape: StepShape, device: str, examples: int, length: int | None = None
) -> tuple[StepRunner, dict[str, str]]:
    """Build our model with the peer's mixers; return it with our parameter names mapped to the peer's."""
    ours = make_runner(peer.variant, shape, device, examples, length)
    names = install_peer(ours.model, peer.name)
    ours.model.recompute_layers(0)
    return StepRunner(ours.model, ours.batch, shape), names


def explain_slow_step(peer: StepEntry, shape: StepShape, device: str) -> str:
    """Return why a step takes minutes, too slow unless the peer is requested; an empty string if it does not.

    A step on one example of a short length is timed to decide this; it appears in no result.
    """
    length = shape.batch.inputs.shape[1]
    if peer.name != "transformers" or length <= LONG:
        return ""
    small_runner, _ = build_peer(peer, shape, device, 1, length // PROBED)
    seconds, _ = measurement.time_call(small_runner.step, device)
    expected = seconds * PROBED**2 * peer.examples
    if expected <= PATIENCE:
        return ""
    return (
        f"a step may take {expected / 60:.0f} minutes (its backward is quadratic in the length);"
        f" --only {peer.name} waits for it"
    )


def fit_examples(variant: Variant, shape: StepShape, room: float, *, fused: bool = False) -> tuple[int, str]:
    """Return the number of examples that fit into `room` bytes, and a message if none do."""
    examples = len(shape.batch.labels)
    # Batch norm of one unpadded sequence followed by its mean is constant: all gradients would be zero.
    fewest = 2 if variant.config.norm == "batch" else 1
    while estimate_bytes(variant, shape, examples, fused=fused) > room and examples // 2 >= fewest:
        examples //= 2
    if (need := estimate_bytes(variant, shape, examples, fused=fused)) <= room:
        return examples, ""
    return examples, f"b {examples} takes about {need / 1e9:.1f} GB, and {room / 1e9:.1f} GB may be used"


def estimate_bytes(variant: Variant, shape: StepShape, examples: int, *, fused: bool = False) -> int:
    """Return the approximate bytes that a step of a peer takes; a `fused` one keeps no states."""
    config = variant.config
    assert isinstance(config, MambaConfig)
    positions = examples * shape.batch.inputs.shape[1]
    channels = positions * compute_inner_width(config)
    if fused:
        return int(4 * KEPT_FUSED * config.layers * channels)
    return int(4 * (KEPT * config.layers + WORKING) * channels * config.state)


def measure_gradient_error(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> float:
    """Return the largest error of a gradient relative to that parameter's largest; infinite if not finite."""
    errors = []
    for name, value in ours.items():
        gradient = convert_to_peer(name, value)
        errors.append(compute_error(theirs[name].view_as(gradient), gradient))
    return max(errors)


def explain_disagreement(agreement: Mapping[str, float]) -> str:
    """Return why a peer is invalid; an empty string if it agrees with our model."""
    if not agreement["loss"] <= LOSS_TOLERANCE:
        return f"its loss is off by {agreement['loss']:.1e} (more than {LOSS_TOLERANCE:.0e})"
    if not agreement["gradients"] <= GRADIENT_TOLERANCE:
        return f"a gradient is off by {agreement['gradients']:.1e} (more than {GRADIENT_TOLERANCE:.0e})"
    return ""


def measure_steps(options: BenchmarkOptions, report: Report) -> dict[str, Any]:
    """Measure every shape, as plain values; a shape whose data cannot be set up ends the benchmark."""
    for name in options.only:
        if name not in (*MODELS, *STEP_PEERS):
            raise UnknownName("model", name, (*MODELS, *STEP_PEERS), "--only")
    timed_shapes = []
    for name in choose_shapes(options.shapes, quick=options.quick):
        report(f"{name}: data")
        shape = SHAPES[name]()
        timed_shapes.append((shape, time_shape(shape, options, report)))
    # After the last timing: it slows down allocations, and steps of many layers by up to 1.8 times.
    for _, entries in timed_shapes:
        for entry in entries:
            entry.attempt(partial(measure_memory, entry, options.device))
    shapes, rows = [], []
    for shape, entries in timed_shapes:
        found = [describe_entry(entry, shape) for entry in entries]
        shapes.append({"name": shape.name, "title": shape.title, "ratios": compute_ratios(found, shape)})
        rows += found
    return {"shapes": shapes, "rows": rows}


def time_shape(shape: StepShape, options: BenchmarkOptions, report: Report) -> list[StepEntry]:
    """Take first steps and checks of one shape, then timings in turns."""
    entries = list_entries(shape, options, report)
    for entry in entries:
        if entry.is_measured:
            report(f"{shape.name}: first step of {entry.name}")
        entry.attempt(partial(start_entry, entry, shape, options.device))
    measurement.time_entries(entries, options.repeats, lambda text: report(f"{shape.name}: {text}"))
    return entries


def start_entry(entry: StepEntry, shape: StepShape, device: str) -> None:
    """Build the model, compare it if it is a peer; take the first step and, if that was short, a second."""
    entry.runner = make_runner(entry.variant, shape, device, entry.examples)
    if entry.of is not None:
        loss, gradients = entry.runner.gradients()
        entry.runner, names = build_peer(entry, shape, device, entry.examples)
        their_loss, their_gradients = entry.runner.gradients()
        renamed = {name: their_gradients[other] for name, other in names.items()}
        entry.agreement = {
            "loss": abs(their_loss - loss) / abs(loss),
            "gradients": measure_gradient_error(gradients, renamed),
        }
        if fault := explain_disagreement(entry.agreement):
            entry.stop("invalid", fault)
            return
    entry.parameters = models.count_parameters(entry.ready.model)
    step = entry.ready.step
    entry.first_call, _ = measurement.time_call(step, device)
    seconds = measurement.estimate_seconds(step, entry.first_call, device)
    repeats = PEER_REPEATS if entry.of and seconds > measurement.SLOW else None
    entry.calls["step"] = TimedCall(step, device, repeats, seconds)


def measure_memory(entry: StepEntry, device: str) -> None:
    """Measure the peak of one more step, beyond parameters and optimiser state."""
    entry.peak, _ = measurement.measure_peak(entry.ready.step, device)
    entry.runner = None if entry.of else entry.runner  # a peer's layers are large


def describe_entry(entry: StepEntry, shape: StepShape) -> dict[str, Any]:
    """Return an entry as plain values."""
    tokens = int(shape.batch.lengths[: entry.examples].sum())
    found = entry.describe() | {
        "shape": shape.name,
        "states_per_channel": models.count_states_per_channel(entry.variant.model, entry.variant.config),
        "peer_of": entry.of,
        "agreement": entry.agreement,
        "size": {"b": entry.examples, "l": int(shape.batch.inputs.shape[1]), "tokens": tokens},
    }
    if not entry.is_measured:
        return found
    spread = entry.calls["step"].spread
    assert spread is not None, "a measured row was timed"
    return found | {
        "step": asdict(spread),
        "first_call_s": entry.first_call,
        "tokens_per_second": tokens / spread.median,
        "parameters": entry.parameters,
        "peak_bytes": entry.peak.bytes,
        "peak_reason": entry.peak.reason,
    }


def compute_ratios(rows: Sequence[dict[str, Any]], shape: StepShape) -> list[dict[str, Any]]:
    """Return ratios of times per token: MS-SSM over Mamba, the peer over our Mamba."""
    speed = {row["name"]: row["tokens_per_second"] for row in rows if row["status"] == "measured"}
    peers = [(row["name"], row["peer_of"], "peer, same weights") for row in rows if row["peer_of"]]
    return [
        {"name": name, "over": other, "what": what, "ratio": speed[other] / speed[name]}
        for name, other, what in [*shape.pairs, *peers]
        if name in speed and other in speed
    ]
