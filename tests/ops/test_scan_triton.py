"""The Triton scan against the loop over time in float64, interpreted."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from interpreted_kernels import prepare_interpreter
from torch import Tensor

from msbench.ops.gpu.launch import find_missing
from msbench.ops.scan import dispatch, engines, triton_engine, triton_shape
from msbench.ops.scan.dispatch import kernel_name, selective_scan
from msbench.ops.scan.reference import selective_scan_reference
from msbench.ops.scan.triton_engine import TritonScanEngine
from msbench.ops.scan.triton_shape import (
    BackwardShape,
    ForwardShape,
    ScanSizes,
    choose_backward_shape,
    choose_forward_shape,
    make_packing_shape,
)

pytestmark = pytest.mark.skipif(bool(find_missing("cpu")), reason=find_missing("cpu") or "interpreted")

NAMES = ("output", "u", "dt", "A", "B", "C", "skip", "mix")
KERNELS = [
    "msbench.ops.scan.triton_backward_kernels",
    "msbench.ops.scan.triton_forward_kernels",
    "msbench.ops.gpu.scan_packing_kernels",
]
SMALL = TritonScanEngine(every=8, schedulers=1)
"""Spans of 8 steps, and blocks as large as the kernels have them: few programs to interpret."""


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A faster interpreter, and one that sees accesses outside of the arrays."""
    prepare_interpreter(monkeypatch, KERNELS)


def arguments(b: int, length: int, m: int, d: int, n: int) -> list[Tensor]:
    """u, dt, A, B, C, skip, mix in float32."""
    generator = torch.Generator().manual_seed(length + 10 * n + m)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator)

    dt, A = normal(b, length, m, d).abs() * 0.2 + 1e-3, -normal(m, d, n).abs() - 0.1
    shapes = [(b, length, m, n), (b, length, m, n), (m, d), (b, length, m)]
    return [normal(b, length, m, d), dt, A, *(normal(*shape) for shape in shapes)]


def computed(
    engine: TritonScanEngine, values: Sequence[Any], weight: Tensor | None = None, scaled: bool = True
) -> list[Any]:
    """Output and gradients by the engine."""
    u, dt, A, B, C, skip, mix = values
    everything = (u, dt, A, B, C, skip, mix)
    y, kept = engine.forward(everything, scaled=scaled, keep=True)
    assert kept.shape == engine.kept_shape(u, A)
    return [y, *engine.backward(everything, kept, weights(y) if weight is None else weight, scaled=scaled)]


def weights(y: Tensor) -> Tensor:
    return torch.linspace(-1, 1, y.numel()).view(y.shape)


def expected(values: Sequence[Any], weight: Tensor | None = None, scaled: bool = True) -> list[Any]:
    """Output and gradients by the loop over time, in float64."""
    leaves: list[Any] = [None if x is None else x.double().requires_grad_() for x in values]
    y = selective_scan_reference(*leaves, discretisation="euler" if scaled else "raw")
    loss = (y * (weights(y.detach()) if weight is None else weight).double()).sum()
    found = iter(torch.autograd.grad(loss, [x for x in leaves if x is not None]))
    return [y.detach(), *(None if x is None else next(found) for x in leaves)]


def assert_same(
    values: Sequence[Any],
    engine: TritonScanEngine = SMALL,
    weight: Tensor | None = None,
    scaled: bool = True,
    tolerance: float = 3e-6,
) -> list[Any]:
    """Compare output and gradients, and return them."""
    found = computed(engine, values, weight, scaled)
    for name, one, truth in zip(NAMES, found, expected(values, weight, scaled), strict=True):
        assert (one is None) == (truth is None)
        if one is not None and truth is not None:
            assert one.shape == truth.shape
            assert one.is_contiguous()
            error = float((one - truth).abs().max() / truth.abs().max().clamp_min(1e-30))
            assert error < tolerance, f"{name} is off by {error:.1e}"
    return found


@pytest.mark.parametrize("length", [1, 2, 3, 31, 33])
def test_lengths(length: int) -> None:
    assert_same(arguments(1, length, 1, 3, 1))


def test_a_length_beyond_twice_the_real_distance_of_kept_states() -> None:
    assert_same([*arguments(1, 257, 1, 1, 1)[:5], None, None], TritonScanEngine(schedulers=1), tolerance=1e-5)


@pytest.mark.parametrize(
    ("m", "n", "length"), [(1, 5, 17), (1, 16, 9), (1, 26, 9), (1, 35, 5), (5, 5, 9), (5, 26, 6)]
)
def test_streams_and_states(m: int, n: int, length: int) -> None:
    assert_same(arguments(1, length, m, 7, n))


def test_channels_fill_several_blocks_with_a_rest() -> None:
    values = arguments(2, 6, 1, 19, 5)
    problem = ScanSizes(2, 1, 19, 5, True, True, True)
    assert choose_forward_shape(problem, keep=True).BLOCKS > 1
    assert choose_backward_shape(problem).BLOCKS > 1
    assert_same(values, TritonScanEngine(every=8))


