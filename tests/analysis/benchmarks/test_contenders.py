"""The implementations of the scan: which take part, at what size, and that they compute the problem."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from bench_cases import SMALL, contender
from torch import Tensor

from msbench.analysis.benchmarks import contenders
from msbench.analysis.benchmarks.contenders import BASELINE, PEER, PEERS, choose_contenders
from msbench.analysis.benchmarks.problem import ScanReference, Size, make_problem, run_both
from msbench.errors import UnknownName
from msbench.ops.scan.dispatch import KERNELS

BIG = Size(8, 1024, 5, 128, 26)


def test_all_kernels_and_peers_take_part() -> None:
    names = [one.name for one in choose_contenders()]
    assert names[: len(KERNELS)] == list(KERNELS)
    assert set(names) == {*KERNELS, *PEERS}
    assert {BASELINE, PEER} <= set(names)


def test_only_the_requested_take_part() -> None:
    assert [one.name for one in choose_contenders(("mambapy", "torch"))] == ["torch", "mambapy"]
    with pytest.raises(UnknownName, match="--only: unknown implementation 'mambopy'; did you mean 'mambapy'"):
        choose_contenders(("mambopy",))


def test_a_batch_shrinks_until_half_of_the_memory_is_enough() -> None:
    one = contender("a")
    assert one.fit(BIG, 10**12) == (BIG, "")
    need = one.needed_bytes(Size(2, 1024, 5, 128, 26))
    size, note = one.fit(BIG, 2 * need)
    assert size == Size(2, 1024, 5, 128, 26)
    assert note == "b 8 would take more than half of the free memory"
    none, why = one.fit(BIG, 10**8)
    assert none is None
    assert "one example takes about 0.2 GB, more than half of the 0.1 GB free" in why


def test_a_longest_sequence_is_kept_to_and_noted() -> None:
    one = contender("a", longest=128, why="quadratic")
    assert one.fit(BIG, 10**12) == (Size(1, 128, 5, 128, 26), "quadratic")
    short = Size(8, 100, 5, 128, 26)
    assert one.fit(short, 10**12) == (short, "")


@pytest.mark.parametrize("name", PEERS)
def test_estimates_of_memory_grow_with_the_states(name: str) -> None:
    assert PEERS[name].needed_bytes(BIG) > 4 * BIG.states


def tree(decay: Tensor, write: Tensor) -> Tensor:
    """accelerated-scan's own reference, which has the layout of its kernel and runs anywhere."""
    from accelerated_scan.ref import scan

    found: Tensor = scan(decay, write)
    return found


SCANS: dict[str, Callable[..., Tensor]] = {
    "mambapy": contenders.scan_mambapy,
    "transformers": contenders.scan_transformers,
    "accelerated-scan": lambda arguments: contenders.scan_accelerated(arguments, tree),
}


CASES = [(name, length) for name in SCANS for length in (1, 19, 32)]
CASES.remove(("accelerated-scan", 1))  # its reference has no tree of one leaf


@pytest.mark.parametrize(("name", "length"), CASES)
def test_outputs_and_gradients_are_those_of_the_reference(name: str, length: int) -> None:
    pytest.importorskip(name.replace("-", "_"))
    assert PEERS["transformers"].missing("cpu") == ""
    size = Size(2, length, 3, 5, 4)
    whole = make_problem(size, "cpu")
    errors = ScanReference(whole, "cpu").errors(SCANS[name], size, run_both(SCANS[name], whole))
    assert max(errors.values()) < 1e-5, errors


def test_without_skip_and_mixer_they_still_scan() -> None:
    from msbench.ops.scan.reference import selective_scan_reference

    u, dt, A, B, C, _, _ = (x.detach() for x in make_problem(SMALL, "cpu").arguments)
    arguments: Any = (u, dt, A, B, C, None, None)
    expected = selective_scan_reference(*arguments)
    for scan in SCANS.values():
        torch.testing.assert_close(scan(arguments), expected, rtol=1e-4, atol=1e-5)


def test_a_kernel_of_the_gpu_says_so_on_a_cpu() -> None:
    assert "needs a CUDA device" in PEERS["accelerated-scan"].missing("cpu")


def test_what_is_not_installed_says_how_to_install_it() -> None:
    found = contenders.explain_missing("no-such-distribution", lambda: None)
    assert found == "not installed: pip install 'msssm-bench[peers]'"


def test_what_cannot_be_imported_says_why() -> None:
    def load() -> None:
        raise ImportError("undefined symbol")

    found = contenders.explain_missing("torch", load)
    assert found.startswith("torch 2.")
    assert found.endswith("cannot be used: ImportError: undefined symbol")


def test_labels_have_versions() -> None:
    assert PEERS["mambapy"].label().startswith("mambapy 1.")
