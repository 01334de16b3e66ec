"""The models whose training steps are measured: shapes with their settings and batch, ours and the peers'.

Peers are the Mambas of `transformers` and of mamba-ssm in our classifier, with the same weights. Embedding,
norms, residuals, dropout, pooling and head are ours in both, so only the block differs.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from msbench import datasets, models
from msbench.config import ClassifierConfig, RunSpec, TrainConfig
from msbench.config.selective import MambaConfig
from msbench.datasets.dataset import Batch, TaskInfo
from msbench.errors import UnknownName
from msbench.models.classifier import Classifier
from msbench.models.mamba import MambaBlock
from msbench.models.selective import compute_dt_rank, compute_inner_width
from msbench.runs.memory import limit_step_memory
from msbench.runs.suite import load_suite, resolve_specs
from msbench.training.batches import draw_batches, send_batch
from msbench.training.optimizer import build_optimizer
from msbench.training.step import FiniteCheck, compute_loss
from msbench.training.step_memory import measure_step_memory

PEER_NAMES = {
    "in_proj.weight": "in_proj.weight",
    "conv.weight": "conv1d.weight",
    "conv.bias": "conv1d.bias",
    "x_proj.weight": "x_proj.weight",
    "dt.weight": "dt_proj.weight",
    "dt.bias": "dt_proj.bias",
    "A_log": "A_log",
    "D": "D",
    "out_proj.weight": "out_proj.weight",
}
"""Our parameter names mapped to the peer's; `convert_to_peer` converts the values."""


@dataclass(frozen=True)
class Variant:
    """A model of a shape: its registered name and its config."""

    model: str
    config: ClassifierConfig


