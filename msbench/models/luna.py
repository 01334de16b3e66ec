"""Luna (Ma et al. 2021): linear unified nested attention, through a second, short sequence.

====================  ==================  ============================================================
code                  paper               meaning
====================  ==================  ============================================================
``x``                 X                   the sequence (b, l, d)
``p``                 P                   the second sequence (b, s, d); before the first layer (1, s, d)
``s``                 l                   its length, 256 in Luna-256
``packed``            Y_P                 what p reads from x
``unpacked``          Y_X                 what x reads from packed
``h``, ``w``          h, d / h            heads and width of a head, the same in both attentions
====================  ==================  ============================================================

::

    packed   = softmax(pack_q(p) pack_k(x)^T / sqrt(w)) pack_v(x)
    unpacked = out_proj(softmax(unpack_q(x) unpack_k(packed)^T / sqrt(w)) unpack_v(packed))
    p = norm(p + packed)        x = norm(x + unpacked)        x = norm(x + mlp(x))

Both attentions cost l s. x and p go through a norm of their own before the first layer. As p runs through
all layers beside x, the whole stack is one layer of the classifier. Only x leaves it, so the last layer has
neither the residual nor the norm of p.

The first p is learned, sqrt(d) times a parameter plus fixed sines and cosines, as in the authors' code. There
the weights of all linear maps and that parameter start normal with deviation 0.02. That code also cuts p to
the length of the sequence where this is shorter; here p is whole for all.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from msbench.config.attention import LunaConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.blocks import Mlp
from msbench.models.classifier import Classifier
from msbench.models.family import Family, count_no_states
from msbench.models.layers import ChannelDropout, Padding, build_norm, normalise
from msbench.models.transformer import build_key_mask

START_STD = 0.02
LONGEST_WAVE = 10_000


class LunaAttention(nn.Module):
    """The two nested attentions of a layer."""

    def __init__(self, config: LunaConfig) -> None:
        super().__init__()
        d = config.d_model
        self.heads = config.heads
        self.pack_q, self.pack_kv = nn.Linear(d, d), nn.Linear(d, 2 * d)
        self.unpack_q, self.unpack_kv = nn.Linear(d, d), nn.Linear(d, 2 * d)
        self.out_proj = nn.Linear(d, d)

    def forward(self, x: Tensor, p: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Map x (b, l, d) and p (b or 1, s, d) to unpacked (b, l, d) and packed (b, s, d).

        `seen` (b, 1, 1, l) is True at the positions of x that p reads.
        """
        packed = self._attend(self.pack_q(p), self.pack_kv(x), seen)
        unpacked: Tensor = self.out_proj(self._attend(self.unpack_q(x), self.unpack_kv(packed), None))
        return unpacked, packed

    def _attend(self, queries: Tensor, keys_values: Tensor, seen: Tensor | None) -> Tensor:
        """Return the attention of queries (b or 1, t, d) to keys and values (b, t', 2 d), (b, t, d)."""
        q = torch.unflatten(queries.expand(len(keys_values), -1, -1), 2, (self.heads, -1)).transpose(1, 2)
        k, v = torch.unflatten(keys_values, 2, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)


class LunaLayer(nn.Module):
    """Both attentions and the feed-forward network, each with residual and norm; p is dropped if `last`."""

    def __init__(self, config: LunaConfig, *, last: bool) -> None:
        super().__init__()
        self.attention = LunaAttention(config)
        self.mlp = Mlp(config.d_model, config.mlp_expand)
        self.norm, self.mlp_norm = build_norm(config), build_norm(config)
        self.p_norm = None if last else build_norm(config)
        self.dropout = ChannelDropout(config.dropout)

    def forward(self, x: Tensor, p: Tensor, seen: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map x (b, l, d) and p (b or 1, s, d), `seen` as in `LunaAttention` and mask (b, l, 1)."""
        unpacked, packed = self.attention(x, p, seen)
        x = normalise(self.norm, x + self.dropout(unpacked), mask)
        x = normalise(self.mlp_norm, x + self.dropout(self.mlp.transform(x)), mask)
        if self.p_norm is not None:
            p = normalise_all(self.p_norm, p + self.dropout(packed))
        return x, p


class LunaStack(nn.Module):
    """All layers, and the second sequence that runs through them."""

    waves: Tensor

    def __init__(self, config: LunaConfig) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.empty(config.packed, config.d_model).normal_(std=START_STD))
        self.register_buffer("waves", build_waves(config.packed, config.d_model), persistent=False)
        self.x_norm, self.p_norm = build_norm(config), build_norm(config)
        last = config.layers - 1
        self.layers = nn.ModuleList(LunaLayer(config, last=index == last) for index in range(config.layers))
        restart_as_normal(self)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map (b, l, d) to (b, l, d)."""
        mask = Padding.from_lengths(lengths, inputs.shape[1], inputs.dtype).mask
        seen = build_key_mask(lengths, inputs.shape[1])
        x = normalise(self.x_norm, inputs, mask)
        p = normalise_all(self.p_norm, (math.sqrt(inputs.shape[2]) * self.p + self.waves).unsqueeze(0))
        for layer in self.layers:
            x, p = layer(x, p, seen, mask)
        return x


def normalise_all(norm: nn.Module, p: Tensor) -> Tensor:
    """Apply a norm of `build_norm` to p (b, s, d), which has no padding."""
    return normalise(norm, p, Padding.none_of(p).mask)


def build_waves(length: int, d: int) -> Tensor:
    """Return sines, then cosines of falling frequency, (length, d); a last odd channel is 0."""
    half = d // 2
    rates = LONGEST_WAVE ** (-torch.arange(half, dtype=torch.float64) / max(1, half - 1))
    angles = torch.arange(length, dtype=torch.float64).unsqueeze(1) * rates
    waves = torch.cat([angles.sin(), angles.cos(), angles.new_zeros(length, d % 2)], dim=1)
    return waves.to(torch.get_default_dtype())


@torch.no_grad()
def restart_as_normal(module: nn.Module) -> None:
    """Draw the weights of all linear maps anew, normal, and set their biases to 0."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            part.weight.normal_(std=START_STD)
            part.bias.zero_()


def build(config: LunaConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: one block, the whole stack with its own norms and residuals."""
    return Classifier(config, info, [[LunaStack(config)]], residuals=False)


FAMILY = Family(build, count_no_states, is_causal=lambda _config: False)
