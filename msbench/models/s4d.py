"""S4D (Gu, Gupta, Goel and Re, "On the Parameterization and Initialization of Diagonal State Space Models").

==================  ==================  ======================================================
code                paper               meaning
==================  ==================  ======================================================
``d``, ``n``        H, N / 2            channels; complex states of a channel (``real``: n = N)
``A_log, A_imag``   A                   poles -exp(A_log) + i A_imag
``B``, ``C``        B, C                input (starts as 1, or as HiPPO's) and output
``log_dt``          log Delta           step sizes, one per channel
==================  ==================  ======================================================

::

    zoh:       A_bar = e^{dt A}                       B_bar = (A_bar - 1) / A B
    bilinear:  A_bar = (1 + dt/2 A) / (1 - dt/2 A)    B_bar = dt / (1 - dt/2 A) B
    K_t = 2 Re sum_n C B_bar A_bar^t

Initial poles, n = 0, 1, ..:  ``lin`` -1/2 + i pi n;  ``inv`` -1/2 + i N/pi (N / (2n+1) - 1);  ``legs`` those
of the normal part of HiPPO-LegS;  ``real`` -(n+1), with real B and C. As in S4's code the factor 2 is kept
there, C is the real part of complex numbers of variance 1, B is learned (the minimal file keeps it 1), and
HiPPO's B is clipped at 2 (see `msbench.models.lti.clip_input`). Dropout inside the block is as in the minimal
file, after GELU.
"""

import math

import torch
from torch import Tensor, nn

from msbench.config.linear import S4dConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models import lti
from msbench.models.classifier import Classifier
from msbench.models.family import Family
from msbench.models.layers import require_full_precision


def compute_initial_system(config: S4dConfig) -> tuple[Tensor, Tensor]:
    """Return the initial poles and B (n,), complex128."""
    spectrum, state = config.spectrum, config.state
    n = torch.arange(state if spectrum == "real" else state // 2, dtype=torch.float64)
    if spectrum == "legs":
        start = lti.compute_legs(state)
        return start.poles, lti.clip_input(start.b, config.b_clip)
    if spectrum == "real":
        poles = torch.complex(-(n + 1), torch.zeros_like(n))
    else:
        w = math.pi * n if spectrum == "lin" else state / math.pi * (state / (2 * n + 1) - 1)
        poles = torch.complex(torch.full_like(n, -0.5), w)
    return poles, torch.ones_like(poles)


class S4dSystem(lti.DiagonalSystem):
    """S4D's system for every channel, see `msbench.models.lti.LtiSystem`.

    Decay rates start `offset`, a number or one per copy (copies, 1), above those of the spectrum.
    """

    def __init__(self, config: S4dConfig, offset: Tensor | float = 0.0) -> None:
        super().__init__()
        d, copies = config.d_model, config.copies or config.d_model
        poles, b = (x.expand(copies, -1) for x in compute_initial_system(config))
        self.repeats, self.bilinear = d // copies, config.discretisation == "bilinear"
        self.real = config.spectrum == "real"
        self.log_dt = nn.Parameter(lti.draw_log_uniform(config.dt_min, config.dt_max, d))
        self.A_log = nn.Parameter((offset - poles.real).log().float())
        self.A_imag = None if self.real else nn.Parameter(poles.imag.float().contiguous())
        size = (1 + config.bidirectional, d, poles.shape[-1])
        if self.real:
            self.B = nn.Parameter(b.real.float().contiguous())
            self.C = nn.Parameter(torch.randn(size) * 0.5**0.5)
        else:
            self.B, self.C = lti.to_pairs(b), lti.to_pairs(lti.draw_complex_normal(*size))
        self.optimizer_groups = dict.fromkeys(("A_log", "A_imag", "B"), "ssm")

    def compute_modes(self) -> tuple[Tensor, Tensor]:
        """See `DiagonalSystem`."""
        dt = require_full_precision(self.log_dt).double().exp().unsqueeze(-1)
        A = lti.compute_poles(
            self.A_log, torch.zeros_like(self.A_log) if self.A_imag is None else self.A_imag
        )
        B, C = (
            require_full_precision(x).double() if self.real else lti.to_complex(x) for x in (self.B, self.C)
        )
        A, B = A.repeat(self.repeats, 1), B.repeat(self.repeats, 1)
        w = 2 * C * B
        if self.bilinear:
            left = 1 - dt * A / 2
            return torch.log((1 + dt * A / 2) / left), w * dt / left
        return dt * A, w * (torch.exp(dt * A) - 1) / A


def build(config: S4dConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per layer, as S4's."""
    return lti.build_convolved(config, info, lambda: S4dSystem(config))


FAMILY = Family(build, lti.count_states, cost="l log l")
