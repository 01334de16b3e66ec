"""The LSTM (Hochreiter and Schmidhuber 1997, with the forget gates of Gers et al. 2000), as in torch.

==================  ==========================================================================
code                meaning
==================  ==========================================================================
``h``, ``c``        output and cell: the state
``w_x``, ``b_x``    from the input to the gates i, f, g, o (``weight_ih_l0``, ``bias_ih_l0``)
``w_h``, ``b_h``    from the last output to these gates (``weight_hh_l0``, ``bias_hh_l0``)
==================  ==========================================================================

::

    (i, f, g, o) = w_x x_t + b_x + w_h h_{t-1} + b_h
    c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g)      h_t = sigmoid(o) tanh(c_t)

Layers have a norm and a residual like every model here, unlike stacked LSTMs in the literature. Sequences are
not packed: padding is on the right, so no real position's output sees it, and the second direction reverses
each sequence by its own length. Outputs after the end are ignored later.
"""

import torch
from torch import Tensor, nn

from msbench.config.baselines import LstmConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import Classifier, build_classifier
from msbench.models.family import Family
from msbench.ops.lstm import lstm


class Lstm(nn.Module):
    """One LSTM as wide as its input, in float32, or float64 for such weights, regardless of autocast."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(d_model, d_model, batch_first=True)
        # Referenced outside of nn.LSTM too, which torch.compile cannot trace. Values copied into its
        # parameters take effect here, replaced parameters (load_state_dict with assign) do not.
        self.weights = tuple(self.lstm.parameters())

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """Map (b, l, d) to (b, l, d)."""
        w_x, w_h, b_x, b_h = self.weights
        with torch.autocast(inputs.device.type, enabled=False):
            return lstm(inputs.to(w_x.dtype), w_x, w_h, b_x, b_h)

    def start(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `msbench.models.layers.Recurrent`: h and c, zeros."""
        zeros = x.new_zeros(x.shape, dtype=self.weights[0].dtype)
        return zeros, zeros

    def step(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """See `msbench.models.layers.Recurrent`."""
        w_x, w_h, b_x, b_h = self.weights
        with torch.autocast(x.device.type, enabled=False):
            h, c = torch.lstm_cell(x.to(w_x.dtype), state, w_x, w_h, b_x, b_h)
        return h, (h, c)


def build(config: LstmConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: one LSTM per layer and direction."""
    return build_classifier(config, info, lambda: Lstm(config.d_model), bidirectional=config.bidirectional)


def count_states(config: LstmConfig) -> int:
    """See `Family`: output and cell."""
    return 2 * (1 + config.bidirectional)


FAMILY = Family(build, count_states)
