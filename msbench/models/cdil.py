"""CDIL-CNN (Cheng et al. 2023): circular convolutions whose dilation doubles from layer to layer.

===============  ====================  ===================================================================
code             paper                 meaning
===============  ====================  ===================================================================
``d``            hidden channels       width of every layer
``kernel``       kernel size           taps of a convolution, as many before as after its own position
``dilation``     2^0, 2^1, 2^2, ..     distance between two taps of a layer
``lengths``      N                     length of a sequence, n below, at which its positions wrap around
===============  ====================  ===================================================================

::

    layer_i(x)[t] = x[t] + relu(b + sum_j w_j x[(t + 2^i j) mod n])        |j| <= (kernel - 1) / 2
    logits = head(mean of the last layer over all positions)

There are no norms; the weight w is normalised, with a gain and a direction for each output channel. After
layer i with three taps an output depends on 2^(i + 2) - 1 positions around it.

The authors' code wraps around at the end of the padded batch and takes the mean over padding too. Here both
are those of each sequence, so that padding changes no prediction. A dilation may be longer than the sequence,
where torch's circular convolution raises an error. Weights start as in the code: directions as those of
torch's convolutions (the code draws them anew with deviation 0.01, but in a tensor that weight normalisation
then overwrites), biases with deviation 0.01.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.baselines import CdilConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import Classifier
from msbench.models.family import Family, count_no_states
from msbench.models.layers import ShortcutLayer
from msbench.models.weight_norm import WeightNormLinear

BIAS_STD = 0.01


class CircularConv(ShortcutLayer):
    """A circular dilated convolution, ReLU and a shortcut: (b, l, d) -> (b, l, d)."""

    def __init__(self, config: CdilConfig, dilation: int) -> None:
        super().__init__()
        self.kernel, self.dilation = config.kernel, dilation
        # Inputs are in order of channels, then taps, as in torch's convolutions.
        self.conv = WeightNormLinear(config.d_model * config.kernel, config.d_model)
        nn.init.normal_(self.conv.bias, std=BIAS_STD)

    def mix(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """See `ShortcutLayer`."""
        b, longest, d = inputs.shape
        taps = self.conv.compute_weight().view(d, d, self.kernel)
        # Each tap's product first and then its place: only the input itself is kept for the backward.
        parts = functional.linear(inputs, taps.permute(2, 0, 1).flatten(0, 1)).view(-1, d)
        places = find_circular_places(lengths, longest, self.kernel, self.dilation)
        rows = torch.arange(b, device=places.device).view(b, 1, 1) * longest + places
        rows = rows * self.kernel + torch.arange(self.kernel, device=places.device)
        seen = parts.index_select(0, rows.flatten()).view(b, longest, self.kernel, d)
        return functional.relu(seen.sum(2) + self.conv.bias)


def find_circular_places(lengths: Tensor, longest: int, kernel: int, dilation: int) -> Tensor:
    """Return the positions (b, longest, kernel) that the taps of each position see, modulo lengths (b,)."""
    positions = torch.arange(longest, device=lengths.device)
    offsets = torch.arange(kernel, device=lengths.device) - kernel // 2
    wrap = lengths.clamp(min=1)[:, None, None]
    return (positions.unsqueeze(1) + offsets * dilation) % wrap


def build(config: CdilConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: each layer reaches twice as far as the one before."""
    layers = [[CircularConv(config, 2**index)] for index in range(config.layers)]
    return Classifier(config, info, layers, residuals=False)


# Convolutions see both sides.
FAMILY = Family(build, count_no_states, is_causal=lambda _config: False)
