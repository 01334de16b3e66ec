"""The parts that all models share: encoder, blocks with residuals, final norm, pooling, head.

===============  ==========================================================================
code             meaning
===============  ==========================================================================
``b, l, d``      examples, positions, width of the model
``inputs``       token ids (b, l) or numbers (b, l, channels), padded on the right; of pairs
                 token ids (b, 2, l), which the layers see as 2 b sequences
``lengths``      true lengths (b,), of pairs (b, 2)
``layer``        maps (b, l, d) and lengths to (b, l, d): a block without norm and residual
===============  ==========================================================================

Padding never changes a prediction: a layer's input is zero after the end of a sequence, and norms and pooling
use real positions only. ``padding: paper`` lets padding through the layers and the batch statistics.

`Classifier.start` and `step` read sequences segment by segment, if all layers are recurrent.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from msbench.config import ClassifierConfig
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError, DataError
from msbench.models.layers import (
    Bidirectional,
    ChannelDropout,
    DropPath,
    MaskedBatchNorm,
    Padding,
    build_checkpoint_options,
    build_gelu,
    build_norm,
    draw_truncated_normal,
    normalise,
    pool,
    start_layer,
    step_layer,
)
from msbench.ops.residual import add_scaled

POSITIONS_STD = 0.02

Layer = nn.Module
"""``forward(x (b, l, d), lengths (b,)) -> (b, l, d)``."""


def build_directions(layer: Callable[[], Layer], *, bidirectional: bool) -> Layer:
    """Return one causal layer, or two of them over both directions."""
    return Bidirectional(layer(), layer()) if bidirectional else layer()


class Block(nn.Module):
    """A wrapper of a layer, whose forward can be recomputed in the backward (`recompute`)."""

    layer: Layer
    recompute = False

    def _run_layer(self, x: Tensor, lengths: Tensor) -> Tensor:
        y: Tensor
        if self.recompute and self.training and torch.is_grad_enabled():
            y = checkpoint(
                self.layer, x, lengths, use_reentrant=False, **build_checkpoint_options(self.layer)
            )
        else:
            y = self.layer(x, lengths)
        return y

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Run the next positions x (b, l, d), without padding; return the output and the new state."""
        return step_layer(self.layer, x, state)


class Residual(Block):
    """x + dropout(layer(norm(x))), or norm(x + dropout(layer(x))) without `prenorm`.

    In training the second term of an example is left out with the chance `drop_path`.
    """

    def __init__(self, config: ClassifierConfig, layer: Layer, drop_path: float) -> None:
        super().__init__()
        self.prenorm = config.prenorm
        self.norm = build_norm(config)
        self.layer = layer
        self.dropout = ChannelDropout(config.dropout)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, padding: Padding) -> Tensor:
        """Map (b, l, d) to (b, l, d)."""
        # Zeroed after the norm: its bias makes padding nonzero again.
        inner = normalise(self.norm, x, padding.mask, zero=True) if self.prenorm else x * padding.mask
        y = self._run_layer(inner, padding.lengths)
        x = add_scaled(x, y, [*self.dropout.draw(y), *self.drop_path.draw(y)])
        return x if self.prenorm else normalise(self.norm, x, padding.mask)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """See `Block`."""
        mask = Padding.none_of(x).mask
        y, state = step_layer(self.layer, normalise(self.norm, x, mask) if self.prenorm else x, state)
        x = x + y
        return x if self.prenorm else normalise(self.norm, x, mask), state


class DropoutBlock(Block):
    """dropout(layer(x)), for a layer with its own norms and shortcut, or without any."""

    def __init__(self, config: ClassifierConfig, layer: Layer) -> None:
        super().__init__()
        self.layer = layer
        self.dropout = ChannelDropout(config.dropout)

    def forward(self, x: Tensor, padding: Padding) -> Tensor:
        """Map (b, l, d) to (b, l, d)."""
        y: Tensor = self.dropout(self._run_layer(x * padding.mask, padding.lengths))
        return y


