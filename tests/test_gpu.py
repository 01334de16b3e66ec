"""What only a CUDA device can show: `make gpu`."""

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from msbench import datasets as data
from msbench import models
from msbench.config import MODELS
from msbench.errors import Interrupted
from msbench.ops.scan import dispatch
from msbench.ops.scan.dispatch import kernel_name, selective_scan
from msbench.ops.scan.reference import selective_scan_reference
from msbench.runs.suite import Suite, resolve_specs
from msbench.training.loop import Trainer, make_fabric
from msbench.training.metrics import ProgressCallback
from msbench.training.signals import SignalFlag

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("model", ["msssm-s6", "mamba"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_run_that_starts_on_the_gpu_goes_on_on_the_cpu(
    tiny: Suite, tmp_path: Path, model: str, precision: str
) -> None:
    spec = resolve_specs(tiny, [model], overrides=[f"train.precision={precision}"])[0]
    dataset = data.setup(spec.data, data.data_root())
    losses = []
    for device in ("cuda", "cpu"):
        flag = SignalFlag()
        net = models.build(spec.model_name, spec.model, dataset.info, spec.seed)
        fabric = make_fabric(device, precision)
        trainer = Trainer(
            spec,
            net,
            dataset,
            directory=tmp_path,
            run_id="0123456789ab",
            fabric=fabric,
            callback=ProgressCallback(),
            signals=flag,
        )

        def stop(step: int, flag: SignalFlag = flag) -> None:
            if step == 12:
                flag.received = 15

        trainer.after_step = stop
        if device == "cuda":
            with pytest.raises(Interrupted):
                trainer.run()
        else:
            trainer.run()
        losses += [row["train_loss"] for row in trainer.progress.rows]
    assert len(losses) == 1 + 3
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("flags", [(), ("--bf16", "--deterministic")])
def test_every_model_trains_on_the_device(flags: tuple[str, ...]) -> None:
    """As on the null GPU (`tests/gpu/test_training_on_cuda.py`); here losses have a meaning."""
    script = Path(__file__).parent / "gpu" / "train_models.py"
    done = subprocess.run([sys.executable, script, *flags], capture_output=True, text=True, check=True)
    trained = [json.loads(line) for line in done.stdout.splitlines()]
    assert {each["model"]: each["error"] for each in trained if "error" in each} == {}
    assert [each["model"] for each in trained] == list(MODELS)
    assert {each["model"] for each in trained if not all(map(math.isfinite, each["losses"]))} == set()


LENGTHS = (1, 2, 3, 31, 33, 100, 1000, 1025)
NAMES = ("output", "u", "dt", "A", "B", "C", "skip", "mix")


class TestTritonScan:
    """The scan in Triton on the device against the loop over time, in float64 on the device too.

    Every pair of m and n compiles two kernels, 5 to 20 seconds each the first time.
    """

    @pytest.fixture(autouse=True)
    def forced(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        dispatch._choose.cache_clear()
        monkeypatch.setenv("MSBENCH_SCAN", "triton")
        yield
        dispatch._choose.cache_clear()

    def test_it_is_chosen_and_passes_its_check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MSBENCH_SCAN", "auto")
        assert kernel_name("cuda") == "triton"

    @pytest.mark.parametrize("n", [1, 16, 25, 26, 128, 256])
    @pytest.mark.parametrize("m", [1, 5])
    def test_output_and_gradients_equal_the_loop(self, m: int, n: int) -> None:
        for length in LENGTHS:
            values = arguments(2, length, m, 37, n)
            assert_same(values if m == 5 else values[:5], length)

    @pytest.mark.parametrize("discretisation", ["euler", "raw"])
    @pytest.mark.parametrize("count", [5, 6, 7])
    def test_parts(self, count: int, discretisation: str) -> None:
        for length in (33, 200):
            values = arguments(3, length, 2, 64, 16)[:count]
            assert_same(values, length, discretisation=discretisation)

    def test_the_sizes_of_a_training_step(self) -> None:
        values = arguments(50, 256, 5, 128, 26)
        assert_same(values, 256)

    def test_slow_decay_and_a_loss_on_the_last_step_only(self) -> None:
        values = arguments(2, 1000, 5, 37, 26)
        values[2] *= 1e-3
        weight = torch.zeros(2, 1000, 37, device="cuda")
        weight[:, -1] = 1
        assert_same(values, 1000, weight, 1000 * 2**-23)  # what rounds each decay next to 1, times the steps

    @pytest.mark.parametrize("rate", [-50.0, -130.0])
    def test_fast_decay_underflows_to_nothing(self, rate: float) -> None:
        values = arguments(2, 200, 5, 37, 26)
        values[1].fill_(1.0)
        values[2].fill_(rate)
        assert_same(values, 200)

    def test_half_precision_is_scanned_in_float32(self) -> None:
        half = [x.bfloat16() for x in arguments(2, 100, 5, 37, 26)]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = selective_scan(*half)
        assert torch.equal(y, selective_scan(*(x.float() for x in half)).bfloat16())


def arguments(b: int, length: int, m: int, d: int, n: int) -> list[Tensor]:
    """u, dt, A, B, C, skip, mix in float32 on the device."""
    generator = torch.Generator("cuda").manual_seed(length + 10 * n + m)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, device="cuda")

    dt, A = normal(b, length, m, d).abs() * 0.1 + 1e-3, -normal(m, d, n).abs() - 0.1
    shapes = [(b, length, m, n), (b, length, m, n), (m, d), (b, length, m)]
    return [normal(b, length, m, d), dt, A, *(normal(*shape) for shape in shapes)]


def assert_same(
    values: list[Tensor],
    length: int,
    weight: Tensor | None = None,
    tolerance: float = 2e-5,
    **options: Any,
) -> None:
    """Output and gradients are those of the loop, and the same bits in two runs."""
    found, again = (gradients(selective_scan, values, weight, **options) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
    truth = gradients(selective_scan_reference, [x.double() for x in values], weight, **options)
    for name, one, other in zip(NAMES, found, truth, strict=False):
        error = float((one - other).abs().max() / other.abs().max().clamp_min(1e-30))
        assert error < tolerance, f"{name} is off by {error:.1e} at length {length}"


def gradients(
    scan: Callable[..., Tensor], values: list[Tensor], weight: Tensor | None, **options: Any
) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in values]
    y = scan(*leaves, **options)
    weight = torch.linspace(-1, 1, y.numel(), device="cuda").view(y.shape) if weight is None else weight
    return [y.detach(), *torch.autograd.grad((y * weight.to(y.dtype)).sum(), leaves)]
