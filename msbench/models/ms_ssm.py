"""MS-SSM: a multi-scale decomposition, one selective SSM a stream, an input-dependent mixer.

===================  ==================  ==================================================================
code                 paper               meaning
===================  ==================  ==================================================================
``i``                                    inner width (the paper's derivation is for one channel)
``m``                S + 2               streams [x, d^1 .. d^S, a^S], fine to coarse
``n``                N                   states of a stream (of the largest, where they differ)
``k``                K                   taps of a filter
``filters``          phi^s, psi^s        low-pass and high-pass of level s (equations 2 and 3)
``streams``          x-hat_t             the decomposed signal
``x``                x_t                 "the raw input": the expanded input, before any filter
``dt``, ``A``        Delta^s_t, A^s      step sizes, decays; exp(dt A) is A-bar (equation 1)
``B``, ``C``         B^s_t, C^s_t        linear in x_t
``E``                E_t                 the mixer: one weight per step and stream (equation 4)
===================  ==================  ==================================================================

::

    streams = decompose(x)      (dt, B, C)_s = x_proj_s(x)      E = mixer(x)
    h^s_t = exp(dt A^s) h^s_{t-1} + dt B streams^s_t
    y^s = <C, h^s> + D^s streams^s      z = sum_s E_s y^s

Around it (``block``): ``mamba`` the gated block of `msbench.models.mamba` with its convolution replaced;
``glu`` no expansion, then GELU and a gated linear unit; ``vit`` no expansion, a linear map, and an MLP of
four times the width with its own norm and residual. ``glu`` and ``vit`` have i = d, whatever ``expand`` is.
"""

from torch import Tensor, nn
from torch.nn import functional

from msbench.data.dataset import TaskInfo
from msbench.models.classifier import Classifier, Layer, directions
from msbench.models.selective import inner_width, output_projection
from msbench.models.streams import Decomposition, Mixer, StreamScan, only_scanned, stream_count
from msbench.ops.scan import mixed
from msbench.specs.model import MsSsmConfig


class MultiScale(nn.Module):
    """Decompose, scan, mix: (b, l, i) -> (b, l, i)."""

    def __init__(self, config: MsSsmConfig, width: int) -> None:
        super().__init__()
        self.decomposition = Decomposition(config, width)
        self.mixer = Mixer(config, width)
        self.scan = StreamScan(config, width) if config.ssm == "s6" else None
        self.raw_input = config.ssm_input == "raw"
        self.from_streams = config.parameters_from == "stream"
        self.only_scanned = only_scanned(config)
        self.streams = stream_count(config)

    def forward(self, x: Tensor) -> Tensor:
        """x (b, l, i) -> z (b, l, i)."""
        E = self.mixer(x)
        if self.scan is not None and self.only_scanned:
            return self.scan.decomposed(x, self.decomposition, E)
        streams = self.decomposition(x)
        # Without an SSM the streams themselves are mixed (ablation row 3).
        if self.scan is None:
            return mixed(streams, E)
        scanned = x.unsqueeze(2).expand(-1, -1, self.streams, -1) if self.raw_input else streams
        z: Tensor = self.scan(scanned, streams if self.from_streams else x, E)
        return z


class GatedBlock(nn.Module):
    """out_proj(z silu(gate)): Mamba's block around `MultiScale`."""

    def __init__(self, config: MsSsmConfig) -> None:
        super().__init__()
        width = inner_width(config)
        self.in_proj = nn.Linear(config.d_model, 2 * width, bias=False)
        self.core = MultiScale(config, width)
        self.out_proj = output_projection(width, config.d_model, config.layers)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """(b, l, d) -> (b, l, d)."""
        x, gate = self.in_proj(inputs).chunk(2, dim=-1)
        out: Tensor = self.out_proj(self.core(x) * functional.silu(gate))
        return out


class GluBlock(nn.Module):
    """`MultiScale`, GELU, then a linear map and a gated linear unit that mix channels."""

    def __init__(self, config: MsSsmConfig) -> None:
        super().__init__()
        self.core = MultiScale(config, config.d_model)
        self.channels = nn.Linear(config.d_model, 2 * config.d_model, bias=False)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """(b, l, d) -> (b, l, d)."""
        return functional.glu(self.channels(functional.gelu(self.core(inputs))), dim=-1)


class PlainBlock(nn.Module):
    """`MultiScale` and a linear map: what stands in for attention in a vision transformer's layer."""

    def __init__(self, config: MsSsmConfig) -> None:
        super().__init__()
        self.core = MultiScale(config, config.d_model)
        self.out_proj = output_projection(config.d_model, config.d_model, config.layers)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """(b, l, d) -> (b, l, d)."""
        out: Tensor = self.out_proj(self.core(inputs))
        return out


class Mlp(nn.Module):
    """Two linear maps with GELU between, four times as wide inside."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, 4 * d_model)
        self.down = nn.Linear(4 * d_model, d_model)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (each position alone)
        """(b, l, d) -> (b, l, d)."""
        out: Tensor = self.down(functional.gelu(self.up(inputs)))
        return out


BLOCKS: dict[str, type[GatedBlock] | type[GluBlock] | type[PlainBlock]] = {
    "mamba": GatedBlock,
    "glu": GluBlock,
    "vit": PlainBlock,
}


def build(config: MsSsmConfig, info: TaskInfo) -> Classifier:
    """The classifier: one block a layer; with ``vit`` an MLP behind it."""

    def layer() -> list[Layer]:
        block = directions(lambda: BLOCKS[config.block](config), bidirectional=config.bidirectional)
        return [block, Mlp(config.d_model)] if config.block == "vit" else [block]

    return Classifier(config, info, [layer() for _ in range(config.layers)])
