import numpy as np
import pytest

from msbench.datasets.listops import collect as listops_collect
from msbench.datasets.listops.collect import collect
from msbench.datasets.listops.generate import Grammar
from msbench.errors import DataError, Interrupted

SMALL = Grammar(min_length=3, max_length=60, max_depth=5, max_args=5, seed=0)


def expressions(grammar: Grammar, wanted: int, processes: int = 1) -> list[bytes]:
    tokens, offsets, _ = collect(grammar, wanted, processes=processes).examples
    return [part.tobytes() for part in np.split(tokens, offsets[1:-1])]


def test_expressions_are_different_and_the_first_of_a_longer_list() -> None:
    found = expressions(SMALL, 3_000)
    assert len(set(found)) == len(found) == 3_000
    assert expressions(SMALL, 100) == found[:100]


def test_duplicates_are_counted_and_dropped() -> None:
    collected = collect(Grammar(0, 5, 2, 2, seed=0), 400, processes=1)
    assert len(collected.examples.labels) == 400, "there are 410: ten digits and four operators of two digits"
    assert collected.duplicates > 400


def test_two_processes_give_what_one_gives() -> None:
    assert expressions(SMALL, 5_000, processes=2) == expressions(SMALL, 5_000)


def test_all_ten_digits_can_be_had_but_not_eleven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listops_collect, "WINDOW", 2**14)
    digits = Grammar(0, 2, 3, 3, seed=0)
    assert len(expressions(digits, 10)) == 10
    with pytest.raises(DataError, match=r"11 different expressions are wanted, 10 were found.*brought 0 new"):
        # the first window finds all ten, the second none
        collect(digits, 11, processes=1)


def test_bounds_that_no_length_satisfies_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listops_collect, "WINDOW", 2**14)
    with pytest.raises(DataError, match="strictly between 1 and 4 tokens, max_depth 3 and max_args 3"):
        collect(Grammar(1, 4, 3, 3, seed=0), 1, processes=1)


def test_a_length_beyond_the_grammar_is_refused_at_once() -> None:
    with pytest.raises(
        DataError, match=r"no expression is longer than min_length 500.*the longest has 37 tokens"
    ):
        collect(Grammar(500, 2000, max_depth=3, max_args=5, seed=0), 1)


def test_a_length_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(DataError, match="max_length 1,000,000 is above 100,000"):
        collect(Grammar(500, 1_000_000, 10, 10, seed=0), 1)


def test_progress_counts_to_the_end_and_may_interrupt() -> None:
    seen: list[tuple[str, int, int]] = []
    collect(SMALL, 500, processes=1, progress=lambda *step: seen.append(step))
    assert seen[0] == ("generating listops", 0, 500)
    assert seen[-1] == ("generating listops", 500, 500)

    def stop(_stage: str, _done: int, _total: int) -> None:
        raise Interrupted(15)

    with pytest.raises(Interrupted):
        collect(SMALL, 5_000, processes=2, progress=stop)
