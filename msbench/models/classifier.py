"""What every model shares: encoder, blocks with residuals, final norm, pooling, head.

===============  ==========================================================================
code             meaning
===============  ==========================================================================
``b, l, d``      examples, positions, width of the model
``inputs``       token ids (b, l), padded on the right
``lengths``      true lengths (b,)
``layer``        maps (b, l, d) and lengths to (b, l, d): a block without norm and residual
===============  ==========================================================================

Padding never changes a prediction: what a layer reads is zero behind the end, norms and pooling count real
positions only. ``padding: paper`` lets padding through the layers and the batch statistics.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from msbench.data.dataset import TaskInfo
from msbench.errors import DataError
from msbench.models.layers import (
    Bidirectional,
    ChannelDropout,
    Padding,
    build_norm,
    normalise,
    once,
    pool,
)
from msbench.specs import ClassifierConfig

EMBEDDING_STD = 0.02

Model = TypeVar("Model", bound=nn.Module)


def seeded(build: Callable[[], Model], seed: int) -> Model:
    """What `build` makes on the CPU from this seed; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return build()


Layer = nn.Module
"""``forward(x (b, l, d), lengths (b,)) -> (b, l, d)``."""


def directions(layer: Callable[[], Layer], *, bidirectional: bool) -> Layer:
    """One causal layer, or two of them over both directions."""
    return Bidirectional(layer(), layer()) if bidirectional else layer()


class TokenEncoder(nn.Module):
    """Token ids to vectors: an embedding, or (``scalar``) the id as one real number; then positions.

    `longest` bounds the length where positions are learned.
    """

    def __init__(self, config: ClassifierConfig, info: TaskInfo) -> None:
        super().__init__()
        self.embedding: nn.Embedding | None = None
        self.scalar: nn.Linear | None = None
        if config.encoder == "embedding":
            self.embedding = nn.Embedding(info.vocabulary, config.d_model)
            nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
        else:
            self.scalar = nn.Linear(1, config.d_model)
        positions = torch.empty(info.longest, config.d_model).normal_(std=EMBEDDING_STD)
        self.positions = nn.Parameter(positions) if config.positions == "learned" else None

    def forward(self, inputs: Tensor) -> Tensor:
        """inputs (b, l) int64 -> (b, l, d); DataError where learned positions do not reach."""
        x: Tensor
        if self.embedding is not None:
            x = self.embedding(inputs)
        else:
            assert self.scalar is not None
            x = self.scalar(inputs.unsqueeze(2).to(self.scalar.weight.dtype))
        return x if self.positions is None else x + self._positions(inputs.shape[1])

    def _positions(self, length: int) -> Tensor:
        assert self.positions is not None
        if length > len(self.positions):
            raise DataError(
                f"a batch of {length} tokens, but the task's longest sequence, and with it the learned"
                f" positions, is {len(self.positions)}; set the task up again, or use positions: none"
            )
        return self.positions[:length]


class Block(nn.Module):
    """What stands around a layer, which may be run again in the backward instead of being kept."""

    layer: Layer
    recompute = False

    def _layer(self, x: Tensor, lengths: Tensor) -> Tensor:
        y: Tensor
        if self.recompute and self.training and torch.is_grad_enabled():
            y = checkpoint(self.layer, x, lengths, use_reentrant=False, **once(self.layer))
        else:
            y = self.layer(x, lengths)
        return y


class Residual(Block):
    """x + dropout(layer(norm(x))), or norm(x + dropout(layer(x))) where not `prenorm`."""

    def __init__(self, config: ClassifierConfig, layer: Layer) -> None:
        super().__init__()
        self.prenorm = config.prenorm
        self.norm = build_norm(config.norm, config.d_model)
        self.layer = layer
        self.dropout = ChannelDropout(config.dropout)

    def forward(self, x: Tensor, padding: Padding) -> Tensor:
        """(b, l, d) -> (b, l, d)."""
        # Zeroed after the norm: its bias makes padding nonzero again.
        inner = normalise(self.norm, x, padding.mask, zero=True) if self.prenorm else x * padding.mask
        x = x + self.dropout(self._layer(inner, padding.lengths))
        return x if self.prenorm else normalise(self.norm, x, padding.mask)


class Whole(Block):
    """dropout(layer(x)): a layer with norms and a shortcut of its own."""

    def __init__(self, config: ClassifierConfig, layer: Layer) -> None:
        super().__init__()
        self.layer = layer
        self.dropout = ChannelDropout(config.dropout)

    def forward(self, x: Tensor, padding: Padding) -> Tensor:
        """(b, l, d) -> (b, l, d)."""
        y: Tensor = self.dropout(self._layer(x * padding.mask, padding.lengths))
        return y


class Classifier(nn.Module):
    """Token ids to logits. `layers` holds, for each of the model's layers, its blocks in order.

    Norm and residual stand around every block, but around none where blocks are `whole` without.
    """

    def __init__(
        self,
        config: ClassifierConfig,
        info: TaskInfo,
        layers: Sequence[Sequence[Layer]],
        *,
        whole: bool = False,
    ) -> None:
        super().__init__()
        kind = Whole if whole else Residual
        self.config = config
        self.encoder = TokenEncoder(config, info)
        self.blocks = nn.ModuleList(kind(config, block) for blocks in layers for block in blocks)
        self.final_norm = build_norm(config.norm, config.d_model) if config.prenorm else None
        self.head = nn.Linear(config.d_model, info.classes)

    def recompute_layers(self, *, on: bool) -> None:
        """Keep only the inputs of layers for the backward, and run their forward again: the same numbers."""
        for block in self.blocks:
            assert isinstance(block, Block)
            block.recompute = on

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """inputs (b, l) int64, lengths (b,) int64 -> logits (b, classes), float32."""
        x: Tensor = self.encoder(inputs)
        real = Padding.of(lengths, inputs.shape[1], x.dtype)
        padding = real if self.config.padding == "masked" else Padding.nowhere(x)
        for block in self.blocks:
            x = block(x, padding)
        if self.final_norm is not None:
            x = normalise(self.final_norm, x, padding.mask)
        pooled = pool(x, real, self.config.pooling)
        with torch.autocast(x.device.type, enabled=False):
            logits: Tensor = self.head(pooled.to(self.head.weight.dtype))
        return logits
