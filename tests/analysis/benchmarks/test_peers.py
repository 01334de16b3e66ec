"""Peers compute the problem that they are measured on; reasons where they cannot."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from bench_cases import SMALL
from torch import Tensor

from msbench.analysis.benchmarks import peers
from msbench.analysis.benchmarks.accuracy import Truth
from msbench.analysis.benchmarks.contenders import PEERS
from msbench.analysis.benchmarks.problem import problem, results


def tree(decay: Tensor, write: Tensor) -> Tensor:
    """accelerated-scan's own reference, which has the layout of its kernel and runs anywhere."""
    from accelerated_scan.ref import scan

    found: Tensor = scan(decay, write)
    return found


SCANS: dict[str, Callable[..., Tensor]] = {
    "mambapy": peers.mambapy,
    "transformers": peers.transformers,
    "accelerated-scan": lambda arguments: peers.accelerated(arguments, tree),
}


CASES = [(name, length) for name in SCANS for length in (1, 19, 32)]
CASES.remove(("accelerated-scan", 1))  # its reference has no tree of one leaf


@pytest.mark.parametrize(("name", "length"), CASES)
def test_outputs_and_gradients_are_those_of_the_reference(name: str, length: int) -> None:
    pytest.importorskip(name.replace("-", "_"))
    assert PEERS["transformers"].missing("cpu") == ""
    size = SMALL.__class__(2, length, 3, 5, 4)
    whole = problem(size, "cpu")
    errors = Truth(whole, "cpu").errors(SCANS[name], size, results(SCANS[name], whole))
    assert max(errors.values()) < 1e-5, errors


def test_without_skip_and_mixer_they_still_scan() -> None:
    from msbench.ops.scan.reference import selective_scan_reference

    u, dt, A, B, C, _, _ = (x.detach() for x in problem(SMALL, "cpu").arguments)
    arguments: Any = (u, dt, A, B, C, None, None)
    expected = selective_scan_reference(*arguments)
    for scan in SCANS.values():
        torch.testing.assert_close(scan(arguments), expected, rtol=1e-4, atol=1e-5)


def test_a_kernel_of_the_gpu_says_so_on_a_cpu() -> None:
    assert "needs a CUDA device" in PEERS["accelerated-scan"].missing("cpu")


def test_what_is_not_installed_says_how_to_install_it() -> None:
    found = peers.missing("no-such-distribution", lambda: None)
    assert found == "not installed: pip install 'msbench[peers]'"


def test_what_cannot_be_imported_says_why() -> None:
    def load() -> None:
        raise ImportError("undefined symbol")

    found = peers.missing("torch", load)
    assert found.startswith("torch 2.")
    assert found.endswith("cannot be used: ImportError: undefined symbol")


def test_labels_have_versions() -> None:
    assert PEERS["mambapy"].label().startswith("mambapy 1.")
