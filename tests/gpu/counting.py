"""What a training step costs on a GPU: bytes and operations of every call, and an estimated time.

An operation of PyTorch reads its arguments and writes its results once. A Triton kernel does so with its
tensors, each counted once an operator that launches it. Times are those of an H100: the larger of bytes over
the memory's rate and operations over the rate of their kind, and never less than a launch.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

STREAMED, STRIDED = 2.8e12, 1.9e12
"""Bytes a second of an H100's memory, of contiguous tensors and of others (3.35e12 on paper)."""
PRODUCTS = {torch.float32: 45e12, torch.bfloat16: 500e12}
"""Floating-point operations a second of matrix products."""
TF32 = 250e12
LAUNCH = 2e-6
"""Seconds that the smallest kernel takes."""
SCANNED = {"forward": 0.36e-12, "backward": 1.8e-12}
"""Seconds a state and step of the scan, which waits for its own arithmetic.

From the hot loops compiled for an H100, simulated instruction by instruction with four warps on a scheduler:
for 5 streams of 26 states 47e-12 a step and channel, and 221e-12 backward. The backward of 50 examples of 128
channels leaves some of the places of programs empty, and takes 234e-12.
"""
PASSES = {"_fft_r2c": 2, "_fft_c2r": 2, "_fft_c2c": 2}
"""Times that a library reads and writes a tensor, if not once."""
LOOKUPS = {"index", "gather", "embedding", "index_select"}
"""Operations that read as much of their first argument as they return."""
UNREAD = {"fill_", "zero_", "copy_", "normal_", "uniform_", "random_", "bernoulli_", "index_put_"}
"""Operations that do not read the tensor that they change."""
ALLOCATIONS = ("empty", "new_empty")


@dataclass
class CallCost:
    """What calls of one kind have cost."""

    calls: int = 0
    bytes: float = 0.0
    operations: float = 0.0
    seconds: float = 0.0

    def add(self, size: float, operations: float, seconds: float) -> None:
        """Add one call."""
        self.calls += 1
        self.bytes += size
        self.operations += operations
        self.seconds += seconds


def estimate_seconds(size: float, *, contiguous: bool, operations: float = 0.0, rate: float = 1.0) -> float:
    """Estimate the time of one kernel on an H100 from the bytes that it moves and its operations a second."""
    return max(size / (STREAMED if contiguous else STRIDED), operations / rate, LAUNCH)


def count_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor in memory: an expanded dimension takes none."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else 1
    return elements * tensor.element_size()


def list_tensors(value: Any) -> list[Tensor]:
    """Return the tensors in nested lists, tuples and dicts, in order."""
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for part in parts for tensor in list_tensors(part)]


def find_line(marker: str = "/msbench/") -> str:
    """Return the innermost line of the package that is being executed; in a backward, of its forward."""
    node = torch._C._current_autograd_node()
    if node is not None:
        metadata: Any = node.metadata
        for text in reversed(metadata.get("traceback_", [])):
            if marker in text:
                name, rest = text.split(marker, 1)[1].split('"', 1)
                return f"backward of {name}:{rest.split('line ')[1].split(',')[0]}"
        return f"backward: {node.name()}"
    frame = sys._getframe(1)
    while frame.f_back is not None:
        if marker in frame.f_code.co_filename:
            return f"{frame.f_code.co_filename.split(marker, 1)[1]}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"


@dataclass
class TritonTraffic:
    """What an operator's Triton kernels have touched: each tensor once a kernel."""

    touched: dict[tuple[str, int, int], int] = field(default_factory=dict)
    launches: int = 0


class TrafficCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the cost of every operation on CUDA tensors, by the line of the package that it belongs to.

    `lines` is False for totals alone: lines of a backward are known under ``torch.autograd.detect_anomaly``.
    """

    def __init__(self, *, lines: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.lines = lines
        self.costs: dict[str, CallCost] = defaultdict(CallCost)
        self._operator = ""

    @property
    def total(self) -> CallCost:
        """Return the sum over all lines."""
        total = CallCost()
        for cost in self.costs.values():
            total = CallCost(*(getattr(total, name) + getattr(cost, name) for name in vars(cost)))
        return total

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count a call, or those that it is made of."""
        del types
        kwargs = kwargs or {}
        if func.namespace == "msbench":
            return self._count_operator(func, args, kwargs)
        if func._can_decompose():
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        self._count_call(func, args, kwargs, result)
        return result

    def _count_operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Count the calls of one of the package's operators, and its Triton kernels by what they touch."""
        outer, self._operator = self._operator, func.overloadpacket.__name__
        traffic = TritonTraffic()
        try:
            with self, _collecting(traffic):
                result = func._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)
        finally:
            self._operator = outer
        if traffic.launches:
            size = sum(traffic.touched.values())
            seconds = estimate_seconds(size, contiguous=True) + LAUNCH * (traffic.launches - 1)
            scanned = count_scanned(func, args)
            kind = "backward" if "backward" in func.overloadpacket.__name__ else "forward"
            seconds = max(seconds, scanned * SCANNED[kind])
            self.costs[f"Triton in {func.overloadpacket.__name__}"].add(size, 0, seconds)
            self.costs[f"Triton in {func.overloadpacket.__name__}"].calls += traffic.launches - 1
        return result

    def _count_call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        name = func.overloadpacket.__name__
        outputs = list_tensors(result)
        inputs = list_tensors([args, {key: value for key, value in kwargs.items() if key != "out"}])
        if not any(tensor.is_cuda for tensor in (*inputs, *outputs)) or name.startswith(ALLOCATIONS):
            return
        storages = {tensor.untyped_storage()._cdata for tensor in inputs}
        if not func._schema.is_mutable and all(x.untyped_storage()._cdata in storages for x in outputs):
            return  # a view
        if func._schema.is_mutable and not outputs:  # in place on lists
            outputs = list_tensors(args[0])
        if name in UNREAD:
            inputs = list_tensors(args[1:])
        read = sum(map(count_bytes, outputs if name in LOOKUPS else inputs))
        size = PASSES.get(name, 1) * (read + sum(map(count_bytes, outputs)))
        operations = 0.0
        if func.overloadpacket in flop_registry:
            operations = flop_registry[func.overloadpacket](*args, **kwargs, out_val=result)
        kind = outputs[0].dtype if outputs else torch.float32
        rate = PRODUCTS.get(kind, PRODUCTS[torch.float32])
        if kind == torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32":
            rate = TF32
        contiguous = operations > 0 or all(x.is_contiguous() for x in (*inputs, *outputs))
        seconds = estimate_seconds(size, contiguous=contiguous, operations=operations, rate=rate)
        where = find_line() if self.lines and not self._operator else self._operator or name
        self.costs[where].add(size, operations, seconds)


def count_scanned(func: Any, args: Sequence[Any]) -> int:
    """Return states times steps of a scan, by its arguments u (b, l, ...) and A (m, d, n); 0 for others."""
    given = dict(zip((each.name for each in func._schema.arguments), args, strict=False))
    u, A = given.get("u"), given.get("A")
    if not isinstance(u, Tensor) or not isinstance(A, Tensor):
        return 0
    return u.shape[0] * u.shape[1] * A.numel()


_collected: list[TritonTraffic] = []


@contextmanager
def _collecting(traffic: TritonTraffic) -> Iterator[None]:
    _collected.append(traffic)
    try:
        yield
    finally:
        _collected.pop()


@contextmanager
def counting_triton(note: Callable[[str], None]) -> Iterator[Counter[str]]:
    """Count Triton kernels instead of compiling and launching them; `note` takes the name of each."""
    from triton.runtime.jit import JITFunction

    launches: Counter[str] = Counter()

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        del grid, warmup
        name = self.fn.__name__
        launches[name] += 1
        note(name)
        if _collected:
            _collected[-1].launches += 1
            for tensor in list_tensors([args, kwargs]):
                size = count_bytes(tensor)
                _collected[-1].touched[name, tensor.data_ptr(), size] = size

    original, JITFunction.run = JITFunction.run, run
    try:
        yield launches
    finally:
        JITFunction.run = original
