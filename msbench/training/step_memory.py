"""The memory of a training step, counted on tensors without numbers, for any model."""

import math
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from msbench import models
from msbench.config import ClassifierConfig
from msbench.datasets.dataset import TaskInfo
from msbench.errors import MsbenchError, get_first_line
from msbench.models.classifier import Classifier
from msbench.ops.gpu.launch import skip_launches
from msbench.ops.operators import IMPLEMENTATIONS, NAMESPACE
from msbench.training.step import compute_loss

UNIT = 512
"""Bytes that PyTorch's allocator for GPUs rounds sizes up to."""
HIDDEN = {"mkldnn_rnn_layer": 16, "_cudnn_rnn": 6}
"""What libraries keep for the backward of an LSTM, in sizes of its output: without numbers it is empty.

Measured on a CPU; for a GPU the gates, the cell and its hyperbolic tangent.
"""
PATTERN, ROUGHLY = 3, 3
"""The most layers in a repeated pattern (Griffin has it), and the layers that a rough estimate traces."""
FEW_POSITIONS, FEW_EXAMPLES = 16, 4
"""Positions, or examples, that are traced, and twice as many, where a layer is a Python loop over them."""


@dataclass(frozen=True)
class StepMemory:
    """Bytes that a training step takes on its device, for batches of `positions` with padding.

    Parameters
    ----------
    fixed : parameters, gradients, moments and, if there is one, the running average
    kept, kept_recomputed : what each block of the model keeps for the backward, in order; without and with
        recomputation of its forward
    rest : what is kept outside of the blocks
    transient : what the step takes at most beyond that, without recomputation
    lowest : what it takes at most, beyond `fixed`, if all blocks are recomputed
    """

    positions: int
    fixed: int
    kept: tuple[int, ...]
    kept_recomputed: tuple[int, ...]
    rest: int
    transient: int
    lowest: int

    def estimate(self, recomputed: int = 0, positions: int | None = None) -> int:
        """Return the bytes of a step that recomputes the first blocks, so many of them.

        Those are the last of the backward, when all others have freed what they kept.
        """
        kept = sum(self.kept_recomputed[:recomputed]) + sum(self.kept[recomputed:])
        most = kept + self.rest + self.transient
        if recomputed:
            most = max(most, self.lowest)
        share = 1.0 if positions is None else positions / self.positions
        return self.fixed + round(share * most)

    def count_recomputed(self, limit: int, positions: int) -> int:
        """Return the fewest blocks to recompute for a step within `limit` bytes, or all of them."""
        blocks = len(self.kept)
        enough = (count for count in range(blocks) if self.estimate(count, positions) <= limit)
        return next(enough, blocks)

    def limit_positions(self, limit: int) -> int:
        """Return the most positions of a step within `limit` bytes that recomputes nothing."""
        return max(0, limit - self.fixed) * self.positions // max(1, self.estimate() - self.fixed)


def try_to_trace(trace: Callable[[], StepMemory]) -> StepMemory | None:
    """Return the memory that `trace` measures, or None, with a warning, for a model that cannot be traced."""
    try:
        return trace()
    except MsbenchError:
        raise
    except Exception as error:  # an operation that cannot be traced still computes
        text = f"the memory of a step is not known: {get_first_line(error)}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)
        return None


def measure_step_memory(
    name: str,
    config: ClassifierConfig,
    info: TaskInfo,
    *,
    examples: int,
    length: int,
    device: str,
    bfloat16: bool = False,
    averaged: bool = False,
    rough: bool = False,
) -> StepMemory:
    """Return the memory of a step of `examples`, each of `length` positions, on ``cpu`` or ``cuda``.

    What torch and its libraries take is not included, nor work space of the C++ kernels. A `rough` one is
    of the forward alone, without recomputation, and takes a fourth of the time.
    """
    outline = models.build_outline(name, config, info)
    parameters = sum(x.numel() * x.element_size() for x in outline.parameters())
    layers, blocks = config.layers, len(outline.blocks)
    # Enough that a whole pattern lies between the first layer and the last, and the last is of its own kind.
    most = ROUGHLY if rough else 2 + PATTERN + (layers - 2) % PATTERN
    alike = layers > most and blocks > 0 and blocks % layers == 0
    traced = config.model_copy(update={"layers": most}) if alike else config
    build, loop = partial(models.build_outline, name, traced, info), models.find_family(name, config).loop

    def trace(recompute: bool) -> _Trace:
        def find(examples: int, length: int) -> _Trace:
            return _trace(
                build,
                info,
                examples,
                length,
                device=device,
                bfloat16=bfloat16,
                recompute=recompute,
                backward=not rough,
            )

        if loop == "positions" and length > 2 * FEW_POSITIONS:
            one, other = find(examples, FEW_POSITIONS), find(examples, 2 * FEW_POSITIONS)
            return _extend(one, other, length / FEW_POSITIONS)
        if loop == "examples" and examples > 2 * FEW_EXAMPLES:
            one, other = find(FEW_EXAMPLES, length), find(2 * FEW_EXAMPLES, length)
            return _extend(one, other, examples / FEW_EXAMPLES)
        return find(examples, length)

    plain = trace(False)
    recomputed = plain if rough else trace(True)
    each = blocks // layers if alike else 0
    kept, kept_recomputed = (_repeat(x.kept, each, blocks) if alike else x.kept for x in (plain, recomputed))
    return StepMemory(
        positions=examples * info.sequences * length,
        fixed=(4 + averaged) * parameters,
        kept=kept,
        kept_recomputed=kept_recomputed,
        rest=plain.end - sum(plain.kept),
        transient=plain.peak - plain.end,
        lowest=recomputed.peak + sum(kept_recomputed) - sum(recomputed.kept),
    )


