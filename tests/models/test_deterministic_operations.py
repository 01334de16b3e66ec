"""No model uses an operation without a deterministic implementation in PyTorch, as on a GPU."""

from typing import Any

import pytest
import torch
from model_cases import INFO, TOKEN_MODELS, model_of, tokens
from torch.utils._python_dispatch import TorchDispatchMode

from msbench.training.step import compute_loss

RAISING = {
    *("avg_pool3d_backward", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward"),
    *("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward", "max_unpool2d", "max_unpool3d"),
    *("fractional_max_pool2d_backward", "fractional_max_pool3d_backward"),
    *(f"upsample_{kind}_backward" for kind in ("linear1d", "bilinear2d", "bicubic2d", "trilinear3d")),
    *(f"reflection_pad{n}d_backward" for n in (1, 2, 3)),
    *("nll_loss2d_forward", "nll_loss2d_backward", "_ctc_loss_backward", "_embedding_bag_dense_backward"),
    *("put", "put_", "histc", "bincount", "median", "nanmedian", "kthvalue", "scatter_reduce"),
    *("grid_sampler_2d_backward", "grid_sampler_3d_backward", "resize_"),
}
"""As the documentation of ``torch.use_deterministic_algorithms`` has them, in the names of operators."""


class Names(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operators that run within it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def operators(name: str) -> set[str]:
    """Of a training step, where no kernel of our own is used."""
    inputs, lengths = tokens(9, 17, 5)
    with Names() as names:
        model = model_of(name)
        logits = model(inputs, lengths)
        loss = compute_loss(logits, torch.arange(3) % INFO.classes, "cross-entropy")
        auxiliary = model.take_auxiliary_loss()
        (loss if auxiliary is None else loss + auxiliary).backward()  # type: ignore[no-untyped-call]
    found: set[str] = names.found
    return found


@pytest.mark.parametrize("name", TOKEN_MODELS)
def test_no_operation_raises_on_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", "torch")
    found = operators(name)
    assert not found & RAISING
    assert {"nll_loss_forward", "embedding_dense_backward"} <= found  # those of the backward are seen too


def test_names_are_those_of_operators() -> None:
    assert [name for name in RAISING if not hasattr(torch.ops.aten, name)] == []