@pytest.mark.parametrize(("m", "n"), [(2, 5), (1, 35)])
def test_a_program_of_the_backward_scans_blocks_of_channels_in_turn(
    m: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_shape, "estimate_backward_time", lambda _problem, turns: abs(turns - 2))
    shape = choose_backward_shape(ScanSizes(1, m, 35, n, True, True, True))
    wide = shape.LD * shape.K
    assert shape.TURNS == 2
    assert (
        (shape.BLOCKS * 2 - 1) * wide >= 35 > (shape.BLOCKS - 1) * 2 * wide
    )  # one block in the last program
    assert_same(arguments(1, 9, m, 35, n))


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("mixed", [True, False])
def test_with_and_without_parts(skip: bool, mixed: bool, scaled: bool) -> None:
    values: list[Any] = list(arguments(1, 9, 2, 3, 3))
    values[5] = values[5] if skip else None
    values[6] = values[6] if mixed else None
    assert_same(values, scaled=scaled)


@pytest.mark.parametrize("d", [3, 17])
@pytest.mark.parametrize("m", [1, 3])
def test_two_channels_in_a_lane(m: int, d: int) -> None:
    problem = ScanSizes(1, m, d, 5, True, True, True, 8, 1)
    channels = 2 if d > 8 else 1
    assert channels == choose_forward_shape(problem, keep=True).K
    assert_same(arguments(1, 6, m, d, 5))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_what_follows_an_example_does_not_change_it() -> None:
    values = arguments(2, 9, 2, 3, 5)
    whole = computed(SMALL, values)
    values[3][1], values[4][1] = torch.nan, torch.inf
    for one, other in zip(computed(SMALL, values)[:3], whole[:3], strict=True):
        assert torch.equal(one[0], other[0])


def test_slow_decay_and_a_loss_on_the_last_step_only() -> None:
    values = arguments(1, 27, 1, 3, 5)
    values[2] *= 1e-3
    weight = torch.zeros(1, 27, 3)
    weight[:, -1] = 1
    found = assert_same(values, weight=weight)[1]
    assert float(found[:, 0].abs().min()) > 0


@pytest.mark.parametrize("rate", [-50.0, -130.0])
def test_fast_decay_underflows_to_nothing(rate: float) -> None:
    values = arguments(1, 17, 1, 2, 3)
    values[1].fill_(1.0)
    values[2].fill_(rate)
    assert all(x is not None and bool(torch.isfinite(x).all()) for x in assert_same(values))


