"""Position-wise blocks that several families put after a sequence mixer: maps over the channels."""

from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional

from msbench.config import ClassifierConfig
from msbench.models.layers import ChannelDropout, build_gelu, start_layer
from msbench.ops.gate import apply_gate

Gate = Literal["full", "half-activated", "half", "linear", "none"]


class GluBlock(nn.Module):
    """A mixer, GELU, dropout, then a linear map and a gated linear unit that mix channels.

    `core` maps (b, l, d) to y of the same shape; `bias` is that of the linear maps. With g = gelu(y) and V, W
    linear, `gate` is ``full``: V g * sigmoid(W g); ``half-activated``: g * sigmoid(W g); ``half``:
    y * sigmoid(W g); ``linear``: W g; or ``none``: g alone (S5's names: full_glu, half_glu1, half_glu2, none
    for a linear map, gelu). `dropout` is after GELU, `early_dropout` before it.
    """

    def __init__(
        self,
        config: ClassifierConfig,
        core: nn.Module,
        *,
        bias: bool = True,
        gate: Gate = "full",
        dropout: float = 0.0,
        early_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.core: Any = core
        self.gate = gate
        self.gelu = build_gelu(config)
        self.early_dropout = ChannelDropout(early_dropout)
        self.dropout = ChannelDropout(dropout)
        d_model = config.d_model
        width = 2 * d_model if gate == "full" else d_model
        self.channels = None if gate == "none" else nn.Linear(d_model, width, bias=bias)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (none needed)
        """Map (b, l, d) to (b, l, d)."""
        return self._mix(self.core(inputs))

    def start(self, x: Tensor) -> Any:
        """See `msbench.models.layers.Recurrent`."""
        return start_layer(self.core, x)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """See `msbench.models.layers.Recurrent`."""
        y, state = self.core.step(x, state)
        return self._mix(y), state

    def _mix(self, y: Tensor) -> Tensor:
        y = self.early_dropout(y)
        active: Tensor = self.dropout(self.gelu(y))
        if self.channels is None:
            return active
        rows = self.channels(active)
        if self.gate == "full":
            return functional.glu(rows, dim=-1)
        if self.gate == "linear":
            linear: Tensor = rows
            return linear
        return apply_gate(y if self.gate == "half" else active, rows, "sigmoid")


class PositionwiseBlock(nn.Module):
    """A map of each position alone; subclasses define `transform`."""

    def transform(self, x: Tensor) -> Tensor:
        """Map x (..., d) to (..., d)."""
        raise NotImplementedError

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (each position alone)
        """Map (b, l, d) to (b, l, d)."""
        return self.transform(inputs)

    def start(self, x: Tensor) -> None:
        """See `msbench.models.layers.Recurrent`: positions are independent of each other."""

    def step(self, x: Tensor, state: None) -> tuple[Tensor, None]:
        """See `msbench.models.layers.Recurrent`."""
        return self.transform(x), state


class Mlp(PositionwiseBlock):
    """Two linear maps with GELU between; the hidden layer is `expand` times as wide."""

    def __init__(self, d_model: int, expand: float = 4) -> None:
        super().__init__()
        width = round(expand * d_model)
        self.up = nn.Linear(d_model, width)
        self.down = nn.Linear(width, d_model)

    def transform(self, x: Tensor) -> Tensor:
        """See `PositionwiseBlock`."""
        out: Tensor = self.down(functional.gelu(self.up(x)))
        return out
