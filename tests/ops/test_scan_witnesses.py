"""The scan against implementations that share nothing with it."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from mambapy.pscan import pscan
from scan_cases import arguments, assert_close, gradients
from scipy.signal import lfilter
from torch import Tensor
from transformers.models.mamba.modeling_mamba import mamba_selective_scan

from msbench.ops.scan.dispatch import selective_scan
from msbench.ops.scan.reference import selective_scan_reference

Scan = Callable[..., Tensor]
SCANS: list[Scan] = [selective_scan, selective_scan_reference]


def by_transformers(u: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, skip: Tensor) -> Tensor:
    """One stream through the Mamba of `transformers`, which is channels first."""
    first = (x.squeeze(2).mT for x in (u, dt))
    y: Tensor = mamba_selective_scan(*first, A[0], B.squeeze(2).mT, C.squeeze(2).mT, skip[0])
    return y.mT.unsqueeze(2)


def by_pscan(u: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, skip: Tensor) -> Tensor:
    """Streams through the parallel scan of `mambapy`, as so many channels."""
    decay = torch.exp(dt.unsqueeze(-1) * A)
    source = (dt * u).unsqueeze(-1) * B.unsqueeze(3)
    states = pscan(decay.flatten(2, 3), source.flatten(2, 3)).view_as(decay)
    y: Tensor = (states @ C.unsqueeze(-1)).squeeze(-1)
    return y + skip * u


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("length", [1, 2, 33, 100])
def test_one_stream_equals_transformers(scan: Scan, length: int) -> None:
    values = [x.float() for x in arguments(2, length, 1, 5, 16)[:6]]
    truth = gradients(by_transformers, values)
    doubled = truth[0].double(), [x.double() for x in truth[1]]
    assert_close(gradients(scan, values), doubled, 1e-5)


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("length", [1, 2, 33, 100])
def test_streams_equal_the_parallel_scan_of_mambapy(scan: Scan, length: int) -> None:
    values = arguments(2, length, 3, 5, 7)[:6]
    assert_close(gradients(scan, values), gradients(by_pscan, values), 1e-10)


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("length", [1, 33, 400])
def test_constant_step_sizes_make_it_a_filter_of_scipy(scan: Scan, length: int) -> None:
    u, dt, A, B, C = arguments(1, length, 2, 3, 4)[:5]
    dt, B, C = (x[:, :1].expand(x.shape) for x in (dt, B, C))
    y = scan(u, dt, A, B, C)[0].numpy()
    for m in range(2):
        for d in range(3):
            step = float(dt[0, 0, m, d])
            expected = sum(
                float(C[0, 0, m, n] * B[0, 0, m, n])
                * step
                * lfilter([1.0], [1.0, -np.exp(step * float(A[m, d, n]))], u[0, :, m, d].numpy())
                for n in range(4)
            )
            np.testing.assert_allclose(y[:, m, d], expected, rtol=1e-9, atol=1e-12)
