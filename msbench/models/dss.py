"""DSS (Gupta, Gu and Berant, "Diagonal State Spaces are as Effective as Structured State Spaces", 2022).

==================  ==================  ======================================================
code                paper               meaning
==================  ==================  ======================================================
``d``, ``n``        H, N                channels; complex states. Our `state` is 2 N
``L``               L                   `horizon`: steps over which softmax normalises
``poles``           Lambda              one spectrum for all channels
``log_dt``          log Delta           step sizes (d, 2): of real and of imaginary parts, or (d, 1)
``W``               w                   weights, complex
==================  ==================  ======================================================

::

    P_{n,t} = Lambda_n t dt
    softmax        K = Re (W / Lambda) row-softmax(P),  over t = 0 .. L-1
    exp            K = Re (W / Lambda) (e^{Lambda dt} - 1) exp(P),   Lambda = -exp(.) + i (.)
    exp-no-scale   K = Re W exp(P)

Known from the paper: the first two (proposition 1); a softmax that divides by its sum S as conj(S) / (|S|^2 +
1e-7), because a complex sum may be 0. Known from the authors' code: ``exp-no-scale``, two step sizes per
channel, the initial Lambda (-1/2 + i w, the positive half of LegS of 2 N states), weights of variance 1 in
each part, one learning rate of 1e-3 and no weight decay for all of these parameters.

In that code the softmax runs over the padded length of the batch, so that padding changes a prediction; here
L is a constant of the model, and the kernel exists for any length. Under softmax real parts may become
positive, as in the source: weights are then relative to the end of the horizon. In that case sequences much
longer than the horizon are unstable, and so are modes that grow by more than e^700 over it, beyond double
precision. The source treats the largest exponent as a constant, so that gradients of such modes differ; no
mode grows at the start. Its blocks have no gate: ``gate: none``.
"""

import torch
from torch import Tensor, nn

from msbench.config.linear import DssConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models import lti
from msbench.models.blocks import Gate
from msbench.models.classifier import Classifier
from msbench.models.family import Family
from msbench.models.layers import require_full_precision

EPSILON = 1e-7


class DssSystem(lti.DiagonalSystem):
    """DSS's system for every channel, see `msbench.models.lti.LtiSystem`."""

    def __init__(self, config: DssConfig, horizon: int) -> None:
        super().__init__()
        poles, size = (
            lti.compute_legs(config.state).poles,
            (1 + config.bidirectional, config.d_model, config.state // 2),
        )
        self.version, self.horizon = config.version, horizon
        steps = lti.draw_log_uniform(config.dt_min, config.dt_max, config.d_model, 1)
        self.log_dt = nn.Parameter(steps.repeat(1, 2 if config.separate_steps else 1))
        self.A: nn.Parameter | None = None
        self.A_log: nn.Parameter | None = None
        self.A_imag: nn.Parameter | None = None
        if config.version == "softmax":
            self.A = lti.to_pairs(poles)
        else:
            self.A_log = nn.Parameter((-poles.real).log().float())
            self.A_imag = nn.Parameter(poles.imag.float().contiguous())
        self.W = nn.Parameter(torch.randn(*size, 2))
        self.optimizer_groups = dict.fromkeys(("A", "A_log", "A_imag", "W"), "ssm")

    def compute_poles(self) -> Tensor:
        """Lambda (n,), complex128."""
        if self.A is not None:
            return lti.to_complex(self.A)
        assert self.A_log is not None
        assert self.A_imag is not None
        return lti.compute_poles(self.A_log, self.A_imag)

    def compute_modes(self) -> tuple[Tensor, Tensor]:
        """See `DiagonalSystem`."""
        dt, poles, W = (
            require_full_precision(self.log_dt).double().exp(),
            self.compute_poles(),
            lti.to_complex(self.W),
        )
        r = torch.complex(dt[:, :1] * poles.real, dt[:, -1:] * poles.imag)
        if self.version == "exp":
            return r, W * (torch.exp(r) - 1) / poles
        return r, W * compute_softmax_scale(r, self.horizon) / poles if self.version == "softmax" else W


def compute_softmax_scale(r: Tensor, horizon: int) -> Tensor:
    """Return the factor that turns e^{r t} into the softmax of r t over t = 0 .. horizon - 1.

    The largest exponent is subtracted before summing: that of t = 0, or that of the end if the mode grows.
    """
    grows = r.real > 0
    falling = torch.where(grows, -r, r)
    total = (torch.exp(falling * horizon) - 1) / (torch.exp(falling) - 1)
    share = total.conj() / (total.abs().square() + EPSILON)
    return share * torch.exp(torch.where(grows, r, 0) * (1 - horizon))


def build(config: DssConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per layer, as S4D's."""
    horizon = config.horizon or info.longest
    gate: Gate = "full" if config.gate == "full" else "linear"
    return lti.build_convolved(config, info, lambda: DssSystem(config, horizon), gate=gate)


FAMILY = Family(build, lti.count_states, cost="l log l")
