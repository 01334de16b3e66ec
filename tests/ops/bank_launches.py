"""The filter bank's kernels with the shapes of the suites, to compile them for GPUs that are not there."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from msbench.ops.gpu import bank
from msbench.ops.gpu.launch import load_kernels


class DescribedLaunch(NamedTuple):
    """A kernel's name, its function in the module of kernels, types of its arguments, and its constants."""

    name: str
    function: str
    signature: dict[str, str]
    constants: dict[str, Any]


class BankSizes(NamedTuple):
    """Sizes of a bank. `silu`: of a convolution with SiLU; `signal`: the type of the input."""

    name: str
    levels: int
    sides: int
    k: int
    d: int
    silu: bool = False
    signal: str = "fp32"


SUITES = (
    BankSizes("msssm listops", 3, 2, 4, 128),
    BankSizes("msssm image", 3, 2, 4, 1024),
    BankSizes("msssm scifar", 3, 2, 2, 512),
    BankSizes("msssm listops bf16", 3, 2, 4, 128, signal="bf16"),
    BankSizes("odd channels", 3, 2, 4, 99),
    BankSizes("convolution listops", 1, 1, 4, 128),
    BankSizes("convolution listops silu", 1, 1, 4, 128, silu=True),
    BankSizes("convolution listops silu bf16", 1, 1, 4, 128, silu=True, signal="bf16"),
)


def describe_launches(banks: Sequence[BankSizes] = SUITES) -> list[DescribedLaunch]:
    """Return the forward and the backward of each bank, of its first group of levels; one warp each."""
    found = []
    for sizes in banks:
        taps = torch.empty(sizes.levels, sizes.sides, sizes.k, sizes.d, device="meta")
        first, stop = bank.group_levels(sizes.levels, sizes.k)[0]
        for forward in (True, False):
            shape = bank.make_shape(taps, first, stop, biased=True, silu=sizes.silu, forward=forward)
            function = f"bank_{'forward' if forward else 'backward'}"
            module = load_kernels(bank.KERNELS)
            tensors = module.FORWARD_TENSORS if forward else module.BACKWARD_TENSORS
            types = dict.fromkeys(tensors, f"*{sizes.signal}") | {"parts": "*fp32"}
            types |= {"dilation": "constexpr", "B": "constexpr"}
            names = getattr(module, function).arg_names
            signature = {name: types.get(name, "i32") for name in names}
            found.append(
                DescribedLaunch(f"{sizes.name} {function}", function, signature, {"dilation": 1, "B": shape})
            )
    return found
