"""The layers of a classifier as functions of their inputs, and exact rows of their Jacobians.

A layer's input is the residual stream: the encoder's output for the first one, not token ids. A block that
treats each position alone (a feed-forward network) mixes nothing and does not count as a layer.

Rows take one vector-Jacobian product per channel, for all examples at once. The forward's graph is kept and
each backward starts at one channel of one position of every example: d backwards of one layer, whatever the
kernel. Batched gradients (``is_grads_batched``) would still run the custom kernels slice by slice, and d
copies of an example in one batch would take d times the memory.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from msbench.errors import ConfigError, RunError
from msbench.models.blocks import PositionwiseBlock
from msbench.models.classifier import Block, Classifier, Residual
from msbench.models.inceptiontime import InceptionGroup
from msbench.models.layers import Bidirectional, Padding, ShortcutLayer, normalise
from msbench.models.own import ModuleClassifier

PROBE_SEED = 0

Apply = Callable[[Tensor, Padding], Tensor]
"""From an input (b, l, d) and its padding to an output (b, l, d); examples are independent."""


class MixingUnit(NamedTuple):
    """A layer (`name` counts from 1) or the network; `kind` is the class that mixes positions.

    `at` is the block, or the user's own layer, whose input is the unit's.
    """

    name: int | Literal["network"]
    kind: str
    at: nn.Module
    apply: Apply


def list_units(model: Classifier, scope: Literal["layers", "network"], *, residual: bool) -> list[MixingUnit]:
    """Return the layers of a model in order, with or without residuals; or one unit, the whole network.

    Of a module of the user's own they are its `mixing_layers`. Raises ConfigError for a model without layers
    from sequences to sequences.
    """
    if isinstance(model, ModuleClassifier) and model.mixing_layers:
        if scope == "network" or residual:
            raise ConfigError(
                "of a module of your own, mixing is measured layer by layer and without residuals: leave"
                " --scope and --residual out, or build it with build_classifier (docs/extending.md)"
            )
        return [
            MixingUnit(number, type(layer).__name__, layer, partial(_apply_own, layer, model.config.d_model))
            for number, layer in enumerate(model.mixing_layers, start=1)
        ]
    blocks = [block for block in model.blocks if isinstance(block, Block)]
    if not blocks:
        raise ConfigError(
            f"{type(model).__name__} has no layer from positions to positions, so it has no mixing distance;"
            " a module of your own may list them as mixing_layers (docs/extending.md)"
        )
    if scope == "network":
        return [
            MixingUnit("network", type(model).__name__, blocks[0], partial(_apply_network, model, blocks))
        ]
    mixing = [block for block in blocks if not isinstance(block.layer, PositionwiseBlock)]
    # forward, not the call: the hooks that catch a block's input must not see these passes.
    return [
        MixingUnit(number, _kind(block), block, block.forward if residual else partial(_apply_mixer, block))
        for number, block in enumerate(mixing, start=1)
    ]


def _apply_mixer(block: Block, x: Tensor, padding: Padding) -> Tensor:
    """Return a block's output without residual: the layer's part of x + layer(norm(x)), norm(x + layer(x)).

    The norm before a layer belongs to it, so that with the residual the Jacobian is this one's plus I. A
    layer's own shortcut (InceptionTime's groups have one) is left out.
    """
    if isinstance(block, Residual) and block.prenorm:
        inner = normalise(block.norm, x, padding.mask, zero=True)
    else:
        inner = x * padding.mask
    if isinstance(block.layer, InceptionGroup):
        mask = Padding.from_lengths(padding.lengths, x.shape[1], x.dtype).mask
        for module in block.layer.inception:
            inner = module(inner, mask)
        return inner
    if isinstance(block.layer, ShortcutLayer):
        return block.layer.mix(inner, padding.lengths)
    y: Tensor = block.layer(inner, padding.lengths)
    return y


def _apply_network(model: Classifier, blocks: Sequence[Block], x: Tensor, padding: Padding) -> Tensor:
    """Apply all blocks and the last norm, up to the input of the pooling."""
    for block in blocks:
        x = block.forward(x, padding)
    return x if model.final_norm is None else normalise(model.final_norm, x, padding.mask)


def _apply_own(layer: nn.Module, width: int, x: Tensor, padding: Padding) -> Tensor:
    """Apply a user's layer, called as ``layer(x)`` or ``layer(x, lengths)``; of several outputs, the first.

    Raises ConfigError unless it maps (b, l, d) to (b, l, d), with d the model's width.
    """
    needed = [each.default is each.empty for each in inspect.signature(layer.forward).parameters.values()]
    # cuDNN has no backward of a recurrent layer in evaluation.
    with torch.backends.cudnn.flags(enabled=False):
        found = layer.forward(*(x, padding.lengths)[: 1 + (sum(needed) > 1)])
    y: Tensor = found[0] if isinstance(found, tuple) else found
    if x.shape[2:] != (width,) or y.shape != x.shape:
        raise ConfigError(
            f"{type(layer).__name__} of mixing_layers maps {tuple(x.shape)} to {tuple(y.shape)}; mixing is"
            f" measured of layers from (b, l, d) to (b, l, d), where d is model.d_model, {width}"
        )
    return y


def _find_padding(x: Tensor, more: Sequence[Any]) -> Padding:
    """Return the padding with which a layer is called: of a user's own, its lengths, if it takes them."""
    if more and isinstance(more[0], Padding):
        return more[0]
    return Padding.from_lengths(more[0], x.shape[1], x.dtype) if more else Padding.none_of(x)


