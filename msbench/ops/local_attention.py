"""Causal attention within a window, with memory and time proportional to length times window."""

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention


def local_attention(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Attend from each query to its own position and the `window` positions before it.

    Parameters
    ----------
    q : (b, h, l, w)
    k, v : (b, h, l, w), or (b, 1, l, w) if all heads of queries share them
    window : at least 1

    Returns (b, h, l, w). Any length. A sequence longer than the window is cut into blocks of the window's
    size: the queries of a block see only its own keys and those of the block before, so no l x l matrix
    exists.
    """
    k, v = k.expand(-1, q.shape[1], -1, -1), v.expand(-1, q.shape[1], -1, -1)
    length = q.shape[2]
    if length <= window + 1:
        return scaled_dot_product_attention(q, k, v, is_causal=True)
    start = slice(window)
    first = scaled_dot_product_attention(q[:, :, start], k[:, :, start], v[:, :, start], is_causal=True)
    return torch.cat([first, attend_later_blocks(q, k, v, window)], dim=2)[:, :, :length]


def attend_later_blocks(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Return the outputs (b, h, at least l - window, w) of all blocks except the first."""
    batch, heads, length, width = q.shape
    q, k, v = (pad(x, (0, 0, 0, -length % window)) for x in (q, k, v))
    queries = cut_sections(q[:, :, window:], window, window)
    keys, values = (cut_sections(x, 2 * window, window) for x in (k, v))
    y = scaled_dot_product_attention(queries, keys, values, attn_mask=make_band(window, q.device))
    return y.view(batch, -1, heads, window, width).transpose(1, 2).flatten(2, 3)


def cut_sections(x: Tensor, size: int, step: int) -> Tensor:
    """Return sections of x (b, h, l, w) as separate examples: (b n, h, size, w)."""
    return x.unfold(2, size, step).permute(0, 2, 1, 4, 3).flatten(0, 1)


def make_band(window: int, device: torch.device) -> Tensor:
    """Return the mask of a block's queries on the block before and their own: (window, 2 window), boolean."""
    steps = torch.arange(2 * window, device=device)
    lag = window + steps[:window].unsqueeze(1) - steps
    return (lag >= 0) & (lag <= window)
