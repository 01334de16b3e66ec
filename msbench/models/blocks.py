"""What stands behind a sequence mixer in several families: maps over the channels of each position."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from msbench.models.layers import ChannelDropout
from msbench.models.stepping import begin


class GluBlock(nn.Module):
    """A mixer, GELU, dropout, then a linear map and a gated linear unit that mix channels.

    `core` maps (b, l, d) to the same; `bias` is the linear map's.
    """

    def __init__(self, core: nn.Module, d_model: int, *, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.core: Any = core
        self.dropout = ChannelDropout(dropout)
        self.channels = nn.Linear(d_model, 2 * d_model, bias=bias)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """(b, l, d) -> (b, l, d)."""
        return self._mix(self.core(inputs))

    def start(self, x: Tensor) -> Any:
        """See `msbench.models.stepping.Recurrent`."""
        return begin(self.core, x)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """See `msbench.models.stepping.Recurrent`."""
        y, state = self.core.step(x, state)
        return self._mix(y), state

    def _mix(self, y: Tensor) -> Tensor:
        return functional.glu(self.channels(self.dropout(functional.gelu(y))), dim=-1)


class Mlp(nn.Module):
    """Two linear maps with GELU between, `expand` times as wide inside."""

    def __init__(self, d_model: int, expand: float = 4) -> None:
        super().__init__()
        width = round(expand * d_model)
        self.up = nn.Linear(d_model, width)
        self.down = nn.Linear(width, d_model)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (each position alone)
        """(b, l, d) -> (b, l, d)."""
        out: Tensor = self.down(functional.gelu(self.up(inputs)))
        return out

    def start(self, x: Tensor) -> None:
        """See `msbench.models.stepping.Recurrent`: positions know nothing of each other."""

    def step(self, x: Tensor, state: None) -> tuple[Tensor, None]:
        """See `msbench.models.stepping.Recurrent`."""
        return self.down(functional.gelu(self.up(x))), state
