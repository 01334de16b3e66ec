"""Kernels around the loops of the Triton scan: they pack pairs of B and C, and sum partial gradients.

A row is one stream at one step of one example. The scan reads B and C of a row as 64-bit words, for each of
its groups of states WIDTH words, zeros after the last state; its partial gradients have N of them, and each
part ends with the gradient of the mixer's weight through the skip, and a number that is not used.
"""

import triton
import triton.language as tl

PACK_INTEGERS = ("length", "rows", "count", "B_stride", "C_stride", "mix_stride")
SUM_INTEGERS = ("examples", "steps", "length", "first_example", "first_step", "C_stride", "mix_stride")
PACK_TENSORS = ("B", "C", "mix", "words")
SUM_TENSORS = ("parts", "C", "mix", "g_B", "g_C", "g_mix")


@triton.jit(do_not_specialize=PACK_INTEGERS, do_not_specialize_on_alignment=PACK_TENSORS)
def pack_pairs(B, C, mix, words, length, rows, count, B_stride, C_stride, mix_stride, S: tl.constexpr):
    """Write B and C, weighted by the mixer, as halves of 64-bit words (count, WIDTH), groups after groups.

    There are zeros after each example of `length` steps, up to a multiple of 4, and after the last row.
    """
    group = (tl.program_id(0).to(tl.int64) * S.ROWS + tl.arange(0, S.ROWS))[:, None]
    start, here = group % S.GROUPS * S.N, group // (S.GROUPS * S.M)
    blocks = tl.cdiv(length, 4)
    example = here // (4 * blocks)
    step = here - example * (4 * blocks)
    row = (example * length + step) * S.M + group // S.GROUPS % S.M
    n = tl.arange(0, S.PADDED)[None, :]
    there = (row < rows) & (step < length)
    inside = there & (n < S.N) & (start + n < S.STATES)
    b = tl.load(B + row * B_stride + start + n, mask=inside, other=0.0).to(tl.float32)
    c = tl.load(C + row * C_stride + start + n, mask=inside, other=0.0).to(tl.float32)
    if S.MIXED:
        c = c * tl.load(mix + row * mix_stride, mask=there, other=0.0).to(tl.float32)
    pair = c.to(tl.uint32, bitcast=True).to(tl.int64) << 32 | b.to(tl.uint32, bitcast=True).to(tl.int64)
    tl.store(words + group * S.WIDTH + n, pair, mask=(group < count) & (n < S.WIDTH))


# fmt: off
@triton.jit(do_not_specialize=SUM_INTEGERS, do_not_specialize_on_alignment=SUM_TENSORS)
def sum_parts(
    parts, C, mix, g_B, g_C, g_mix,
    examples, steps, length, first_example, first_step, C_stride, mix_stride, S: tl.constexpr,
):
    # fmt: on
    """Sum the parts (examples, steps, M, GROUPS, BLOCKS, 2 N + 2) of a launch of the backward in order.

    Writes the gradients of B, C and mix at these steps of these examples; those of C and mix from that of
    their product.
    """
    PART: tl.constexpr = 2 * S.N + 2
    here = (tl.program_id(0).to(tl.int64) * S.ROWS + tl.arange(0, S.ROWS))[:, None]
    there = here < examples * steps * S.M
    step = here // S.M
    example = step // steps
    row = ((first_example + example) * length + first_step + step - example * steps) * S.M + here % S.M
    n = tl.arange(0, S.PADDED)[None, :]
    weight = 1.0
    g_weight = tl.zeros([S.ROWS, 1], tl.float32)
    if S.MIXED:
        weight = tl.load(mix + row * mix_stride, mask=there, other=0.0).to(tl.float32)
    for g in tl.static_range(S.GROUPS):
        first = parts + (here * S.GROUPS + g) * (S.BLOCKS * PART) + 2 * n
        inside = there & (n < S.N) & (g * S.N + n < S.STATES)
        b = tl.zeros([S.ROWS, S.PADDED], tl.float32)
        c = tl.zeros([S.ROWS, S.PADDED], tl.float32)
        for block in range(S.BLOCKS):
            b += tl.load(first + block * PART, mask=inside, other=0.0)
            c += tl.load(first + block * PART + 1, mask=inside, other=0.0)
        at = row * S.STATES + g * S.N + n
        tl.store(g_B + at, b, mask=inside)
        tl.store(g_C + at, c * weight, mask=inside)
        if S.MIXED:
            read = tl.load(C + row * C_stride + g * S.N + n, mask=inside, other=0.0).to(tl.float32)
            g_weight += tl.sum(read * c, axis=1, keep_dims=True)
    if S.MIXED:
        if S.SKIP:
            first = parts + here * (S.GROUPS * S.BLOCKS * PART) + 2 * S.N
            for block in range(S.BLOCKS):
                g_weight += tl.load(first + block * PART, mask=there, other=0.0)
        tl.store(g_mix + row, g_weight, mask=there)
