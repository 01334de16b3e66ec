"""MS-SSM: a multi-scale decomposition, one SSM per stream, an input-dependent mixer.

===================  ==================  ==================================================================
code                 paper               meaning
===================  ==================  ==================================================================
``i``                                    inner width (the paper's derivation is for one channel)
``m``                S + 2               streams [x, d^1 .. d^S, a^S], fine to coarse
``n``                N                   states of a stream (of the largest, if they differ)
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

The decomposition and the mixer are in `msbench.models.streams`, the SSMs in `msbench.models.stream_ssms`.

The block around it (``block``) is ``mamba``: the gated block of `msbench.models.mamba` with its convolution
replaced; ``glu``: no expansion, then GELU and a gated linear unit; ``vit``: no expansion, a linear map, and
an MLP of four times the width with its own norm and residual. ``glu`` and ``vit`` have i = d, regardless of
``expand``.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from msbench.config.selective import MsSsmConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.blocks import GluBlock, Mlp
from msbench.models.classifier import Classifier, Layer, build_classifier
from msbench.models.family import Family, name_recurrence_kernel, name_scan_kernel
from msbench.models.selective import (
    ShortConv,
    build_output_projection,
    compute_inner_width,
)
from msbench.models.stream_ssms import ComplexSsms, ConstantSsms, SelectiveSsms, StreamSsms
from msbench.models.streams import Decomposition, ScaleMixer, is_only_scanned, mix_streams, split_states
from msbench.ops.gate import apply_gate


class MultiScale(nn.Module):
    """Decompose, scan, mix: (b, l, i) -> (b, l, i).

    `source` is the width of the raw input if that is not x: d with ``raw_input: token``.
    """

    def __init__(self, config: MsSsmConfig, width: int, source: int | None = None) -> None:
        super().__init__()
        self.decomposition = Decomposition(config, width)
        self.mixer = ScaleMixer(config, width, source or width)
        self.scan = build_ssms(config, width, source or width)
        self.raw_input = config.ssm_input == "raw"
        self.summed = config.raw_input == "sum"
        self.from_streams = config.parameters_from == "stream"
        self.only_scanned = is_only_scanned(config)

    def forward(self, x: Tensor, token: Tensor | None = None) -> Tensor:
        """Map x (b, l, i), and the raw input (b, l, source) if that is not x, to z (b, l, i)."""
        source = x if token is None else token
        if self.only_scanned and isinstance(self.scan, SelectiveSsms):
            return self.scan.scan_decomposed(x, source, self.decomposition, self.mixer(source))
        streams: Tensor = self.decomposition(x)
        source = functional.silu(streams.sum(2)) if self.summed else source
        E = self.mixer(source)
        # Without an SSM the streams themselves are mixed (ablation row 3).
        if self.scan is None:
            return mix_streams(streams, E)
        count_scanned = x.unsqueeze(2).expand_as(streams) if self.raw_input else streams
        z: Tensor = self.scan(count_scanned, streams if self.from_streams else source, E)
        return z

    def start(self, x: Tensor) -> Any:
        """See `msbench.models.layers.Recurrent`."""
        return self.decomposition.start(x), None if self.scan is None else self.scan.start(x)

    def step(self, x: Tensor, state: Any, token: Tensor | None = None) -> tuple[Tensor, Any]:
        """See `msbench.models.layers.Recurrent`."""
        past, h = state
        source = x if token is None else token
        streams, past = self.decomposition.step(x, past)
        source = functional.silu(streams.sum(1)) if self.summed else source
        y = streams
        if self.scan is not None:
            count_scanned = x.unsqueeze(1).expand_as(streams) if self.raw_input else streams
            y, h = self.scan.step(count_scanned, streams if self.from_streams else source, h)
        z = mix_streams(y.unsqueeze(1), self.mixer(source.unsqueeze(1))).squeeze(1)
        return z.to(x.dtype), (past, h)


def build_ssms(config: MsSsmConfig, width: int, source: int) -> StreamSsms | None:
    """Return the SSMs of the streams, or None if the streams themselves are mixed."""
    if config.ssm == "none":
        return None
    if config.ssm == "s6":
        return SelectiveSsms(config, width, width if config.parameters_from == "stream" else source)
    return ComplexSsms(config, width) if config.paired else ConstantSsms(config, width)


class GatedBlock(nn.Module):
    """out_proj(z silu(gate)): Mamba's block around `MultiScale`."""

    def __init__(self, config: MsSsmConfig) -> None:
        super().__init__()
        width = compute_inner_width(config)
        self.token = config.raw_input == "token"
        self.conv = ShortConv(width, config.kernel, bias=True, activated=True) if config.input_conv else None
        self.in_proj = nn.Linear(config.d_model, 2 * width, bias=False)
        self.core = MultiScale(config, width, config.d_model if self.token else None)
        self.out_proj = build_output_projection(width, config.d_model, config.layers)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """Map (b, l, d) to (b, l, d)."""
        x, gate = self.in_proj(inputs).chunk(2, dim=-1)
        x = x if self.conv is None else self.conv(x)
        z = self.core(x, inputs if self.token else None)
        out: Tensor = self.out_proj(apply_gate(z, gate))
        return out

    def start(self, x: Tensor) -> Any:
        """See `msbench.models.layers.Recurrent`: states of the convolution, if any, and of the core."""
        window = self.conv.start(x.new_zeros(len(x), len(self.conv.weight))) if self.conv else None
        return window, self.core.start(x)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """See `msbench.models.layers.Recurrent`."""
        window, past = state
        expanded, gate = self.in_proj(x).chunk(2, dim=-1)
        if self.conv is not None:
            expanded, window = self.conv.step(expanded, window)
        z, past = self.core.step(expanded, past, x if self.token else None)
        return self.out_proj(apply_gate(z, gate)), (window, past)


