"""Layers of the linear models in double precision, that their tests share."""

from typing import Any

import numpy as np
import torch
from model_cases import layer_of, model_of, shaken
from scipy.signal import cont2discrete
from torch import Tensor

LENGTHS = [1, 2, 5, 31, 100, 257]
NAMES = [
    "s4",
    "s4d-lin",
    "s4d-inv",
    "s4d-legs",
    "s4d-real",
    "dss-softmax",
    "dss-exp",
    "dss-exp-no-scale",
    "liquid-s4",
    "s5",
    "lru",
]
CONVOLVED = [name for name in NAMES if name not in ("s5", "lru")]


def double_block(name: str, **options: Any) -> Any:
    """A layer of 6 channels in double, every parameter shaken so that no start hides a fault."""
    model = model_of(name, **{"d_model": 6, "state": 8, "layers": 1, **options})
    return layer_of(shaken(model.double().eval(), seed=3))


def signal(length: int, width: int = 6) -> Tensor:
    source = torch.Generator().manual_seed(length)
    return torch.randn(2, length, width, generator=source, dtype=torch.float64)


def parameters(system: Any) -> dict[str, Any]:
    return {
        key: np.asarray(value.detach().numpy())
        if key in ("log_dt", "A_log", "A_imag")
        else torch.view_as_complex(value.detach()).numpy()
        for key, value in system.named_parameters()
    }


def full(system: Any, channel: int) -> tuple[Any, ...]:
    """The continuous system of one channel, both halves of each pair: dt, A, B, C, Lambda, P (0 in S4D)."""
    p = parameters(system)
    copy = channel % len(p["A_log"])
    half = -np.exp(p["A_log"][copy]) + 1j * p["A_imag"][copy]
    low = p["P"][copy] if "P" in p else np.zeros_like(half)
    halves = (half, low, p["B"][copy], p["C"][0, channel])
    poles, P, B, C = (np.concatenate([x, x.conj()]) for x in halves)
    A = np.diag(poles) - np.outer(P, P.conj())
    return np.exp(p["log_dt"][channel]), A, B, C, poles, P


def response(system: Any, channel: int, method: str, u: Any) -> Any:
    """What one channel answers to u (l,): a loop with the dense matrices that scipy makes of the system."""
    dt, A, B, C, *_ = full(system, channel)
    A_bar, B_bar, *_ = cont2discrete((A, B[:, None], C[None], 0), dt, method=method)
    h, y = np.zeros(len(A), complex), []
    for value in u:
        h = A_bar @ h + B_bar[:, 0] * value
        y.append((C @ h).real)
    return np.array(y)


def legs_matrix(states: int) -> Tensor:
    """HiPPO-LegS written out, entry by entry."""
    A = torch.zeros(states, states, dtype=torch.float64)
    for row in range(states):
        for column in range(row):
            A[row, column] = -((2 * row + 1) ** 0.5) * (2 * column + 1) ** 0.5
        A[row, row] = -(row + 1)
    return A