class Encoder(nn.Module):
    """The encoder of a task's sequences, with learned positions added if configured.

    Tokens (and pairs of token sequences) go through an embedding or (``scalar``), with the id as one real
    number, through a linear map. Signals and patches go through a linear map of their channels, in float32 or
    better regardless of autocast: a sample has more than the 8 bits of a bfloat16. With learned positions
    `longest` bounds the length.
    """

    def __init__(self, config: ClassifierConfig, info: TaskInfo) -> None:
        super().__init__()
        self.embedding: nn.Embedding | None = None
        self.scalar: nn.Linear | None = None
        self.linear: nn.Linear | None = None
        if info.real_valued:
            self.linear = nn.Linear(info.channels, config.d_model)
        elif config.encoder == "embedding":
            self.embedding = nn.Embedding(info.vocabulary, config.d_model)
            self._draw_embedding(self.embedding.weight, config.embedding_std)
        else:
            self.scalar = nn.Linear(1, config.d_model)
        # Drawn even if unused, so that all later parameters start the same with and without positions.
        positions = torch.empty(info.longest, config.d_model).normal_(std=POSITIONS_STD)
        self.positions = nn.Parameter(positions) if config.positions == "learned" else None

    def forward(self, inputs: Tensor, start: int = 0) -> Tensor:
        """Map inputs (b, l) int64, or (b, l, channels), from position `start` on, to (b, l, d).

        Raises DataError beyond the learned positions.
        """
        x = self._encode(inputs)
        return x if self.positions is None else x + self._select_positions(start, start + inputs.shape[1])

    @torch.no_grad()
    def _draw_embedding(self, vectors: Tensor, std: float | None) -> None:
        if std is None:
            vectors.copy_(draw_truncated_normal(1 / len(vectors), *vectors.shape))
        else:
            nn.init.normal_(vectors, std=std)

    def _encode(self, inputs: Tensor) -> Tensor:
        if self.linear is not None:
            with torch.autocast(inputs.device.type, enabled=False):
                numbers: Tensor = self.linear(inputs.to(self.linear.weight.dtype))
            return numbers
        if self.embedding is not None:
            vectors: Tensor = self.embedding(inputs)
            return vectors
        assert self.scalar is not None
        ids: Tensor = self.scalar(inputs.unsqueeze(2).to(self.scalar.weight.dtype))
        return ids

    def _select_positions(self, start: int, end: int) -> Tensor:
        assert self.positions is not None
        if end > len(self.positions):
            raise DataError(
                f"a sequence has {end} tokens, but the learned positions end at {len(self.positions)}, the"
                " length of the task's longest sequence; set the task up again, or use positions: none"
            )
        return self.positions[start:end]


class LinearHead(nn.Linear):
    """One linear map: pooled (b, d) -> logits (b, classes)."""

    def forward(self, pooled: Tensor) -> Tensor:
        """Map (b, d) to (b, classes)."""
        return super().forward(pooled.to(self.weight.dtype))


class PairHead(nn.Module):
    """A comparison of two pooled sequences p and q: [p, q, p - q, p q], then a two-layer MLP with GELU.

    The head of S4 and S5 for Long Range Arena's retrieval. It is not symmetric: on a symmetric task it has to
    learn that the order does not matter.
    """

    def __init__(self, config: ClassifierConfig, classes: int) -> None:
        super().__init__()
        self.gelu = build_gelu(config)
        self.inner = nn.Linear(4 * config.d_model, config.d_model)
        self.outer = nn.Linear(config.d_model, classes)

    def forward(self, pooled: Tensor) -> Tensor:
        """Map pooled (2 b, d), with the two rows of a pair next to each other, to (b, classes)."""
        p, q = pooled.to(self.inner.weight.dtype).view(-1, 2, pooled.shape[1]).unbind(1)
        features = torch.cat((p, q, p - q, p * q), dim=1)
        logits: Tensor = self.outer(self.gelu(self.inner(features)))
        return logits


def build_head(config: ClassifierConfig, info: TaskInfo) -> LinearHead | PairHead:
    """Return the head of a task, with one logit per label (for multi-label tasks too)."""
    if info.sequences == 2:
        return PairHead(config, info.classes)
    return LinearHead(config.d_model, info.classes)


class ClassifierState(NamedTuple):
    """The state of a classifier that reads step by step: positions so far, block states, pooled (b, d).

    `pooled` is the sum of all outputs so far, or the last one.
    """

    positions: int
    blocks: tuple[Any, ...]
    pooled: Tensor


