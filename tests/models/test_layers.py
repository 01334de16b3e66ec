"""Norms, pooling, dropout and reversal over padded batches."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from msbench.config import ClassifierConfig
from msbench.models.layers import (
    TRUNCATED,
    Bidirectional,
    ChannelDropout,
    DropPath,
    MaskedBatchNorm,
    Padding,
    build_norm,
    draw_truncated_normal,
    normalise,
    pool,
    reverse,
)

LENGTHS = torch.tensor([5, 2, 1])


def batch(width: int = 4) -> tuple[Tensor, Padding]:
    x = torch.randn(3, 5, width, generator=torch.Generator().manual_seed(0))
    return x, Padding.from_lengths(LENGTHS, 5)


def test_mask_marks_real_positions() -> None:
    assert Padding.from_lengths(LENGTHS, 5).mask[:, :, 0].sum(1).tolist() == [5, 2, 1]
    assert Padding.none_of(torch.zeros(2, 3, 1)).mask.all()


def test_batch_norm_over_real_positions_equals_torch_on_them() -> None:
    x, padding = batch()
    real = padding.mask[:, :, 0].bool()
    ours, theirs = MaskedBatchNorm(4), nn.BatchNorm1d(4)
    for _ in range(3):
        torch.testing.assert_close(ours(x, padding.mask)[real], theirs(x[real]))
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    torch.testing.assert_close(ours.eval()(x, padding.mask)[real], theirs.eval()(x[real]))


def test_batch_norm_ignores_what_padding_holds() -> None:
    x, padding = batch()
    junk = x + 1e3 * (1 - padding.mask)
    one, other = MaskedBatchNorm(4), MaskedBatchNorm(4)
    real = padding.mask[:, :, 0].bool()
    torch.testing.assert_close(one(x, padding.mask)[real], other(junk, padding.mask)[real])
    torch.testing.assert_close(one.running_var, other.running_var)


@pytest.mark.parametrize("kind", ["layer", "rms", "batch"])
def test_a_batch_of_one_position_breaks_no_norm(kind: Any) -> None:
    norm = build_norm(ClassifierConfig(norm=kind, d_model=4))
    x = torch.randn(1, 1, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    (gradient,) = torch.autograd.grad(normalise(norm, x, torch.ones(1, 1, 1)).sum(), x)
    assert torch.isfinite(gradient).all()
    assert all(torch.isfinite(value).all() for value in norm.state_dict().values())


def test_pooling() -> None:
    x, padding = batch()
    torch.testing.assert_close(pool(x, padding, "mean")[1], x[1, :2].mean(0))
    assert torch.equal(pool(x, padding, "last")[1], x[1, 1])
    torch.testing.assert_close(pool(x, padding, "mean-with-padding")[1], x[1].mean(0))


def test_dropout_drops_whole_channels() -> None:
    dropout, x = ChannelDropout(0.5), torch.ones(8, 5, 64)
    torch.manual_seed(0)
    y = dropout(x)
    assert torch.equal(y, y[:, :1].expand_as(y))
    assert set(y.unique().tolist()) == {0.0, 2.0}
    assert 0.3 < float((y == 0).float().mean()) < 0.7
    assert not torch.equal(y[0, 0], y[1, 0])
    assert dropout.eval()(x) is x


def test_drop_path_drops_whole_examples() -> None:
    dropout, x = DropPath(0.25), torch.ones(400, 5, 3)
    torch.manual_seed(0)
    y = dropout(x)
    assert torch.equal(y, y[:, :1, :1].expand_as(y))
    torch.testing.assert_close(y.unique(), torch.tensor([0.0, 4 / 3]))
    assert float((y == 0).float().mean()) == pytest.approx(0.25, abs=0.05)
    assert dropout.eval()(x) is x
    assert DropPath(0.0)(x) is x


def test_batch_statistics_follow_their_momentum() -> None:
    x, padding = batch()
    norm = build_norm(ClassifierConfig(norm="batch", d_model=4, batch_norm_momentum=0.01))
    assert isinstance(norm, MaskedBatchNorm)
    normalise(norm, x, padding.mask)
    torch.testing.assert_close(norm.running_mean, 0.01 * x[padding.mask[:, :, 0].bool()].mean(0))


def test_truncated_normal_numbers_have_their_variance() -> None:
    torch.manual_seed(0)
    drawn = draw_truncated_normal(0.25, 300, 300)
    assert float(drawn.std()) == pytest.approx(0.5, rel=0.01)
    assert 1.1 < float(drawn.abs().max()) <= 1 / TRUNCATED + 1e-6


def test_reverse_turns_only_the_real_part() -> None:
    x = torch.arange(10.0).view(2, 5, 1)
    turned = reverse(x, torch.tensor([5, 3]))[:, :, 0].tolist()
    assert turned == [[4, 3, 2, 1, 0], [7, 6, 5, 8, 9]]


def test_both_directions_are_averaged_and_lined_up() -> None:
    class Cumulative(nn.Module):
        def forward(self, x: Tensor, _: Tensor) -> Tensor:
            return x.cumsum(1)

    x = torch.tensor([1.0, 2, 4, 100]).view(1, 4, 1)
    y = Bidirectional(Cumulative(), Cumulative())(x, torch.tensor([3]))
    assert y[0, :3, 0].tolist() == [(1 + 7) / 2, (3 + 6) / 2, (7 + 4) / 2]
