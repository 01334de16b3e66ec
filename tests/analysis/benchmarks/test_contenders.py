"""Who takes part, and at what size."""

import pytest
from bench_cases import contender

from msbench.analysis.benchmarks.contenders import BASELINE, PEER, PEERS, contenders
from msbench.analysis.benchmarks.problem import Size
from msbench.errors import UnknownName
from msbench.ops.scan.dispatch import KERNELS

BIG = Size(8, 1024, 5, 128, 26)


def test_all_kernels_and_peers_take_part() -> None:
    names = [one.name for one in contenders()]
    assert names[: len(KERNELS)] == list(KERNELS)
    assert set(names) == {*KERNELS, *PEERS}
    assert {BASELINE, PEER} <= set(names)


def test_only_those_that_are_asked_for() -> None:
    assert [one.name for one in contenders(("mambapy", "torch"))] == ["torch", "mambapy"]
    with pytest.raises(UnknownName, match="--only: unknown implementation 'mambopy'; did you mean 'mambapy'"):
        contenders(("mambopy",))


def test_a_batch_shrinks_until_half_of_the_memory_is_enough() -> None:
    one = contender("a")
    assert one.fitted(BIG, 10**12) == (BIG, "")
    need = one.bytes(Size(2, 1024, 5, 128, 26))
    size, note = one.fitted(BIG, 2 * need)
    assert size == Size(2, 1024, 5, 128, 26)
    assert note == "b 8 would take more than half of the free memory"
    none, why = one.fitted(BIG, 10**8)
    assert none is None
    assert "one example takes about 0.2 GB, more than half of the 0.1 GB free" in why


def test_a_longest_sequence_is_kept_to_and_said() -> None:
    one = contender("a", longest=128, why="quadratic")
    assert one.fitted(BIG, 10**12) == (Size(1, 128, 5, 128, 26), "quadratic")
    short = Size(8, 100, 5, 128, 26)
    assert one.fitted(short, 10**12) == (short, "")


@pytest.mark.parametrize("name", PEERS)
def test_estimates_of_memory_grow_with_the_states(name: str) -> None:
    assert PEERS[name].bytes(BIG) > 4 * BIG.states
