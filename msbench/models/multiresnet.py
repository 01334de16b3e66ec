"""MultiResNet (Shi, Wang and Fox 2023): the weighted sum of all scales of one learned wavelet.

===================  ==================  ==================================================================
code                 paper               meaning
===================  ==================  ==================================================================
``depth``            J                   scales; enough to span the longest sequence
``k``                K                   taps of a filter
``filters``          h0, h1              low-pass and high-pass of a channel, the same at every scale
``a^s``, ``d^s``     a, b                approximation and detail of scale s; a^0 is the input x
``mixing``           w                   a weight for each channel and stream [x, d^1 .. d^depth, a^depth]
===================  ==================  ==================================================================

::

    a^s[t] = sum_j h0[j] a^{s-1}[t - 2^{s-1} j]      d^s[t] = sum_j h1[j] a^{s-1}[t - 2^{s-1} j]
    y = w_x x + sum_s w_s d^s + w_a a^depth          output = glu(linear(dropout(gelu(y))))

This is MS-SSM without its SSMs, with one pair of filters for all levels and weights that do not depend on
the input. Everything up to y is one fixed causal filter and is applied as such: its impulse response is the
kernel of a long convolution. With 10 scales, on 8 sequences of 2000 steps and one CPU core, that took a
seventh of the time of splitting the batch itself, and the 12 streams per layer need not be kept.
"""

import torch
from torch import Tensor, nn

from msbench.config.baselines import MultiResNetConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.blocks import GluBlock
from msbench.models.classifier import Classifier, Layer, build_classifier
from msbench.models.family import Family, count_no_states
from msbench.models.long_conv import LongConv
from msbench.ops.filters import decompose
from msbench.ops.scan.reference import sum_streams


def compute_depth(longest: int, kernel: int) -> int:
    """Return the fewest scales, at least one, that span a sequence: ceil(log2((l - 1) / (k - 1) + 1))."""
    spans = -(-(longest - 1) // (kernel - 1))
    return max(1, spans.bit_length())  # in integers: 2^depth > spans


class MultiResConv(LongConv):
    """A split into scales and their weighted sum: (b, l, d) -> (b, l, d).

    The depth is the same for every batch: inputs before the first step are 0.
    """

    def __init__(self, config: MultiResNetConfig, depth: int) -> None:
        super().__init__((config.kernel - 1) * (2**depth - 1) + 1)
        self.depth = depth
        bound, streams = config.kernel**-0.5, depth + 2
        self.filters = nn.Parameter(torch.empty(2, config.kernel, config.d_model).uniform_(-bound, bound))
        # In the default group, with weight decay: they start around 0, and decay in the authors' code.
        self.mixing = nn.Parameter(torch.empty(streams, config.d_model).uniform_(-1, 1) * streams**-0.5)
        if config.independent_skip:
            with torch.no_grad():
                self.mixing[0].uniform_(-1, 1)

    def compute_kernel(self, length: int) -> Tensor:
        """See `LongConv`: the response to an impulse at step 0."""
        impulse = self.filters.new_zeros(1, min(length, self.reach), self.filters.shape[2])
        impulse[:, 0] = 1
        streams = decompose(impulse, self.filters.expand(self.depth, -1, -1, -1))
        # Autocast would compute the kernel in bfloat16.
        with torch.autocast(impulse.device.type, enabled=False):
            return sum_streams(streams, self.mixing).squeeze(0)


def build(config: MultiResNetConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per layer."""
    depth = config.depth or compute_depth(info.longest, config.kernel)

    def build_block() -> Layer:
        return GluBlock(config, MultiResConv(config, depth), dropout=config.dropout)

    return build_classifier(config, info, build_block, bidirectional=config.bidirectional)


FAMILY = Family(build, count_no_states, cost="l log l")
