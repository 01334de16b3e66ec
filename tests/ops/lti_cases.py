"""Problems for the time-invariant scan, and what is compared: the output and every gradient."""

import torch
from torch import Tensor


def arguments(
    b: int = 2, length: int = 7, m: int = 3, d: int = 4, n: int = 5, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """Rates from 1e-3 to 2."""
    generator = torch.Generator().manual_seed(b + length + m + d + n)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)

    rate = 10 ** (torch.rand((m, d, n), generator=generator, dtype=torch.float64) * 3.3 - 3)
    return [
        normal(b, length, m, d), -rate.to(dtype), normal(m, d, n), normal(m, d), normal(b, length, m)
    ]  # fmt: skip
