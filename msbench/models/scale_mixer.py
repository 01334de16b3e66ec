"""The scale mixer of MS-SSM (equation 4), which weights the streams.

The names are those of `msbench.models.ms_ssm`; ``r`` is the rank of a low-rank mixer.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.selective import MsSsmConfig
from msbench.ops.scan import mixed


class ScaleMixer(nn.Module):
    """E_t, the weights of the streams: linear in the input, the softmax of that, or constant (static).

    One weight per stream for all channels, or one per stream and channel; in that case the matrix may be of
    low rank. With ``mean`` every stream starts at exactly 1/m: weights 0 and bias 1/m (0 before a softmax).
    """

    def __init__(self, config: MsSsmConfig, width: int, source: int) -> None:
        """Build a mixer of streams of `width` channels, from an input of `source` channels."""
        super().__init__()
        streams = config.streams
        self.static, self.softmax = config.mixer == "static", config.mixer == "softmax"
        self.shape = (streams,) if config.mixer_channels == "shared" else (streams, width)
        self.down: nn.Parameter | None = None
        mean = 0.0 if self.softmax else 1 / streams
        start = mean if config.mixer_init == "mean" else None
        if self.static:
            self.weight = _parameter(self.shape, streams, start)
            self.bias: nn.Parameter | None = None
        else:
            if config.mixer_channels == "low-rank":
                rank = config.mixer_rank or math.ceil(config.d_model / 16)
                self.down = _parameter((rank, source), source, None)
                source = rank
            self.weight = _parameter((math.prod(self.shape), source), source, None if start is None else 0.0)
            self.bias = _parameter(self.shape, source, start) if config.mixer_bias else None
        # A constant mixer is a scale like a norm's weight: no weight decay.
        self.optimizer_groups = {"weight": "plain"} if self.static else {}

    def forward(self, x: Tensor) -> Tensor:
        """Map x (b, l, source) to weights (b, l, m); per channel (b, l, m, i), or (m, i) if static."""
        if self.static:
            return self.weight if self.weight.ndim == 2 else self.weight.expand(*x.shape[:2], -1)
        x = x if self.down is None else functional.linear(x, self.down)
        weights = functional.linear(x, self.weight, None if self.bias is None else self.bias.flatten())
        weights = weights.view(*x.shape[:2], *self.shape)
        return weights.softmax(2) if self.softmax else weights


def weighed(y: Tensor, E: Tensor) -> Tensor:
    """Return the sum of the streams of y (b, l, m, i), weighted by the E of `ScaleMixer`: (b, l, i)."""
    return (y * E.to(y.dtype)).sum(2) if E.ndim == 4 else mixed(y, E)


def _parameter(size: tuple[int, ...], fan_in: int, start: float | None) -> nn.Parameter:
    """Return a parameter filled with `start`, or uniform within fan_in^-1/2, as in torch's linear layer."""
    values = torch.empty(size).uniform_(-(fan_in**-0.5), fan_in**-0.5)
    return nn.Parameter(values if start is None else torch.full(size, start))
