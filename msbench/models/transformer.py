"""The Transformer's encoder (Vaswani et al. 2017) with the norm before each block.

==========  ==================  =====================================================
code        paper               meaning
==========  ==================  =====================================================
``h``       h                   heads
``w``       d_k = d_v           width of a head, d / h
``q``       Q                   queries; keys and values come from the same positions
==========  ==================  =====================================================

::

    attention:  (q, k, v) = qkv(input)      output = out_proj(softmax(q k^T / sqrt(w)) v)
    network:    output = down(gelu(up(input)))

A layer is these two blocks, each with norm and residual: ``torch.nn.TransformerEncoderLayer`` with
``norm_first``, and dropout as in every model here, outside of the blocks and by channels. Weights start as in
``torch.nn.MultiheadAttention``. Positions are learned, in the encoder.

No l x l matrix is kept: the fused kernels of ``scaled_dot_product_attention`` compute it in tiles, forward
and backward. Time still grows with the square of the length.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from msbench.config.baselines import TransformerConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.blocks import Mlp
from msbench.models.classifier import Classifier, build_classifier
from msbench.models.family import Family, count_no_states


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads, self.causal = config.heads, config.causal
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)
        nn.init.xavier_uniform_(self.qkv.weight)
        for layer in (self.qkv, self.out_proj):
            nn.init.zeros_(layer.bias)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map (b, l, d) to (b, l, d)."""
        heads = self.qkv(inputs).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        # Padding is on the right, so that with causal attention no real query sees it.
        seen = None if self.causal else build_key_mask(lengths, inputs.shape[1])
        q, k, v = heads.unbind(0)
        y = scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=self.causal)
        out: Tensor = self.out_proj(y.transpose(1, 2).flatten(2))
        return out


def build_key_mask(lengths: Tensor, longest: int) -> Tensor:
    """Return True where a key is real, (b, 1, 1, longest); at least one, because an empty softmax is NaN."""
    positions = torch.arange(longest, device=lengths.device)
    return (positions < lengths.clamp(min=1).unsqueeze(1))[:, None, None]


def build(config: TransformerConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: attention and a feed-forward network per layer."""
    network = partial(Mlp, config.d_model, config.mlp_expand)
    return build_classifier(config, info, lambda: SelfAttention(config), network)


FAMILY = Family(build, count_no_states, is_causal=lambda config: config.causal, cost="l^2")
