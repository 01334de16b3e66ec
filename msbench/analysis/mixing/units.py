"""The differentiated functions: each layer of a classifier as a function of its own input.

A layer's input is the residual stream: the encoder's output for the first one, not token ids. A block that
treats each position alone (a feed-forward network) mixes nothing and does not count as a layer.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from msbench.models.blocks import Mlp
from msbench.models.classifier import Block, Classifier, Residual
from msbench.models.griffin import GatedMlp
from msbench.models.inceptiontime import InceptionGroup
from msbench.models.layers import Bidirectional, Padding, normalise

POSITIONWISE = (Mlp, GatedMlp)

Apply = Callable[[Tensor, Padding], Tensor]
"""From an input (b, l, d) and its padding to an output (b, l, d); examples are independent."""


class MixingUnit(NamedTuple):
    """A layer (`name` counts from 1) or the network; `kind` is the class that mixes positions.

    `at` is the block whose input is the unit's.
    """

    name: int | Literal["network"]
    kind: str
    at: Block
    apply: Apply


def units(model: Classifier, scope: Literal["layers", "network"], *, residual: bool) -> list[MixingUnit]:
    """Return the layers of a model in order, with or without residuals; or one unit, the whole network."""
    blocks = [block for block in model.blocks if isinstance(block, Block)]
    if scope == "network":
        return [MixingUnit("network", type(model).__name__, blocks[0], partial(_network, model, blocks))]
    mixing = [block for block in blocks if not isinstance(block.layer, POSITIONWISE)]
    # forward, not the call: the hooks that catch a block's input must not see these passes.
    return [
        MixingUnit(number, _kind(block), block, block.forward if residual else partial(mixer, block))
        for number, block in enumerate(mixing, start=1)
    ]


def mixer(block: Block, x: Tensor, padding: Padding) -> Tensor:
    """Return a block's output without residual: the layer's part of x + layer(norm(x)), norm(x + layer(x)).

    The norm before a layer belongs to it, so that with the residual the Jacobian is this one's plus I. For
    InceptionTime's groups, which have their own norms, the shortcut is left out.
    """
    if isinstance(block, Residual) and block.prenorm:
        inner = normalise(block.norm, x, padding.mask, zero=True)
    else:
        inner = x * padding.mask
    if isinstance(block.layer, InceptionGroup):
        mask = Padding.of(padding.lengths, x.shape[1], x.dtype).mask
        for module in block.layer.inception:
            inner = module(inner, mask)
        return inner
    y: Tensor = block.layer(inner, padding.lengths)
    return y


def _network(model: Classifier, blocks: Sequence[Block], x: Tensor, padding: Padding) -> Tensor:
    """Apply all blocks and the last norm, up to the input of the pooling."""
    for block in blocks:
        x = block.forward(x, padding)
    return x if model.final_norm is None else normalise(model.final_norm, x, padding.mask)


def _kind(block: Block) -> str:
    layer = block.layer.ahead if isinstance(block.layer, Bidirectional) else block.layer
    return type(layer).__name__


@contextmanager
def caught(
    all_units: Sequence[MixingUnit], visit: Callable[[MixingUnit, Tensor, Padding], None]
) -> Iterator[None]:
    """Call `visit` with each unit and its detached input just before it is used, while a model runs.

    Layers are visited one after the other, so that only one input is kept at a time.
    """
    handles: list[RemovableHandle] = []

    def hook(unit: MixingUnit, _: torch.nn.Module, arguments: tuple[Tensor, Padding]) -> None:
        visit(unit, arguments[0].detach(), arguments[1])

    try:
        handles += [unit.at.register_forward_pre_hook(partial(hook, unit)) for unit in all_units]
        yield
    finally:
        for handle in handles:
            handle.remove()