@dataclass(frozen=True)
class StepShape:
    """Models that take the same step: `variants` by name, the training settings, the batch.

    `pairs`: variants whose times are compared, the slower first, with a description of the pair.
    """

    name: str
    title: str
    variants: dict[str, Variant]
    train: TrainConfig
    info: TaskInfo
    batch: Batch
    pairs: tuple[tuple[str, str, str], ...]

    def tensors(
        self, device: str, examples: int | None = None, length: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs (b, l) or (b, l, channels), lengths (b,) and labels (b,), cut to these sizes."""
        fed = send_batch(self.batch, torch.device(device))
        inputs, lengths, labels = (part[:examples] for part in (fed.inputs, fed.lengths, fed.labels))
        inputs = inputs[:, :length]
        return inputs, lengths.clamp(max=inputs.shape[1]), labels


def make_suite_shape(suite: str, *overrides: str, states: Sequence[int] = ()) -> StepShape:
    """Return the first task of a suite with a real batch of its training data, set up if absent.

    `states`: further numbers of states per channel, for both models, in addition to the suite's own.
    """
    specs = _plan_specs(suite, overrides)
    spec = next(iter(specs.values()))
    dataset = datasets.setup(spec.data, datasets.data_root())
    split = dataset.splits["train"].augmented(0, 0)
    size = spec.train.batch_size
    batches = draw_batches(split.lengths, size, spec.seed, 0, bucketing=spec.train.bucketing)
    # The longest batch of the first epoch: every other step takes less.
    full = [batch for batch in batches if len(batch) == min(size, len(split))]
    chosen = max(full, key=lambda batch: int(split.lengths[batch].max()))
    batch = split.batch(chosen, spec.train.pad_to)
    title = f"suite {suite}, a real batch"
    return _make_shape(suite, title, specs, dataset.info, batch, states)


def make_deep_shape(b: int = 2, length: int = 1024, *overrides: str) -> StepShape:
    """Return the models of the suite ``listops`` with its settings, on a few random tokens."""
    return make_random_shape("deep", "listops", "listops", *overrides, b=b, length=length)


def make_random_shape(
    name: str, suite: str, task: str, *overrides: str, b: int | None = None, length: int | None = None
) -> StepShape:
    """Return the models of a suite's task with its settings, on random examples: needs no data.

    `b` and `length` are by default the suite's batch and the task's longest example.
    """
    specs = _plan_specs(suite, overrides, (task,))
    spec = specs["mamba"]
    info = datasets.outline(spec.data)
    b, length = b or spec.train.batch_size, length or info.longest
    source = np.random.default_rng(0)
    inputs: NDArray[Any] = (
        source.standard_normal((b, length, info.channels), dtype=np.float32)
        if info.real_valued
        else source.integers(1, info.vocabulary, (b, length))
    )
    labels = source.integers(0, info.classes, b)
    batch = Batch(inputs, np.full(b, length, dtype=np.int64), labels)
    title = f"suite {suite}, random numbers" if info.real_valued else f"suite {suite}, random tokens"
    return _make_shape(name, title, specs, info, batch, ())


def _plan_specs(suite: str, overrides: Sequence[str], tasks: Sequence[str] = ()) -> dict[str, RunSpec]:
    """Return the runs of Mamba and of MS-SSM on the first of the suite's tasks, in this order."""
    specs = resolve_specs(load_suite(suite), ("mamba", "msssm-s6"), tuple(tasks), (), tuple(overrides))
    return {name: next(spec for spec in specs if spec.model_name == name) for name in ("mamba", "msssm-s6")}


def _make_shape(
    name: str, title: str, specs: dict[str, RunSpec], info: TaskInfo, batch: Batch, states: Sequence[int]
) -> StepShape:
    """Return a shape with the suite's own variants, then both models with each of these numbers of states.

    Pairs are MS-SSM over Mamba: as in the suite, and at each equal number of states.
    """
    variants: dict[str, Variant] = {}
    pairs: list[tuple[str, str, str]] = []
    for count in (None, *states):
        update = {} if count is None else {"state": count}
        configs = {model: spec.model.model_copy(update=update) for model, spec in specs.items()}
        found = {model: config.model_dump()["state"] for model, config in configs.items()}
        ours, theirs = (f"{model}/{found[model]}" for model in ("msssm-s6", "mamba"))
        equal = found["msssm-s6"] == found["mamba"]
        pairs.append((ours, theirs, "equal states" if equal else "as in the suite"))
        variants |= {f"{model}/{found[model]}": Variant(model, config) for model, config in configs.items()}
    b, length = batch.inputs.shape[:2]
    config, train = specs["mamba"].model, specs["mamba"].train
    size = f"{config.layers} layers of {config.d_model}, b {b}, l {length}, norm {config.norm}"
    return StepShape(name, f"{title}: {size}", variants, train, info, batch, tuple(dict.fromkeys(pairs)))


SHAPES: dict[str, Callable[[], StepShape]] = {
    "quick": partial(make_suite_shape, "quick", states=(20,)),
    "deep": make_deep_shape,
    "listops": partial(make_suite_shape, "listops"),
    "text": partial(make_random_shape, "text", "lra", "text"),
    "image": partial(make_random_shape, "image", "lra", "image"),
    "pathx": partial(make_random_shape, "pathx", "lra", "pathx"),
}
DEFAULT_SHAPES = ("quick", "deep")
QUICK_SHAPES = ("quick",)


def choose_shapes(names: Sequence[str], *, quick: bool) -> list[str]:
    """Return the names of the shapes to measure; UnknownName for an unknown one."""
    for name in names:
        if name not in SHAPES:
            raise UnknownName("shape", name, SHAPES, "--shape")
    return list(names or (QUICK_SHAPES if quick else DEFAULT_SHAPES))


@dataclass
class StepRunner:
    """A model with its optimiser, and the batch (inputs, lengths, labels) that every step takes."""

    model: Classifier
    batch: tuple[Tensor, Tensor, Tensor]
    shape: StepShape
    optimizer: torch.optim.Optimizer = field(init=False)
    finite: FiniteCheck = field(init=False)
    steps: int = 0

    def __post_init__(self) -> None:
        self.model.train()
        self.optimizer = build_optimizer(self.model, self.shape.train)
        self.finite = FiniteCheck(self.model, self.optimizer, late=self.batch[0].is_cuda)

    def loss(self) -> Tensor:
        """Compute the loss of the batch, with the model's auxiliary term."""
        inputs, lengths, labels = self.batch
        loss = compute_loss(self.model(inputs, lengths).float(), labels, self.shape.train.loss)
        auxiliary = self.model.take_auxiliary_loss()
        return loss if auxiliary is None else loss + auxiliary

    def step(self) -> None:
        """Take one step as the training loop does: forward, loss, backward, check, clipping, optimiser."""
        loss = self.loss()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.steps += 1
        self.finite.finish()
        self.finite.start(loss.detach(), self.steps)
        if self.shape.train.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.shape.train.clip)
        self.optimizer.step()

    def gradients(self) -> tuple[float, dict[str, Tensor]]:
        """Compute loss and gradients by parameter, without a step; dropout uses a fixed seed."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.loss()
            loss.backward()  # type: ignore[no-untyped-call]
        found = {name: x.grad for name, x in self.model.named_parameters() if x.grad is not None}
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach()), found


def make_runner(
    variant: Variant, shape: StepShape, device: str, examples: int | None = None, length: int | None = None
) -> StepRunner:
    """Build a model of ours, always with the same weights, on the first `examples` cut to `length`.

    As in training, as many layers are recomputed as the free memory requires.
    """
    model = models.build(variant.model, variant.config, shape.info, seed=0).to(device)
    batch = shape.tensors(device, examples, length)
    b, length = batch[0].shape[:2]
    memory = measure_step_memory(
        variant.model, variant.config, shape.info, examples=b, length=length, device=device
    )
    model.recompute_layers(memory.count_recomputed(limit_step_memory(device), b * length))
    return StepRunner(model, batch, shape)


def make_transformers_mixer(config: MambaConfig, *, parallel: bool) -> nn.Module:
    """Return the mixer of `transformers`; `parallel`: with mambapy's scan instead of the loop over time."""
    from transformers import MambaConfig as TheirConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    theirs = TheirConfig(
        hidden_size=config.d_model,
        state_size=config.state,
        conv_kernel=config.kernel,
        time_step_rank=compute_dt_rank(config),
        use_conv_bias=config.conv_bias,
        use_bias=False,
        hidden_act="silu",
        num_hidden_layers=1,
        use_mambapy=parallel,
    )
    # Not as an argument: the config would overwrite it with `expand` times the width, whole numbers only.
    theirs.intermediate_size = compute_inner_width(config)
    mixer: nn.Module = MambaMixer(theirs, 0)
    return mixer


