"""Mamba's block (Gu and Dao 2023), the baseline that MS-SSM builds on.

==============  ==================  =========================================================
code            paper               meaning
==============  ==================  =========================================================
``d``           D                   width of the model
``i``           E D                 inner width
``n``           N                   states per channel
``r``           R                   rank of the step sizes
``x``, ``z``    x, z                expanded input, gate
``dt``          Delta_t             step sizes, input-dependent (S6)
``A``           A                   diagonal, real, negative; exp(dt A) is A-bar (equation 1)
``B``, ``C``    B_t, C_t            input-dependent; dt B is B-bar (Euler)
``D``           D                   skip
==============  ==================  =========================================================

::

    (x, z) = in_proj(input)        x = silu(conv(x))        (dt, B, C) = x_proj(x)
    h_t = exp(dt A) h_{t-1} + dt B x_t     y = <C, h> + D x     output = out_proj(y silu(z))
"""

import torch
from torch import Tensor, nn

from msbench.config.selective import MambaConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models import selective
from msbench.models.classifier import Classifier, build_classifier
from msbench.models.family import Family, name_scan_kernel
from msbench.models.layers import compute_decays
from msbench.ops.gate import apply_gate
from msbench.ops.scan.fused import low_rank_scan

State = tuple[Tensor, Tensor]
"""State of a block: the convolution's last inputs (b, k - 1, i), and the scan's states (b, 1, i, n)."""


class MambaBlock(nn.Module):
    """One gated block, without norm and residual."""

    def __init__(self, config: MambaConfig) -> None:
        super().__init__()
        width, rank = selective.compute_inner_width(config), selective.compute_dt_rank(config)
        self.sizes = [rank, config.state, config.state]
        self.in_proj = nn.Linear(config.d_model, 2 * width, bias=False)
        self.conv = selective.ShortConv(width, config.kernel, bias=config.conv_bias, activated=True)
        self.x_proj = nn.Linear(width, sum(self.sizes), bias=False)
        self.dt = selective.StepSizes(config, 1, width)
        self.A_log = nn.Parameter(selective.initialise_decays([config.state], width))
        self.D = nn.Parameter(torch.ones(1, width)) if config.skip else None
        self.out_proj = selective.build_output_projection(width, config.d_model, config.layers)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """Map (b, l, d) to (b, l, d)."""
        x, z = self.in_proj(inputs).chunk(2, dim=-1)
        x = self.conv(x)
        low, B, C = self.x_proj(x).unsqueeze(2).split(self.sizes, dim=-1)
        A = compute_decays(self.A_log).unsqueeze(0)
        y = low_rank_scan(x.unsqueeze(2), low, *self.dt.get_affine(), A, B, C, self.D).squeeze(2)
        out: Tensor = self.out_proj(apply_gate(y, z))
        return out

    def start(self, x: Tensor) -> State:
        """See `msbench.models.layers.Recurrent`."""
        inner = x.new_zeros(x.shape[0], self.A_log.shape[0])
        return self.conv.start(inner), selective.start_scan(inner.unsqueeze(1), self.A_log.shape[1])

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """See `msbench.models.layers.Recurrent`."""
        window, h = state
        x, z = self.in_proj(x).chunk(2, dim=-1)
        x, window = self.conv.step(x, window)
        low, B, C = self.x_proj(x).unsqueeze(1).split(self.sizes, dim=-1)
        A = compute_decays(self.A_log).unsqueeze(0)
        y, h = selective.step_scan(x.unsqueeze(1), self.dt.step(low), A, B, C, self.D, state=h)
        return self.out_proj(apply_gate(y.squeeze(1), z)), (window, h)


def build(config: MambaConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per layer."""
    config = config.multiplied()
    return build_classifier(config, info, lambda: MambaBlock(config), bidirectional=config.bidirectional)


def count_states(config: MambaConfig) -> int:
    """See `Family`."""
    return config.multiplied().state * (1 + config.bidirectional)


def count_scanned(config: MambaConfig) -> int:
    """See `Family`."""
    return count_states(config) // (1 + config.bidirectional)


FAMILY = Family(build, count_states, name_kernel=name_scan_kernel, count_scanned=count_scanned)