class Classifier(nn.Module):
    """A model from sequences to logits. `layers` holds, for each of the model's layers, its blocks in order.

    Every block gets a norm and a residual; without `residuals` the layers have their own. The two
    sequences of a pair go through the same layers as two examples: padding and batch statistics are those of
    2 b sequences.

    `auxiliary` computes a further term of the training loss, with its weight: it maps the outputs of all
    layers (b, l, d), the sequences that they are of, and their lengths to a mean over examples. It is not
    called in evaluation.
    """

    def __init__(
        self,
        config: ClassifierConfig,
        info: TaskInfo,
        layers: Sequence[Sequence[Layer]],
        *,
        residuals: bool = True,
        auxiliary: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.sequences = info.sequences
        self.encoder = Encoder(config, info)
        self.blocks = nn.ModuleList(
            Residual(config, block, config.drop_path * index / max(1, len(layers) - 1))
            if residuals
            else DropoutBlock(config, block)
            for index, blocks in enumerate(layers)
            for block in blocks
        )
        ends_in_norm = config.prenorm if config.final_norm is None else config.final_norm
        self.final_norm = build_norm(config) if ends_in_norm else None
        self.head: Any = build_head(config, info)
        self.auxiliary = auxiliary
        self._auxiliary_loss: Tensor | None = None

    @property
    def has_batch_norm(self) -> bool:
        """True if, in training, an example's logits depend on the other examples of its batch."""
        return any(isinstance(part, MaskedBatchNorm) for part in self.modules())

    def recompute_layers(self, count: float) -> None:
        """Keep only the inputs of the first layers, so many of all blocks, and recompute their forward.

        The numbers are the same.
        """
        for index, block in enumerate(self._blocks()):
            block.recompute = index < count

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map inputs and lengths (int64), as in `msbench.datasets.dataset.Batch`, to logits (b, classes)."""
        sequences = self._separate_pairs(inputs)
        x: Tensor = self.encoder(sequences)
        real = Padding.from_lengths(lengths.flatten(), x.shape[1], x.dtype)
        padding = real if self.config.padding == "masked" else Padding.none_of(x)
        for block in self.blocks:
            x = block(x, padding)
        if self.final_norm is not None:
            x = normalise(self.final_norm, x, padding.mask)
        if self.auxiliary is not None and self.training:
            self._auxiliary_loss = self.auxiliary(x, sequences, real.lengths)
        return self._compute_logits(pool(x, real, self.config.pooling))

    def take_auxiliary_loss(self) -> Tensor | None:
        """Return, once, the auxiliary loss of the last forward in training; None if there is none."""
        taken, self._auxiliary_loss = self._auxiliary_loss, None
        return taken

    def start(self, b: int) -> ClassifierState:
        """Return the state before the first position of b examples, for `step`.

        Raises ConfigError if the model cannot run step by step, RuntimeError in training mode.
        """
        self._check_evaluation()
        if getattr(self.config, "bidirectional", False):
            raise ConfigError(
                "a bidirectional model reads a sequence from its end too: it has no recurrent inference;"
                " train one with bidirectional: false"
            )
        x = next(self.parameters()).new_zeros(b * self.sequences, self.config.d_model)
        return ClassifierState(0, tuple(start_layer(block.layer, x) for block in self._blocks()), x)

    def step(self, state: ClassifierState, inputs: Tensor) -> tuple[Tensor, ClassifierState]:
        """Read the next positions; return the logits (b, classes) of the sequences so far, and the new state.

        `inputs` are one or more positions without padding: (b, l), (b, l, channels) or, for pairs, (b, 2, l).
        The logits equal those of `forward` on all positions at once. `state` is left unchanged. Raises
        RuntimeError in training mode, ValueError for a segment with another number of examples or without
        positions, DataError beyond learned positions.
        """
        self._check_evaluation()
        inputs = self._separate_pairs(inputs)
        b, length = inputs.shape[:2]
        if b != len(state.pooled) or length < 1:
            raise ValueError(
                f"a segment has {b} sequences and {length} positions; it must have {len(state.pooled)}"
                " sequences, as before, and at least one position"
            )
        x: Tensor = self.encoder(inputs, state.positions)
        states = []
        for block, before in zip(self._blocks(), state.blocks, strict=True):
            x, after = block.step(x, before)
            states.append(after)
        if self.final_norm is not None:
            x = normalise(self.final_norm, x, Padding.none_of(x).mask)
        positions, last = state.positions + length, self.config.pooling == "last"
        kept = x[:, -1] if last else state.pooled + x.sum(1)
        logits = self._compute_logits(kept if last else kept / positions)
        return logits, ClassifierState(positions, tuple(states), kept)

    def _check_evaluation(self) -> None:
        if self.training:
            raise RuntimeError("recurrent inference is for evaluation, with frozen norms: call eval() first")

    def _blocks(self) -> Iterator[Block]:
        for block in self.blocks:
            assert isinstance(block, Block)
            yield block

    def _separate_pairs(self, inputs: Tensor) -> Tensor:
        """Return the sequences of a batch; for pairs, both of the first example, both of the second, ..."""
        return inputs.flatten(0, 1) if self.sequences == 2 else inputs

    def _compute_logits(self, pooled: Tensor) -> Tensor:
        with torch.autocast(pooled.device.type, enabled=False):
            logits: Tensor = self.head(pooled)
        return logits


def build_classifier(
    config: ClassifierConfig,
    info: TaskInfo,
    *blocks: Callable[[], Layer],
    bidirectional: bool = False,
) -> Classifier:
    """Build a classifier of equal layers, each with a block from every function of `blocks`, in that order.

    With `bidirectional` the first block of a layer is doubled, see `build_directions`.
    """
    first, *others = blocks

    def build_layer() -> list[Layer]:
        return [build_directions(first, bidirectional=bidirectional), *(block() for block in others)]

    return Classifier(config, info, [build_layer() for _ in range(config.layers)])
