"""The peer of a training step: its variants, availability and agreement with our model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from msbench.analysis.benchmarks import mixer_peer, peers
from msbench.analysis.benchmarks.runner import Runner, runner
from msbench.analysis.benchmarks.shapes import StepShape, Variant
from msbench.analysis.benchmarks.timing import timed
from msbench.config import MambaConfig
from msbench.environment import measure_free_memory
from msbench.models.selective import compute_inner_width

PEERS = {"transformers": False, "transformers-mambapy": True}
"""Peers by scan: False for a loop over time, the default; True for mambapy's (option ``use_mambapy``)."""
LOSS_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
"""Relative to a parameter's largest gradient: float32 through 20 layers with batch norm."""
KEPT, AT_WORK = 4.2, 5.0
"""Measured numbers of (b, l, i, n) float32 arrays that each layer of the peer keeps, and that one uses."""
SHARE = 0.7
"""Share of the free memory that a step of the peer may take."""
PATIENCE = 120.0
"""Seconds that a step may take by the probe, unless the peer is requested by name."""
LONG = 256
"""Sequence length above which the peer is probed: the backward of its loop is quadratic in the length."""
PROBED = 16
"""The probe uses 1/PROBED of the length."""


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
        """Return True if it uses mambapy's scan."""
        return PEERS[self.name]

    def label(self) -> str:
        """Return names and versions of the packages."""
        parts = ["transformers", "mambapy"] if self.parallel else ["transformers"]
        return " + ".join(map(peers.label, parts))

    def runner(
        self, shape: StepShape, device: str, length: int | None = None
    ) -> tuple[Runner, dict[str, str]]:
        """Build our model with the peer's mixers; return it with our parameter names mapped to the peer's."""
        ours = runner(self.variant, shape, device, self.examples, length)
        names = mixer_peer.install(ours.model, parallel=self.parallel)
        ours.model.recompute_layers(on=False)
        return Runner(ours.model, ours.batch, shape), names

    def agreement(self, shape: StepShape, device: str) -> tuple[Runner, dict[str, float]]:
        """Build a fresh peer; return it with its loss and gradient errors on the same batch and weights."""
        loss, gradients = runner(self.variant, shape, device, self.examples).gradients()
        theirs, names = self.runner(shape, device)
        their_loss, their_gradients = theirs.gradients()
        renamed = {name: their_gradients[other] for name, other in names.items()}
        return theirs, {
            "loss": abs(their_loss - loss) / abs(loss),
            "gradients": farthest(gradients, renamed),
        }


def peers_of(shape: StepShape, device: str, only: tuple[str, ...]) -> list[Peer]:
    """Return the peers of the shape's first Mamba."""
    of, variant = next((name, one) for name, one in shape.variants.items() if one.model == "mamba")
    return [peer(name, of, variant, shape, device, asked=name in only) for name in PEERS]


def peer(name: str, of: str, variant: Variant, shape: StepShape, device: str, *, asked: bool) -> Peer:
    """Return one peer, with the batch that fits, or the reason for which it is skipped."""
    examples = len(shape.batch.labels)
    fault = peers.transformers_missing(device)
    if not fault and PEERS[name]:
        fault = peers.mambapy_missing(device)
    if fault:
        return Peer(name, of, variant, examples, skipped=fault)
    fitting, fault = fitted(variant, shape, SHARE * measure_free_memory(device))
    note = "" if fitting == examples else f"b {examples} would take too much memory; ratios are per token"
    found = Peer(name, of, variant, fitting, note, fault)
    if fault or asked or found.parallel or shape.batch.inputs.shape[1] <= LONG:
        return found
    return Peer(name, of, variant, fitting, note, impatience(found, shape, device))


def impatience(found: Peer, shape: StepShape, device: str) -> str:
    """Return why a peer's step is too slow to time; an empty string if it is not.

    A step on one example of a short length is timed to decide this; it appears in no result.
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
    """Return the number of examples that fit into `room` bytes, and a message if none do."""
    examples = len(shape.batch.labels)
    # Batch norm of one unpadded sequence followed by its mean is constant: all gradients would be zero.
    fewest = 2 if variant.config.norm == "batch" else 1
    while needed(variant, shape, examples) > room and examples // 2 >= fewest:
        examples //= 2
    if (need := needed(variant, shape, examples)) <= room:
        return examples, ""
    return examples, f"b {examples} takes about {need / 1e9:.1f} GB, and {room / 1e9:.1f} GB may be used"


def needed(variant: Variant, shape: StepShape, examples: int) -> int:
    """Return the approximate bytes that a step of the peer takes."""
    config = variant.config
    assert isinstance(config, MambaConfig)
    positions = examples * shape.batch.inputs.shape[1]
    copies = KEPT * config.layers + AT_WORK
    return int(4 * copies * positions * compute_inner_width(config) * config.state)


def farthest(ours: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> float:
    """Return the largest error of a gradient relative to that parameter's largest; infinite if not finite."""
    worst = 0.0
    for name, value in ours.items():
        gradient = mixer_peer.theirs_of(name, value)
        largest = float(gradient.abs().max())
        distance = float((gradient - theirs[name].view_as(gradient)).abs().max()) / (largest or 1.0)
        worst = max(worst, distance if math.isfinite(distance) else math.inf)
    return worst


def verdict(agreement: Mapping[str, float]) -> str:
    """Return why a peer is invalid; an empty string if it agrees with our model."""
    if not agreement["loss"] <= LOSS_TOLERANCE:
        return f"its loss is off by {agreement['loss']:.1e} (more than {LOSS_TOLERANCE:.0e})"
    if not agreement["gradients"] <= GRADIENT_TOLERANCE:
        return f"a gradient is off by {agreement['gradients']:.1e} (more than {GRADIENT_TOLERANCE:.0e})"
    return ""
