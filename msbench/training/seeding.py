"""Seeds of all generators of a run, derived from one seed; each purpose has its own stream.

Data order does not depend on how many numbers initialisation drew, so two models with one seed see the same
batches in the same order (a paired design).
"""

import hashlib
import random
from typing import Any

import numpy as np
import torch


def derive_seed(seed: int, purpose: str) -> int:
    """Return a 63-bit seed for one purpose of a run."""
    digest = hashlib.sha256(f"{seed}:{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def seed_everything(seed: int) -> None:
    """Seed torch's (CPU and CUDA), numpy's and Python's global generators for the training of one run."""
    torch.manual_seed(derive_seed(seed, "torch"))
    np.random.seed(derive_seed(seed, "numpy") % 2**32)
    random.seed(derive_seed(seed, "python"))


def get_generator_states() -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return states of all global generators: torch's as byte tensors, the others as plain JSON values."""
    tensors = {"rng/torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        for index, state in enumerate(torch.cuda.get_rng_state_all()):
            tensors[f"rng/cuda{index}"] = state
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    version, words, gauss = random.getstate()
    plain = {
        "numpy": [str(name), [int(key) for key in keys], position, has_gauss, cached],
        "python": [version, list(words), gauss],
    }
    return tensors, plain


def restore_generators(tensors: dict[str, torch.Tensor], plain: dict[str, Any]) -> None:
    """Restore the states from `generator_states`; those of missing devices are left out."""
    torch.set_rng_state(tensors["rng/torch"].cpu())
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            if (state := tensors.get(f"rng/cuda{index}")) is not None:
                torch.cuda.set_rng_state(state.cpu(), index)
    name, keys, position, has_gauss, cached = plain["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    version, words, gauss = plain["python"]
    random.setstate((version, tuple(words), gauss))


def get_torch_states(device: torch.device) -> list[torch.Tensor]:
    """Return the states of torch's generators that a step on this device draws from."""
    more = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *more]


def restore_torch_states(states: list[torch.Tensor], device: torch.device) -> None:
    """Restore the states from `torch_generator_states`."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)
