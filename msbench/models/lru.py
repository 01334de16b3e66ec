"""LRU (Orvieto et al., "Resurrecting Recurrent Neural Networks for Long Sequences", 2023).

==================  ==================  ======================================================
code                paper               meaning
==================  ==================  ======================================================
``n``               N                   complex states of the layer; `state` is 2 N
``nu_log``          nu^log              decay: |lambda| = exp(-exp(nu_log)), below 1 by its form
``theta_log``       theta^log           phase of lambda, exp(theta_log)
``gamma_log``       gamma^log           input scale, starts at sqrt(1 - |lambda|^2)
``B``, ``C``        B, C                input (n, d) and output (s, d, n)
==================  ==================  ======================================================

::

    h_t = lambda h_{t-1} + exp(gamma_log) B u_t          y = Re(C h) + D u

|lambda|^2 starts uniform between r_min^2 and r_max^2, phases uniform up to max_phase; B has variance 1 / 2d
and C 1 / n in each part. The block is that of the minimal-LRU code: GELU and a full GLU. That code has one
direction; the second follows S5, and so does the optimiser group of B (that code's own groups are unknown).
"""

import torch
from torch import nn

from msbench.config.linear import LruConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.blocks import GluBlock
from msbench.models.classifier import Classifier, Layer, build_classifier
from msbench.models.family import Family, name_recurrence_kernel
from msbench.models.layers import require_full_precision
from msbench.models.lti import to_complex
from msbench.models.mimo import DiscreteMimo, MimoSystem, count_states, start_dense

EDGE = 1e-6
"""Distance that uniform numbers keep from 0 and 1, where logarithms would not be finite."""


class LruSystem(MimoSystem):
    """The LRU's recurrence for a whole layer."""

    def __init__(self, config: LruConfig) -> None:
        super().__init__(config.d_model)
        n, d = config.state // 2, config.d_model
        share = torch.rand(n).clamp(EDGE, 1 - EDGE).double()
        square = config.r_min**2 + share * (config.r_max**2 - config.r_min**2)
        self.nu_log = nn.Parameter((-0.5 * square.log()).log().float())
        self.theta_log = nn.Parameter((config.max_phase * torch.rand(n).clamp(min=EDGE)).log())
        self.gamma_log = nn.Parameter((0.5 * (-torch.expm1(square.log())).log()).float())
        self.B = nn.Parameter(torch.randn(n, d, 2) / (2 * d) ** 0.5)
        self.C = nn.Parameter(torch.randn(1 + config.bidirectional, d, n, 2) / n**0.5)
        own = ("nu_log", "theta_log", "gamma_log", "B")
        self.optimizer_groups = {**dict.fromkeys(own, "ssm"), "D": "plain"}

    def discretise(self) -> DiscreteMimo:
        """See `MimoSystem`."""
        rate, phase = (require_full_precision(x).double().exp() for x in (self.nu_log, self.theta_log))
        a, scale = torch.exp(torch.complex(-rate, phase)), self.gamma_log.double().exp()
        dtype = torch.promote_types(self.nu_log.dtype, torch.complex64)
        B = scale.unsqueeze(-1) * to_complex(self.B)
        return DiscreteMimo(a.to(dtype), B.to(dtype), to_complex(self.C).to(dtype))


def build(config: LruConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per layer."""

    def build_block() -> Layer:
        return GluBlock(config, LruSystem(config), dropout=config.dropout_inside)

    return start_dense(build_classifier(config, info, build_block))


FAMILY = Family(build, count_states, name_kernel=name_recurrence_kernel)
