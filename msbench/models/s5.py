"""S5 (Smith, Warrington and Linderman, "Simplified State Space Layers for Sequence Modeling", 2023).

==================  ==================  ======================================================
code                paper               meaning
==================  ==================  ======================================================
``n``               P / 2               complex states of the layer; `state` is P
``A_log, A_imag``   Lambda              poles -exp(A_log) + i A_imag
``B``, ``C``        B-tilde, C-tilde    input (n, d) and output (s, d, n) in the eigenbasis
``log_dt``          log Delta           step sizes, one per state
``blocks``          J                   HiPPO-LegS matrices on the diagonal of the initial A
==================  ==================  ======================================================

::

    zoh:       a = e^{dt A}                          B_bar = (a - 1) / A B
    bilinear:  a = (1 + dt/2 A) / (1 - dt/2 A)       B_bar = dt / (1 - dt/2 A) B
    h_t = a h_{t-1} + B_bar u_t                      y = 2 Re(C h) + D u

From the authors' code: one of each conjugate pair, the initial B (V* times a real matrix of variance 1/P) and
C (one of three), the gates, the groups of the optimiser (A, B and step sizes at `ssm_lr` without weight
decay; its other settings let B decay too). In that code real parts are free, or clipped at -1e-4; here they
are negative by construction.
"""

import torch
from torch import Tensor, nn

from msbench.config.linear import S5Config
from msbench.datasets.dataset import TaskInfo
from msbench.models import lti
from msbench.models.blocks import GluBlock
from msbench.models.classifier import Classifier, Layer, build_classifier
from msbench.models.family import Family, name_recurrence_kernel
from msbench.models.layers import draw_truncated_normal, require_full_precision
from msbench.models.mimo import DiscreteMimo, MimoSystem, count_states, start_dense


def draw_initial_output(config: S5Config, basis: Tensor) -> Tensor:
    """Return the initial C (s, d, n): drawn for all P states and mapped to the eigenbasis, or drawn there."""
    s, d, state = 1 + config.bidirectional, config.d_model, config.state
    if config.output_init == "complex-normal":
        return lti.draw_complex_normal(s, d, state // 2)
    # Flax takes the fan-in of a (d, P, 2) matrix as d P, but that of rows drawn one by one as P.
    variance = 1 / state if config.output_init == "truncated-normal" else 1 / (state * d)
    pairs = draw_truncated_normal(variance, s, d, state, 2)
    return torch.view_as_complex(pairs) @ basis


class S5System(MimoSystem):
    """S5's recurrence for a whole layer."""

    def __init__(self, config: S5Config) -> None:
        super().__init__(config.d_model)
        start = lti.compute_legs(config.state // config.blocks)
        poles = start.poles.repeat(config.blocks)
        basis = torch.kron(torch.eye(config.blocks), start.basis).to(torch.complex64)
        self.bilinear = config.discretisation == "bilinear"
        self.log_dt = nn.Parameter(lti.draw_log_uniform(config.dt_min, config.dt_max, config.state // 2))
        self.A_log = nn.Parameter((-poles.real).log().float())
        self.A_imag = nn.Parameter(poles.imag.float())
        inputs = draw_truncated_normal(1 / config.state, config.state, config.d_model)
        self.B = lti.to_pairs(basis.conj().mT @ inputs.to(basis.dtype))
        self.C = lti.to_pairs(draw_initial_output(config, basis))
        self.optimizer_groups = {**dict.fromkeys(("A_log", "A_imag", "B"), "ssm"), "D": "plain"}

    def discretise(self) -> DiscreteMimo:
        """See `MimoSystem`."""
        dt = require_full_precision(self.log_dt).double().exp()
        A = lti.compute_poles(self.A_log, self.A_imag)
        if self.bilinear:
            a, gain = (1 + dt * A / 2) / (1 - dt * A / 2), dt / (1 - dt * A / 2)
        else:
            a, gain = torch.exp(dt * A), (torch.exp(dt * A) - 1) / A
        dtype = torch.promote_types(self.log_dt.dtype, torch.complex64)
        B, C = gain.unsqueeze(-1) * lti.to_complex(self.B), 2 * lti.to_complex(self.C)
        return DiscreteMimo(a.to(dtype), B.to(dtype), C.to(dtype))


def build(config: S5Config, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per layer."""

    def build_block() -> Layer:
        return GluBlock(config, S5System(config), gate=config.gate, dropout=config.dropout_inside)

    return start_dense(build_classifier(config, info, build_block))


FAMILY = Family(build, count_states, name_kernel=name_recurrence_kernel)
