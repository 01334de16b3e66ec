"""Attention from blocks of queries to a few blocks of keys: time and memory grow linearly with the length.

=============  ==============================================================================
code           meaning
=============  ==============================================================================
``b, h, w``    examples, heads, width of a head
``l``          positions; any number, the last block is filled up with keys that nobody sees
``c, n``       positions of a block, blocks: n = ceil(l / c)
``m``          blocks of keys that a block of queries reads
``s``          keys that a block of queries reads, m c if they come from blocks alone
=============  ==============================================================================

A query's weights are one softmax over all keys that it sees, whichever block they are in. `block_attention`
is the whole; patterns with further keys are put together from its parts.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding, pad, scaled_dot_product_attention


def block_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    size: int,
    lengths: Tensor | None = None,
    blocks: Tensor | None = None,
    keep: Tensor | None = None,
) -> Tensor:
    """Attend from each block of queries to the keys of its own block, or of the blocks of a list.

    Parameters
    ----------
    q, k, v : (b, h, l, w)
    size : c, at least 1
    lengths : (b,), keys from there on are not seen; None if all are real
    blocks : int64, broadcasts to (b, h, n, m): for each block of queries the blocks of its keys, -1 for none;
        a block that is listed twice counts twice. None means its own block
    keep : boolean, broadcasts to (b, h, n, c, m c): False for a key of these blocks that a query does not see

    Returns (b, h, l, w): scaled dot-product attention; zeros for a query that sees no key.
    """
    length = q.shape[2]
    sections, keys, values = (cut_blocks(x, size) for x in (q, k, v))
    if blocks is None:
        blocks = torch.arange(sections.shape[2], device=q.device).view(1, 1, -1, 1)
    else:
        blocks = blocks[(None,) * (4 - blocks.ndim)]
        keys, values = gather_blocks(keys, blocks), gather_blocks(values, blocks)
    real = find_real_keys(locate_keys(blocks, size), length if lengths is None else lengths)
    y = attend_blocks(sections, keys, values, real if keep is None else real & keep)
    return join_blocks(y, length)


def attend_blocks(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    """Attend from each block of queries to its own set of keys.

    Parameters
    ----------
    q : (b, h, n, c, w)
    k, v : (b, h, n, s, w)
    keep : boolean, broadcasts to (b, h, n, c, s): True where a query sees a key

    Returns (b, h, n, c, w): zeros for a query that sees no key.
    """
    keep = keep[(None,) * (5 - keep.ndim)]
    empty = ~keep.any(-1, keepdim=True)
    # A softmax over no key is NaN in some kernels: such a query sees all, and its output is set to zero.
    masks = keep | empty
    batch, heads, n, size, _ = q.shape
    if masks.shape[:2] == (1, 1):  # one mask for all examples and heads, kept once: (n, b h, c, w)
        queries, keys, values = (x.permute(2, 0, 1, 3, 4).flatten(1, 2) for x in (q, k, v))
        mask = masks[0].transpose(0, 1)
        y = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        y = y.view(n, batch, heads, size, -1).permute(1, 2, 0, 3, 4)
    else:  # (b n, h, c, w)
        queries, keys, values = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
        mask = masks.expand(batch, -1, n, -1, -1).transpose(1, 2).flatten(0, 1)
        y = scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
        y = y.view(batch, n, heads, size, -1).transpose(1, 2)
    return y.masked_fill(empty, 0)


def cut_blocks(x: Tensor, size: int) -> Tensor:
    """Cut x (b, h, l, w) into blocks (b, h, n, c, w), with zeros at the end of the last one."""
    batch, heads, length, width = x.shape
    return pad(x, (0, 0, 0, -length % size)).view(batch, heads, -1, size, width)


def join_blocks(x: Tensor, length: int) -> Tensor:
    """Join blocks (b, h, n, c, w) to (b, h, l, w): `cut_blocks` inverted."""
    return x.flatten(2, 3)[:, :, :length]


def gather_blocks(x: Tensor, blocks: Tensor) -> Tensor:
    """Copy the listed blocks of x (b, h, n, c, w) in their order: (b, h, n', m c, w).

    `blocks` broadcasts to (b, h, n', m); in place of -1 any block is read, which must not be seen.
    """
    batch, heads, n, _, width = x.shape
    first = n * torch.arange(batch * heads, device=x.device).view(batch, heads, 1, 1)
    # Rows of a table: the gradient of `embedding` has a deterministic algorithm on every device.
    rows = embedding(first + blocks.clamp(min=0), x.flatten(3).flatten(0, 2))
    return rows.view(*rows.shape[:3], -1, width)


def append_keys(x: Tensor, shared: Tensor) -> Tensor:
    """Append keys or values that all blocks read, (b, h, e, w), to those of each, x (b, h, n, s, w)."""
    return torch.cat([x, shared.unsqueeze(2).expand(-1, -1, x.shape[2], -1, -1)], dim=3)


def list_near_blocks(n: int, back: int, ahead: int, device: torch.device) -> Tensor:
    """List for each of n blocks those from `back` before to `ahead` after it, -1 beyond the ends: (n, m)."""
    blocks = torch.arange(n, device=device).unsqueeze(1) + torch.arange(-back, ahead + 1, device=device)
    return torch.where(blocks < n, blocks, -1).clamp(min=-1)


def locate_keys(blocks: Tensor, size: int) -> Tensor:
    """Return the positions of the keys of blocks (.., n, m): (.., n, 1, m c); negative for block -1."""
    return (size * blocks.unsqueeze(-1) + torch.arange(size, device=blocks.device)).flatten(-2).unsqueeze(-2)


def locate_queries(n: int, size: int, device: torch.device) -> Tensor:
    """Return the positions of the queries of n blocks: (n, c, 1)."""
    return torch.arange(n * size, device=device).view(n, size, 1)


def find_real_keys(positions: Tensor, lengths: Tensor | int) -> Tensor:
    """Return True for keys at positions (b, h, n, 1, s) before the end: of each example (b,), or of all."""
    ends = lengths if isinstance(lengths, int) else lengths.view(-1, 1, 1, 1, 1)
    return (positions >= 0) & (positions < ends)
