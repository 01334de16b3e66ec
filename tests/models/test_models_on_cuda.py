"""Every model on a CUDA device against the same one on the CPU: `make gpu`."""

import pytest
import torch
from model_cases import TOKEN_MODELS, compute_test_loss, model_of, tokens

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("name", [name for name in TOKEN_MODELS if name != "r-lstm"])  # it draws positions
def test_the_device_computes_what_the_cpu_computes(name: str) -> None:
    """Logits and gradients, without dropout; exponentials and sums round otherwise on another device."""
    found = []
    for device in ("cpu", "cuda"):
        model = model_of(name, dropout=0.0).to(device)
        inputs, lengths = (x.to(device) for x in tokens(40, 17, 5))
        torch.manual_seed(0)
        loss = compute_test_loss(model, (inputs, lengths))
        loss.backward()  # type: ignore[no-untyped-call]
        found.append([loss.detach(), *(x.grad for x in model.parameters() if x.grad is not None)])
    assert len(found[0]) == len(found[1]) > 1
    scale = max(float(x.abs().max()) for x in found[0][1:])
    for expected, computed in zip(*found, strict=True):
        least = 1e-3 * (scale if expected.ndim else 1.0)
        error = float((computed.cpu() - expected).abs().max())
        assert error < 2e-3 * max(float(expected.abs().max()), least)