def test_strided_arguments() -> None:
    values = arguments(1, 5, 2, 3, 5)
    strided: list[Any] = [x.mT.contiguous().mT for x in values[:6]]
    strided.append(torch.stack([values[6], values[6]], dim=-1)[..., 0])
    for one, other in zip(computed(SMALL, strided), computed(SMALL, values), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("n", [2, 35])
def test_slices_of_a_projection_are_read_as_they_are(n: int) -> None:
    values: list[Any] = list(arguments(2, 5, 2, 3, n))
    rows = torch.cat([values[4], values[3], values[6].unsqueeze(3)], dim=3)
    slices = [*values[:3], rows[..., n : 2 * n], rows[..., :n], values[5], rows[..., -1]]
    assert not any(x.is_contiguous() for x in slices[3:5])
    for one, other in zip(computed(SMALL, slices), computed(SMALL, values), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("sizes", [(3, 17, 1, 2, 2), (2, 17, 1, 2, 33)])
def test_launches_are_cut_by_spans_and_by_examples(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = arguments(*sizes)
    counts: list[tuple[int, ...]] = []
    monkeypatch.setattr(triton_engine.PartialGradients, "run", count_calls(counts))
    once = computed(SMALL, values)
    for parts in (1, 2**30):
        monkeypatch.setattr(triton_engine, "PARTS", parts)
        for one, other in zip(computed(SMALL, values), once, strict=True):
            assert torch.equal(one, other)
    assert counts[-1] == (0, sizes[0], 0, 2)
    assert (sizes[0] - 1, 1, 0, 0) in counts


def count_calls(calls: list[tuple[int, ...]]) -> Any:
    run = triton_engine.PartialGradients.run

    def counted(self: Any, launch: triton_engine.Launch, *rest: Any) -> None:
        calls.append(tuple(launch))
        run(self, launch, *rest)

    return counted


class TestLaunches:
    @pytest.mark.parametrize(
        ("b", "length", "m", "d", "n"),
        [
            (50, 2000, 5, 128, 26),
            (64, 4000, 5, 256, 26),
            (1024, 196, 5, 512, 26),
            (50, 4096, 1, 512, 128),
            (1, 70, 1, 1, 1),
        ],
    )
    def test_the_parts_of_a_launch_stay_in_the_cache(
        self, b: int, length: int, m: int, d: int, n: int
    ) -> None:
        u = torch.empty(b, length, m, d, device="meta")
        A, B = torch.empty(m, d, n, device="meta"), torch.empty(b, length, m, n, device="meta")
        gradients = object.__new__(triton_engine.PartialGradients)
        gradients.tensors = (u, u, A, B, B, None, None)
        gradients.shape = choose_backward_shape(ScanSizes(b, m, d, n, True, True, True))
        gradients.packing = make_packing_shape(gradients.shape)
        launches = list(gradients.list_launches())
        per_step, steps = gradients.packing.count_part_bytes(), gradients.shape.EVERY
        assert (
            max(each.examples * (each.last - each.first + 1) for each in launches) * per_step * steps <= 2**25
        )
        cells = [
            (example, span)
            for each in launches
            for example in range(each.example, each.example + each.examples)
            for span in range(each.last, each.first - 1, -1)
        ]
        assert (
            sorted(cells)
            == sorted(set(cells))
            == [(i, s) for i in range(b) for s in range(-(-length // steps))]
        )
        for example in (0, b - 1):  # from the end
            spans = [span for i, span in cells if i == example]
            assert spans == sorted(spans, reverse=True)


def test_float64_is_computed_in_float64() -> None:
    values = [x.double() for x in arguments(1, 5, 2, 3, 2)]
    assert_same(values, weight=torch.ones(1, 5, 3, dtype=torch.float64), tolerance=1e-13)


class TestForced:
    """Through `selective_scan`."""

    @pytest.fixture(autouse=True)
    def forced(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        dispatch._choose.cache_clear()
        monkeypatch.setenv("MSBENCH_SCAN", "triton")
        monkeypatch.setitem(engines.ENGINES, "triton", SMALL)
        yield
        dispatch._choose.cache_clear()

    def test_gradients_reach_every_argument_and_are_the_same_twice(self) -> None:
        values = arguments(1, 11, 2, 3, 5)

        def run() -> list[Tensor]:
            leaves = [x.clone().requires_grad_() for x in values]
            y = selective_scan(*leaves)
            return [y.detach(), *torch.autograd.grad((y * weights(y)).sum(), leaves)]

        found = run()
        assert all(torch.equal(one, other) for one, other in zip(found, run(), strict=True))
        for one, truth in zip(found, expected(values), strict=True):
            assert float((one - truth).abs().max() / truth.abs().max()) < 3e-6

    def test_half_precision_is_scanned_in_float32(self) -> None:
        half = [x.bfloat16() for x in arguments(1, 11, 2, 3, 5)]
        y = selective_scan(*half)
        assert y.dtype == torch.bfloat16
        assert torch.equal(y, selective_scan(*(x.float() for x in half)).bfloat16())

    def test_it_has_a_name(self) -> None:
        assert kernel_name("cpu") == "triton"


def test_the_interpreter_is_never_chosen_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", "auto")
    assert kernel_name("cpu") != "triton"


def test_why_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert "TRITON_INTERPRET=1" in find_missing("cpu")
    assert "CUDA device" in find_missing("mps")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert find_missing("cuda") == "triton is not installed"


def test_triton_is_imported_where_a_scan_is_computed_only() -> None:
    folder = Path(triton_engine.__file__).parents[2]
    texts = {
        ".".join(x.relative_to(folder.parent).with_suffix("").parts): x.read_text()
        for x in folder.glob("ops/**/*.py")
    }
    found = {name for name, text in texts.items() if re.search("^ *(import|from) triton", text, re.M)}
    assert set(KERNELS) <= found
    assert all(name.endswith("_kernels") for name in found)
    rest = [text for name, text in texts.items() if not name.endswith("_kernels")]
    assert not any(re.search(rf"(from|import) {name}", text) for name in KERNELS for text in rest)


class TestRule:
    @pytest.mark.parametrize("n", [1, 16, 25, 26, 128, 256, 257])
    @pytest.mark.parametrize("m", [1, 5, 9])
    @pytest.mark.parametrize(("b", "d"), [(1, 1), (1, 128), (50, 128), (64, 1001)])
    def test_every_scan_has_a_shape(self, b: int, d: int, m: int, n: int) -> None:
        problem = ScanSizes(b, m, d, n, True, True, True)
        forward, backward = choose_forward_shape(problem, keep=True), choose_backward_shape(problem)
        shapes: list[tuple[ForwardShape | BackwardShape, int]] = [
            (forward, 8 * forward.K),
            (backward, backward.LD * backward.K * backward.TURNS),
        ]
        for shape, wide in shapes:
            assert shape.count_pairs() >= shape.N
            assert n <= shape.GROUPS * shape.N
            assert shape.BLOCKS * wide >= d > (shape.BLOCKS - 1) * wide
        assert backward.LN * backward.LD == 32
        assert backward.SPREAD * backward.LN == 4 * backward.K

    def test_few_programs_are_spread_over_the_gpu(self) -> None:
        full, few = (ScanSizes(b, 5, 128, 26, True, True, True) for b in (50, 1))
        assert choose_forward_shape(full, keep=True).K == 2
        assert choose_forward_shape(few, keep=True).K == 1
