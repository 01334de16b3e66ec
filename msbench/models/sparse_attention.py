"""Transformers in which a query sees a fixed set of keys, chosen by position.

============  ===================================  ===================================================
code          papers                               meaning
============  ===================================  ===================================================
``i, j``      i, j                                 positions of a query and a key, from 0
``n``         n                                    a sequence's own length: keys from there on are padding
``c``         block (Local Attention)              positions of a block
============  ===================================  ===================================================

::

    output_i = out_proj(sum_j a_ij v_j)      a_i = softmax over S(i) of q_i k_j / sqrt(w)

    Local Attention:  S(i) = {j < n: floor(j / c) = floor(i / c)}

Everything around S is the Transformer's (`msbench.models.transformer`): projections with their start,
feed-forward network, norms and learned positions.

Local Attention: Tay et al. 2020 (Long Range Arena). The code of that benchmark reshapes the sequence so that
a block has every (l / c)-th position; here a block is contiguous, as its paper describes it.
"""

from torch import Tensor

from msbench.config.attention import LocalAttentionConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.attention import HeadAttention, build_transformer
from msbench.models.classifier import Classifier
from msbench.models.family import Family, count_no_states
from msbench.ops.block_attention import block_attention


class BlockLocalAttention(HeadAttention):
    """Attention within contiguous blocks."""

    def __init__(self, config: LocalAttentionConfig) -> None:
        super().__init__(config)
        self.block = config.block

    def attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        """See `HeadAttention`."""
        return block_attention(q, k, v, self.block, lengths)


def build(config: LocalAttentionConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: attention and a feed-forward network per layer."""
    return build_transformer(config, info, lambda: BlockLocalAttention(config))


def count_activations(config: LocalAttentionConfig, device: str) -> float:
    """See `Family`."""
    del device
    return (9 + 2 * config.mlp_expand) * config.d_model


FAMILY = Family(build, count_no_states, count_activations, is_causal=lambda config: False)  # noqa: ARG005