def _kind(block: Block) -> str:
    layer = block.layer.ahead if isinstance(block.layer, Bidirectional) else block.layer
    return type(layer).__name__


@contextmanager
def visit_inputs(
    units: Sequence[MixingUnit], visit: Callable[[MixingUnit, Tensor, Padding], None]
) -> Iterator[None]:
    """Call `visit` with each unit and its detached input just before it is used, while a model runs.

    Layers are visited one after the other, so that only one input is kept at a time.
    """

    def hook(unit: MixingUnit, _: nn.Module, arguments: tuple[Any, ...]) -> None:
        visit(unit, arguments[0].detach(), _find_padding(arguments[0], arguments[1:]))

    with ExitStack() as undo:
        for unit in units:
            undo.callback(unit.at.register_forward_pre_hook(partial(hook, unit)).remove)
        yield


@contextmanager
def exact_mode(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode, without parameter gradients and without reduced precision.

    This overrides the caller's no_grad, inference_mode, autocast and TF32. On exit each module's mode and
    each parameter's flag is restored.
    """
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    with ExitStack() as undo:
        for module in model.modules():
            undo.callback(setattr, module, "training", module.training)
        for parameter in model.parameters():
            undo.callback(parameter.requires_grad_, parameter.requires_grad)
        for backend in backends:
            undo.callback(setattr, backend, "allow_tf32", backend.allow_tf32)
            backend.allow_tf32 = False
        model.eval().requires_grad_(False)
        undo.enter_context(torch.inference_mode(False))
        undo.enter_context(torch.enable_grad())
        undo.enter_context(torch.autocast(next(model.parameters()).device.type, enabled=False))
        yield


def compute_rows(
    apply: Apply, x: Tensor, padding: Padding, positions: Tensor, channels: Sequence[int]
) -> Iterator[Tensor]:
    """Yield for each of `channels` the gradients (b, l, d) of that output channel at `positions` (b,).

    Memory is that of one forward and backward of `apply`, linear in the length if the layer's is. Raises
    RunError if a gradient is not finite.
    """
    x = x.clone().requires_grad_()
    out = apply(x, padding)[torch.arange(len(x), device=x.device), positions]
    for index, channel in enumerate(channels):
        start = torch.zeros_like(out)
        start[:, channel] = 1
        gradient = _differentiate(out, x, start, keep=index < len(channels) - 1)
        _check_finite(gradient, f"channel {channel}")
        yield gradient


def _differentiate(out: Tensor, x: Tensor, weights: Tensor, *, keep: bool = False) -> Tensor:
    """Return the gradient at `x` of the weighted sum of `out`: zeros where that does not depend on `x`."""
    if not out.requires_grad:
        return torch.zeros_like(x)
    (gradient,) = torch.autograd.grad(out, x, weights, retain_graph=keep, materialize_grads=True)
    return gradient


def _check_finite(gradient: Tensor, what: str) -> None:
    if not gradient.isfinite().all():
        raise RunError(f"the gradient of {what} is not finite, so there is no distance")


class FutureDependence(NamedTuple):
    """Dependence on later positions: their share of all |J|, and their peak relative to the largest."""

    share: float
    peak: float


def measure_future(apply: Apply, x: Tensor, padding: Padding, lengths: Tensor) -> FutureDependence | None:
    """Return the largest over all examples at the middle position; None if no example has two positions.

    All output channels at once, with random weights: if no channel depends on the future, no sum of them
    does, and a sum of those that do vanishes with probability 0.
    """
    long = (lengths >= 2).nonzero().flatten()
    if not len(long):
        return None
    x = x.clone().requires_grad_()
    middle = (lengths[long] - 1) // 2
    out = apply(x, padding)[long, middle]
    weights = torch.randn(out.shape[1], generator=torch.Generator().manual_seed(PROBE_SEED)).to(out)
    gradient = _differentiate(out, x, weights.expand_as(out))
    _check_finite(gradient, "a middle position")
    size = gradient[long].abs().sum(2, dtype=torch.float64)
    place = torch.arange(x.shape[1], device=x.device)
    size = size * (place < lengths[long].unsqueeze(1))
    ahead = size * (place > middle.unsqueeze(1))
    tiny = torch.finfo(torch.float64).tiny
    share = ahead.sum(1) / size.sum(1).clamp(min=tiny)
    peak = ahead.amax(1) / size.amax(1).clamp(min=tiny)
    return FutureDependence(float(share.max()), float(peak.max()))
