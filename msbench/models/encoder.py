"""The encoder, from a batch to vectors of the model's width: token embedding or linear map of numbers."""

import torch
from torch import Tensor, nn

from msbench.config import ClassifierConfig
from msbench.datasets.dataset import TaskInfo
from msbench.errors import DataError

EMBEDDING_STD = 0.02


class Encoder(nn.Module):
    """The encoder of a task's sequences, with learned positions added if configured.

    Tokens (and pairs of token sequences) go through an embedding or (``scalar``), with the id as one real
    number, through a linear map. Signals and patches go through a linear map of their channels, in float32 or
    better regardless of autocast: a sample has more than the 8 bits of a bfloat16. With learned positions
    `longest` bounds the length.
    """

    def __init__(self, config: ClassifierConfig, info: TaskInfo) -> None:
        super().__init__()
        self.embedding: nn.Embedding | None = None
        self.scalar: nn.Linear | None = None
        self.linear: nn.Linear | None = None
        if info.real_valued:
            self.linear = nn.Linear(info.channels, config.d_model)
        elif config.encoder == "embedding":
            self.embedding = nn.Embedding(info.vocabulary, config.d_model)
            nn.init.normal_(self.embedding.weight, std=EMBEDDING_STD)
        else:
            self.scalar = nn.Linear(1, config.d_model)
        # Drawn even if unused, so that all later parameters start the same with and without positions.
        positions = torch.empty(info.longest, config.d_model).normal_(std=EMBEDDING_STD)
        self.positions = nn.Parameter(positions) if config.positions == "learned" else None

    def forward(self, inputs: Tensor, start: int = 0) -> Tensor:
        """Map inputs (b, l) int64, or (b, l, channels), from position `start` on, to (b, l, d).

        Raises DataError beyond the learned positions.
        """
        x = self._encoded(inputs)
        return x if self.positions is None else x + self._positions(start, start + inputs.shape[1])

    def _encoded(self, inputs: Tensor) -> Tensor:
        if self.linear is not None:
            with torch.autocast(inputs.device.type, enabled=False):
                numbers: Tensor = self.linear(inputs.to(self.linear.weight.dtype))
            return numbers
        if self.embedding is not None:
            vectors: Tensor = self.embedding(inputs)
            return vectors
        assert self.scalar is not None
        ids: Tensor = self.scalar(inputs.unsqueeze(2).to(self.scalar.weight.dtype))
        return ids

    def _positions(self, start: int, end: int) -> Tensor:
        assert self.positions is not None
        if end > len(self.positions):
            raise DataError(
                f"a sequence of {end} tokens, but the task's longest sequence, and with it the learned"
                f" positions, is {len(self.positions)}; set the task up again, or use positions: none"
            )
        return self.positions[start:end]
