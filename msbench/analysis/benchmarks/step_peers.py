"""The peer of a training step: who it is, whether it can run here, whether it computes the same."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from msbench.analysis.benchmarks import mixer_peer, peers
from msbench.analysis.benchmarks.runner import Runner, runner
from msbench.analysis.benchmarks.shapes import StepShape, Variant
from msbench.analysis.benchmarks.timing import timed
from msbench.config import MambaConfig
from msbench.environment import free_memory
from msbench.models.selective import inner_width

PEERS = {"transformers": False, "transformers-mambapy": True}
"""The scan of the peer: a loop over time, its default, or mambapy's (its option ``use_mambapy``)."""
LOSS_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
"""Of a parameter's largest gradient: float32 through 20 layers with batch norm."""
KEPT, AT_WORK = 4.2, 5.0
"""Arrays of (b, l, i, n) float32 that each layer of the peer keeps, and that one needs at work; measured."""
SHARE = 0.7
"""Of the free memory that a step of the peer may take."""
PATIENCE = 120.0
"""Seconds a step may take by the probe, unless the peer is asked for by name."""
LONG = 256
"""Steps from which the peer is probed: the backward of its loop takes time quadratic in the length."""
PROBED = 16
"""The probe is on one PROBED-th of the length."""


@dataclass(frozen=True)
class Peer:
    """A peer of the variant `of`, on the first `examples` of the batch, or `skipped` for a reason."""

    name: str
    of: str
    variant: Variant
    examples: int
    note: str = ""
    skipped: str = ""

    @property
    def parallel(self) -> bool:
        """True where its scan is mambapy's."""
        return PEERS[self.name]

    def label(self) -> str:
        """Names and versions."""
        parts = ["transformers", "mambapy"] if self.parallel else ["transformers"]
        return " + ".join(map(peers.label, parts))

    def runner(
        self, shape: StepShape, device: str, length: int | None = None
    ) -> tuple[Runner, dict[str, str]]:
        """Our model with the peer's mixers in place of its blocks, and our parameter names to the peer's."""
        ours = runner(self.variant, shape, device, self.examples, length)
        names = mixer_peer.install(ours.model, parallel=self.parallel)
        ours.model.recompute_layers(on=False)
        return Runner(ours.model, ours.batch, shape), names

    def agreement(self, shape: StepShape, device: str) -> tuple[Runner, dict[str, float]]:
        """A fresh peer, and how far its loss and gradients are from ours on the same batch and weights."""
        loss, gradients = runner(self.variant, shape, device, self.examples).gradients()
        theirs, names = self.runner(shape, device)
        their_loss, their_gradients = theirs.gradients()
        renamed = {name: their_gradients[other] for name, other in names.items()}
        return theirs, {
            "loss": abs(their_loss - loss) / abs(loss),
            "gradients": farthest(gradients, renamed),
        }


def peers_of(shape: StepShape, device: str, only: tuple[str, ...]) -> list[Peer]:
    """The peers of the shape's first Mamba."""
    of, variant = next((name, one) for name, one in shape.variants.items() if one.model == "mamba")
    return [peer(name, of, variant, shape, device, asked=name in only) for name in PEERS]


def peer(name: str, of: str, variant: Variant, shape: StepShape, device: str, *, asked: bool) -> Peer:
    """One peer, with the batch that fits, or the reason why it does not take part."""
    examples = len(shape.batch.labels)
    fault = peers.transformers_missing(device)
    if not fault and PEERS[name]:
        fault = peers.mambapy_missing(device)
    if fault:
        return Peer(name, of, variant, examples, skipped=fault)
    fitting, fault = fitted(variant, shape, SHARE * free_memory(device))
    note = "" if fitting == examples else f"b {examples} would take too much memory; ratios are per token"
    found = Peer(name, of, variant, fitting, note, fault)
    if fault or asked or found.parallel or shape.batch.inputs.shape[1] <= LONG:
        return found
    return Peer(name, of, variant, fitting, note, impatience(found, shape, device))


def impatience(found: Peer, shape: StepShape, device: str) -> str:
    """Why its step is not waited for; an empty string where it is.

    A step on one example of a short length is timed. That decides whether the peer takes part; it is in no
    result.
    """
    length = shape.batch.inputs.shape[1] // PROBED
    small = Peer(found.name, found.of, found.variant, 1)
    small_runner, _ = small.runner(shape, device, length)
    seconds, _ = timed(small_runner.step, device)
    expected = seconds * PROBED**2 * found.examples
    if expected <= PATIENCE:
        return ""
    return (
        f"a step may take {expected / 60:.0f} minutes (its backward is quadratic in the length);"
        f" --only {found.name} waits for it"
    )


def fitted(variant: Variant, shape: StepShape, room: float) -> tuple[int, str]:
    """How many examples fit into `room` bytes, and what is said where none do."""
    examples = len(shape.batch.labels)
    # Batch norm of one unpadded sequence and the mean over it leave nothing: all gradients would be zero.
    fewest = 2 if variant.config.norm == "batch" else 1
    while needed(variant, shape, examples) > room and examples // 2 >= fewest:
        examples //= 2
    if (need := needed(variant, shape, examples)) <= room:
        return examples, ""
    return examples, f"b {examples} takes about {need / 1e9:.1f} GB, and {room / 1e9:.1f} GB may be used"


def needed(variant: Variant, shape: StepShape, examples: int) -> int:
    """Bytes that a step of the peer takes, about."""
    config = variant.config
    assert isinstance(config, MambaConfig)
    positions = examples * shape.batch.inputs.shape[1]
    copies = KEPT * config.layers + AT_WORK
    return int(4 * copies * positions * inner_width(config) * config.state)


def farthest(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> float:
    """The largest distance of a gradient, as a share of that parameter's largest; infinite for no number."""
    worst = 0.0
    for name, value in ours.items():
        gradient = mixer_peer.theirs_of(name, value)
        largest = float(gradient.abs().max())
        distance = float((gradient - theirs[name].view_as(gradient)).abs().max()) / (largest or 1.0)
        worst = max(worst, distance if math.isfinite(distance) else math.inf)
    return worst


def verdict(agreement: Mapping[str, float]) -> str:
    """Why a peer is invalid; an empty string where it computes what our model does."""
    if not agreement["loss"] <= LOSS_TOLERANCE:
        return f"its loss is off by {agreement['loss']:.1e} (more than {LOSS_TOLERANCE:.0e})"
    if not agreement["gradients"] <= GRADIENT_TOLERANCE:
        return f"a gradient is off by {agreement['gradients']:.1e} (more than {GRADIENT_TOLERANCE:.0e})"
    return ""