def make_mamba_ssm_mixer(config: MambaConfig) -> nn.Module:
    """Return the mixer of mamba-ssm: one fused operation in CUDA."""
    mixer: nn.Module = importlib.import_module("mamba_ssm.modules.mamba_simple").Mamba(
        config.d_model,
        d_state=config.state,
        d_conv=config.kernel,
        expand=compute_inner_width(config) / config.d_model,
        dt_rank=compute_dt_rank(config),
        conv_bias=config.conv_bias,
        bias=False,
    )
    return mixer


MIXERS: dict[str, Callable[[MambaConfig], nn.Module]] = {
    "transformers": partial(make_transformers_mixer, parallel=False),
    "transformers-mambapy": partial(make_transformers_mixer, parallel=True),
    "mamba-ssm": make_mamba_ssm_mixer,
}
"""The mixers of the peers, by the name of the peer."""


class MixerPeer(nn.Module):
    """A peer's mixer as a layer of our classifier."""

    def __init__(self, mixer: nn.Module) -> None:
        super().__init__()
        self.mixer = mixer

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """Map (b, l, d) to (b, l, d)."""
        y: Tensor = self.mixer(x)
        return y


def install_peer(model: Classifier, peer: str) -> dict[str, str]:
    """Replace our blocks by a peer's mixers with the same weights; return our parameter names and theirs."""
    config = model.config
    assert isinstance(config, MambaConfig)
    assert not config.bidirectional, "the peer has one direction"
    assert config.skip, "the peer always has a skip"
    names: dict[str, str] = {name: name for name, _ in model.named_parameters() if ".layer." not in name}
    for index, block in enumerate(model.blocks):
        ours: Any = block.layer
        assert isinstance(ours, MambaBlock)
        theirs = MixerPeer(MIXERS[peer](config)).to(ours.A_log.device)
        copy_weights(ours, theirs.mixer)
        block.layer = theirs
        prefix = f"blocks.{index}.layer."
        names |= {
            prefix + name: f"{prefix}mixer.{other}"
            for name, other in PEER_NAMES.items()
            if name != "conv.bias" or config.conv_bias
        }
    return names


def convert_to_peer(name: str, value: Tensor) -> Tensor:
    """Reorder our parameter, or its gradient, as theirs: our first tap is the present, theirs the last.

    Shapes differ only by dimensions of size 1.
    """
    return value.flip(1) if name.endswith("conv.weight") else value


@torch.no_grad()
def copy_weights(ours: nn.Module, theirs: nn.Module) -> None:
    """Copy all parameters of a block into a mixer; RuntimeError if one of theirs is left over."""
    targets = dict(theirs.named_parameters())
    for name, value in ours.named_parameters():
        target = targets.pop(PEER_NAMES[name])
        target.copy_(convert_to_peer(name, value).view_as(target))
    if targets:
        raise RuntimeError(f"parameters of the peer without a counterpart: {', '.join(targets)}")