class PlainBlock(nn.Module):
    """`MultiScale` and a linear map, in place of attention in a vision transformer's layer."""

    def __init__(self, config: MsSsmConfig) -> None:
        super().__init__()
        self.core = MultiScale(config, config.d_model)
        self.out_proj = build_output_projection(config.d_model, config.d_model, config.layers)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """Map (b, l, d) to (b, l, d)."""
        out: Tensor = self.out_proj(self.core(inputs))
        return out

    def start(self, x: Tensor) -> Any:
        """See `msbench.models.layers.Recurrent`."""
        return self.core.start(x)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """See `msbench.models.layers.Recurrent`."""
        z, state = self.core.step(x, state)
        return self.out_proj(z), state


def build_block(config: MsSsmConfig) -> Layer:
    """Return one block over one direction."""
    if config.block == "glu":
        return GluBlock(config, MultiScale(config, config.d_model), bias=False)
    return GatedBlock(config) if config.block == "mamba" else PlainBlock(config)


def build(config: MsSsmConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per layer, with ``vit`` followed by an MLP."""
    blocks = [lambda: build_block(config)]
    if config.block == "vit":
        blocks.append(lambda: Mlp(config.d_model))
    return build_classifier(config, info, *blocks, bidirectional=config.bidirectional)


def count_states(config: MsSsmConfig) -> int:
    """See `Family`."""
    own = sum(split_states(config)) if config.ssm != "none" else 0
    return own * (1 + config.bidirectional)


def count_scanned(config: MsSsmConfig) -> int:
    """See `Family`."""
    return max(split_states(config)) if config.ssm == "s6" else 0


def name_kernel(config: MsSsmConfig, device: str) -> str:
    """See `Family`."""
    if config.ssm == "none" or config.paired:
        return "torch"
    return name_scan_kernel(config, device) if config.ssm == "s6" else name_recurrence_kernel(config, device)


FAMILY = Family(build, count_states, name_kernel=name_kernel, count_scanned=count_scanned)
