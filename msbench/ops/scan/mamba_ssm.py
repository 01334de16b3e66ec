"""The scan of the mamba-ssm package, if installed: an alternative GPU kernel, used only on request.

Its kernel has one stream of channels with groups of B and C, the same number of states for all, and sums the
gradients of B and C in no fixed order: two identical runs differ in the last bits.
"""

import importlib
import importlib.util

import torch
from torch import Tensor

from msbench.errors import ConfigError
from msbench.ops.scan.reference import Arguments, apply_each

MODULE = "mamba_ssm.ops.selective_scan_interface"
MOST_STATES = 256


def find_missing(device: str) -> str:
    """Return the reason that it cannot be used on a device type, or an empty string."""
    if device != "cuda":
        return f"mamba-ssm does not run on {device}"
    if importlib.util.find_spec("mamba_ssm") is None:
        return "mamba-ssm is not installed"
    try:
        importlib.import_module(MODULE)
    except (ImportError, OSError) as error:  # a build for another torch: an undefined symbol
        return f"mamba-ssm cannot be imported: {error}"
    return ""


def scan(arguments: Arguments, *, scaled: bool) -> Tensor:
    """Compute `selective_scan` by mamba-ssm, in float32: streams are groups of its channels.

    Raises ConfigError for more than 256 states per stream, the kernel's limit.
    """
    u, dt, A, B, C, skip, mix = apply_each(Tensor.float, arguments)
    b, length, m, d = u.shape
    if A.shape[2] > MOST_STATES:
        raise ConfigError(f"mamba-ssm scans {MOST_STATES} states a stream at most, not {A.shape[2]}")
    # Its input is always multiplied by the step size.
    source = u if scaled else u / dt
    y = importlib.import_module(MODULE).selective_scan_fn(
        put_channels_first(source),
        put_channels_first(dt),
        A.flatten(0, 1),
        B.permute(0, 2, 3, 1).contiguous(),
        C.permute(0, 2, 3, 1).contiguous(),
    )
    streams: Tensor = y.view(b, m, d, length).permute(0, 3, 1, 2)
    if skip is not None:
        streams = streams + skip * u
    return streams if mix is None else torch.einsum("blm,blmd->bld", mix, streams)


def put_channels_first(x: Tensor) -> Tensor:
    """Rearrange x (b, l, m, d) to (b, m d, l)."""
    return x.permute(0, 2, 3, 1).flatten(1, 2).contiguous()
