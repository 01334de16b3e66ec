"""The exit codes, the tree that the docstring draws, and near names."""

import re
import signal
from typing import get_args

import pytest

from msbench import errors
from msbench.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    Diverged,
    ExitCode,
    GateFailed,
    Interrupted,
    MsbenchError,
    OutOfMemory,
    RunError,
    Undecided,
    UnknownName,
    suggest_name,
)
from msbench.results.record import Status


def tree(cls: type[MsbenchError] = MsbenchError) -> list[type[MsbenchError]]:
    return [
        cls,
        *(
            each
            for below in cls.__subclasses__()
            for each in tree(below)
            if each.__module__ == errors.__name__
        ),
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MsbenchError("x"), 1),
        (ConfigError("x"), 2),
        (UnknownName("model", "x", []), 2),
        (RunError("x"), 3),
        (Diverged(3, "loss", float("nan")), 3),
        (OutOfMemory("x"), 3),
        (CheckpointError("x"), 3),
        (GateFailed("x"), 4),
        (Undecided("x"), 5),
        (DataError("x"), 6),
        (Interrupted(signal.SIGINT), 130),
        (Interrupted(signal.SIGTERM), 143),
    ],
)
def test_exit_code(error: MsbenchError, code: int) -> None:
    assert error.exit_code == code
    assert isinstance(error.exit_code, ExitCode)


def test_no_class_but_the_root_ends_like_a_crash() -> None:
    assert all(cls.exit_code != ExitCode.INTERNAL for cls in tree() if cls not in (MsbenchError, Interrupted))


def test_docstring_draws_the_tree() -> None:
    drawn: dict[str, tuple[str | None, str]] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^([ │├└─]{4,})([A-Z]\w+)(?: +([\d/]+)  )?", line)
        if match is None:
            continue
        depth = len(match[1])
        above = [(level, name) for level, name in above if level < depth]
        drawn[match[2]] = (above[-1][1] if above else None, match[3] or "1")
        above.append((depth, match[2]))
    assert drawn == {
        cls.__name__: (
            None if cls is MsbenchError else cls.__bases__[0].__name__,
            "130/143" if cls is Interrupted else str(int(cls.exit_code)),
        )
        for cls in tree()
    }


def test_every_failed_status_is_one_that_a_record_may_have() -> None:
    statuses = {cls.status for cls in tree() if hasattr(cls, "status")}
    assert statuses == set(get_args(Status)) - {"finished"}


def test_diverged_says_where() -> None:
    error = Diverged(12, "blocks.0.weight", float("inf"))
    assert (error.step, error.name) == (12, "blocks.0.weight")
    assert str(error) == "not finite at step 12: blocks.0.weight is inf"


def test_unknown_name_offers_the_nearest_and_lists_the_rest() -> None:
    error = UnknownName("model", "mmba", ["msssm-s6", "mamba"], "suites/x.yaml:3")
    assert str(error) == "suites/x.yaml:3: unknown model 'mmba'; did you mean 'mamba'? known: mamba, msssm-s6"


def test_no_name_is_suggested_where_nothing_is_near() -> None:
    assert suggest_name("zzz", ["lr", "epochs"]) == ""
    assert suggest_name("lrr", ["lr", "epochs"]) == "; did you mean 'lr'?"