def _repeat(kept: tuple[int, ...], each: int, blocks: int) -> tuple[int, ...]:
    """Return what all blocks keep, from those of the first, the last and other layers of `each` blocks."""
    middle = kept[each:-each][: each * PATTERN]
    between = (middle[index % len(middle)] for index in range(blocks - 2 * each))
    return (*kept[:each], *between, *kept[-each:])


@dataclass(frozen=True)
class _Trace:
    """Bytes that each block keeps, that live at the end of the forward, and the most that live at once."""

    kept: tuple[int, ...]
    end: int
    peak: int


def _extend(one: _Trace, double: _Trace, factor: float) -> _Trace:
    """Return the trace of a step `factor` times as large as the first, from one twice as large."""

    def extend(a: int, b: int) -> int:
        return a + round((b - a) * (factor - 1))

    kept = tuple(extend(a, b) for a, b in zip(one.kept, double.kept, strict=True))
    return _Trace(kept, extend(one.end, double.end), extend(one.peak, double.peak))


def _trace(
    build: Callable[[], Classifier],
    info: TaskInfo,
    examples: int,
    length: int,
    *,
    device: str,
    bfloat16: bool,
    recompute: bool,
    backward: bool,
) -> _Trace:
    model = build().train()
    with FakeTensorMode(allow_non_fake_inputs=True):
        _place(model, device)
        model.recompute_layers(math.inf if recompute else 0)
        live, starts = _LiveBytes(hides=True), list[int]()
        for block in model.blocks:
            block.register_forward_pre_hook(lambda *_: starts.append(live.now))
        precision = torch.autocast(device, torch.bfloat16) if bfloat16 else nullcontext()
        with live:
            inputs, lengths, labels = _make_batch(info, examples, length, device)
            with precision:
                loss = compute_loss(model(inputs, lengths).float(), labels, "cross-entropy")
                auxiliary = model.take_auxiliary_loss()
                loss = loss if auxiliary is None else loss + auxiliary
            end = live.now
            if backward:
                loss.backward()  # type: ignore[no-untyped-call]
    kept = tuple(after - before for before, after in pairwise([*starts, end]))
    return _Trace(kept, end, live.peak)


def _place(model: nn.Module, device: str) -> None:
    """Give an outline parameters, gradients (counted as fixed) and buffers without numbers on a device."""
    placed: dict[int, Tensor] = {}
    for module in model.modules():
        for name, x in module.named_parameters(recurse=False):
            parameter = nn.Parameter(torch.empty_like(x, device=device), x.requires_grad)
            placed[id(x)] = parameter
            parameter.grad = torch.empty_like(parameter)
            setattr(module, name, parameter)
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, torch.empty_like(buffer, device=device))
    for module in model.modules():  # an LSTM's parameters are in a tuple too
        for name, value in vars(module).items():
            if isinstance(value, tuple) and any(id(each) in placed for each in value):
                setattr(module, name, tuple(placed[id(each)] for each in value))


def _make_batch(info: TaskInfo, examples: int, length: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    sides = () if info.sequences == 1 else (info.sequences,)
    if info.real_valued:
        inputs = torch.zeros(examples, length, info.channels, device=device)
    else:
        inputs = torch.zeros(examples, *sides, length, dtype=torch.int64, device=device)
    lengths = torch.full((examples, *sides), length, device=device)
    decisions = (info.classes,) if info.multi_label else ()
    return inputs, lengths, torch.zeros(examples, *decisions, dtype=torch.int64, device=device)


def _list_gpu_tensors(arguments: Any) -> Iterator[bool]:
    return (isinstance(x, Tensor) and x.is_cuda for x in arguments)


class _LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A count of the bytes of all storages that were allocated inside the context and still exist.

    `hides`: tensors have no numbers, and operations hide their workspace.
    """

    def __init__(self, *, hides: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._hides = hides
        self.now = self.peak = 0
        self._known: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        del types
        if self._hides and function.namespace == NAMESPACE and any(_list_gpu_tensors(arguments)):
            # As it is computed there, for what it allocates besides its results.
            with self, skip_launches():
                return IMPLEMENTATIONS[function.overloadpacket.__name__](*arguments)
        found = function(*arguments, **(options or {}))
        hidden = HIDDEN.get(function.overloadpacket.__name__, 0) if self._hides else 0
        for x in tree_iter(found):
            if isinstance(x, Tensor) and (storage := x.untyped_storage()) not in self._known:
                self._known[storage] = None
                size = -(-storage.nbytes() // UNIT) * UNIT * (1 + hidden)
                hidden = 0
                self.now += size
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._free, size)
        return found

    def _free(self, size: int) -> None:
        self.now -= size
