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
from msbench.models.blocks import GluBlock, Mlp
from msbench.models.classifier import Classifier, Layer, directions
from msbench.models.family import Family
from msbench.models.selective import inner_width, output_projection, scan_activations
from msbench.models.streams import (
    Decomposition,
    Mixer,
    StreamScan,
    only_scanned,
    stream_count,
    stream_states,
)
from msbench.ops import kernel_name, makes_inputs
from msbench.ops.scan import mixed
from msbench.specs.selective import MsSsmConfig


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


def block(config: MsSsmConfig) -> Layer:
    """One block over one direction."""
    if config.block == "glu":
        return GluBlock(MultiScale(config, config.d_model), config.d_model, bias=False)
    return GatedBlock(config) if config.block == "mamba" else PlainBlock(config)


def build(config: MsSsmConfig, info: TaskInfo) -> Classifier:
    """The classifier: one block a layer; with ``vit`` an MLP behind it."""

    def layer() -> list[Layer]:
        first = directions(lambda: block(config), bidirectional=config.bidirectional)
        return [first, Mlp(config.d_model)] if config.block == "vit" else [first]

    return Classifier(config, info, [layer() for _ in range(config.layers)])


def states(config: MsSsmConfig) -> int:
    """See `Family`."""
    own = sum(stream_states(config)) if config.ssm == "s6" else 0
    return own * (1 + config.bidirectional)


def activations(config: MsSsmConfig, device: str) -> float:
    """See `Family`; streams that something else reads too are kept, and so are their gradients."""
    streams = stream_count(config)
    outside = 2 * streams if makes_inputs(device) and not only_scanned(config) else 0
    return scan_activations(config, device, streams, states(config), outside)


def scanned(config: MsSsmConfig) -> int:
    """See `Family`."""
    return max(stream_states(config)) if config.ssm == "s6" else 0


FAMILY = Family(build, states, activations, kernel=kernel_name, scanned=scanned)
