"""Whole models with the Triton kernels, interpreted, against PyTorch operations."""

import pytest
import torch
from model_cases import INFO, model_of, tokens
from torch import Tensor

from msbench.ops.gpu.launch import find_missing
from msbench.ops.scan import dispatch
from msbench.training.step import compute_loss

pytestmark = pytest.mark.skipif(bool(find_missing("cpu")), reason=find_missing("cpu") or "interpreted")


def run_step(name: str, norm: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """Gradients and running moments after a step with dropout, and logits in evaluation."""
    monkeypatch.setenv("MSBENCH_SCAN", kernel)
    dispatch._choose.cache_clear()
    model = model_of(name, norm=norm, dropout=0.2, drop_path=0.3, layers=1).train()
    inputs, lengths = tokens(7, 3, 5)
    torch.manual_seed(1)
    compute_loss(model(inputs, lengths), torch.arange(3) % INFO.classes, "cross-entropy").backward()  # type: ignore[no-untyped-call]
    found = {path: x.grad for path, x in model.named_parameters() if x.grad is not None}
    found |= {path: x.clone() for path, x in model.named_buffers() if "running" in path}
    with torch.no_grad():
        return found | {"logits": model.eval()(inputs, lengths)}


@pytest.mark.parametrize(("name", "norm"), [("mamba", "batch"), ("mamba", "rms"), ("griffin", "layer")])
def test_a_step_is_the_same(name: str, norm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run_step(name, norm, "torch", monkeypatch)
    found = run_step(name, norm, "triton", monkeypatch)
    dispatch._choose.cache_clear()
    assert found.keys() == expected.keys()
    assert len(found) > 10
    for path, truth in expected.items():
        error = float((found[path] - truth).abs().max() / truth.abs().max().clamp(min=1e-6))
        assert error < 1e-4, path
