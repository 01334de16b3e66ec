"""The LSTM."""

from msbench.config.model import ClassifierConfig


class LstmConfig(ClassifierConfig):
    """One LSTM a layer (Hochreiter and Schmidhuber 1997), as wide as the model."""

    bidirectional: bool = False
    """Two LSTMs per layer with their own parameters, one over the reversed sequence; outputs are averaged."""
