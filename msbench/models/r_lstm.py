"""r-LSTM (Trinh et al. 2018): an LSTM that also learns to reproduce a part of what it has read.

===============  ==========================================================================
code             meaning
===============  ==========================================================================
``anchor``       number of positions that the LSTM has read, drawn for each example and step
``h``            its output at the anchor (b, d)
``k``            ``segment``: the last k positions before the anchor are reproduced
``e``            ``decoder_width``
``before``       the sequence's element before a position of the segment, nothing at first
===============  ==========================================================================

::

    loss = loss of the label + auxiliary_weight * mean over examples of the segment's loss
    segment's loss:  mean over its positions of  cross entropy (tokens)  or squared error (numbers)
    decoder:         predict(lstm(lstm(read(before) + recall(h))))      two LSTMs of width e

The classifier is the LSTM of `msbench.models.lstm` alone, without norm and residual, read at its last state.
The decoder, a part of the loss, is trained with it and not used in evaluation; at each position it is given
the true element before (teacher forcing).

No code of the authors is public. As they describe it, the decoder is trained alone first, and then both; the
gradient of the label's loss reaches back 300 positions only; the head has two hidden layers; weights are
dropped. Here both are trained from the start, by whole gradients, with the head of all models. The decoder
reads h at each of its steps, where theirs has it as its first state.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.baselines import RLstmConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import Classifier
from msbench.models.family import Family
from msbench.models.layers import Padding
from msbench.models.lstm import Lstm


class PastDecoder(nn.Module):
    """The loss of reproducing the elements before a position from the LSTM's output there, weighted."""

    def __init__(self, config: RLstmConfig, info: TaskInfo) -> None:
        super().__init__()
        self.weight, self.segment = config.auxiliary_weight, config.segment
        width = config.decoder_width
        self.recall = nn.Linear(config.d_model, width)
        self.read: nn.Module = (
            nn.Linear(info.channels, width) if info.real_valued else nn.Embedding(info.vocabulary, width)
        )
        self.inner, self.outer = Lstm(width), Lstm(width)
        self.predict = nn.Linear(width, info.channels if info.real_valued else info.vocabulary)

    def forward(self, outputs: Tensor, sequences: Tensor, lengths: Tensor) -> Tensor:
        """Map outputs (b, l, d), sequences (b, l) or (b, l, channels), lengths (b,) to the weighted loss."""
        with torch.autocast(outputs.device.type, enabled=False):
            dtype = self.recall.weight.dtype
            # At least one position has been read.
            chosen = torch.rand(len(lengths), device=lengths.device) * lengths
            anchors = chosen.long().clamp(max=lengths - 1).clamp(min=0) + 1
            h = outputs[torch.arange(len(outputs), device=outputs.device), anchors - 1].to(dtype)
            targets, sizes = self.cut_segments(sequences, anchors.clamp(max=lengths))
            x = self.read_before(targets) + self.recall(h).unsqueeze(1)
            x = self.outer(self.inner(x, sizes), sizes)
            return self.weight * self.compare(self.predict(x), targets, sizes)

    def cut_segments(self, sequences: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the elements before each anchor (b, k, ..), padded on the right, and their number (b,)."""
        size = min(self.segment, sequences.shape[1])
        sizes = anchors.clamp(max=size)
        index = (anchors - sizes).unsqueeze(1) + torch.arange(size, device=anchors.device)
        index = index.clamp(max=sequences.shape[1] - 1)
        rows = torch.arange(len(sequences), device=anchors.device).unsqueeze(1)
        return sequences[rows, index], sizes

    def read_before(self, targets: Tensor) -> Tensor:
        """Map the elements (b, k, ..) to what the decoder reads at each: the one before, (b, k, e)."""
        read: Tensor = self.read(
            targets if targets.dtype == torch.int64 else targets.to(self.recall.weight.dtype)
        )
        return functional.pad(read[:, :-1], (0, 0, 1, 0))

    def compare(self, predictions: Tensor, targets: Tensor, sizes: Tensor) -> Tensor:
        """Return the mean over examples of the mean loss of a segment."""
        if targets.dtype == torch.int64:
            # By rows: the loss of a whole sequence at once has no deterministic kernel on a GPU.
            rows = functional.cross_entropy(predictions.flatten(0, 1), targets.flatten(), reduction="none")
            losses = rows.view_as(targets)
        else:
            losses = (predictions - targets.to(predictions.dtype)).square().mean(2)
        mask = Padding.from_lengths(sizes, losses.shape[1], losses.dtype).mask.squeeze(2)
        return ((losses * mask).sum(1) / sizes.clamp(min=1)).mean()


def build(config: RLstmConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: LSTMs without norms and residuals, and the auxiliary loss."""
    layers = [[Lstm(config.d_model)] for _ in range(config.layers)]
    return Classifier(config, info, layers, residuals=False, auxiliary=PastDecoder(config, info))


def count_states(config: RLstmConfig) -> int:
    """See `Family`: output and cell."""
    del config
    return 2


FAMILY = Family(build, count_states)
