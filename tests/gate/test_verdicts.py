from typing import get_args

import pytest

from msbench.errors import ExitCode
from msbench.gate.verdicts import MEANINGS, PRECEDENCE, find_exit_code
from msbench.reporting.tables.cells import Verdict

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


def test_every_verdict_has_its_place_everywhere() -> None:
    assert set(MEANINGS) == set(VERDICTS)
    assert {code for _, code in MEANINGS.values() if code} <= set(PRECEDENCE)


def test_only_what_holds_or_is_excused_ends_in_0() -> None:
    assert {verdict for verdict in VERDICTS if not find_exit_code([verdict])} == {"pass", "improved", "xfail"}
    assert {verdict for verdict in VERDICTS if not find_exit_code([verdict], strict=True)} == {
        "pass",
        "xfail",
    }


@pytest.mark.parametrize(
    ("verdicts", "options", "code"),
    [
        (("pass", "improved", "xfail"), {}, ExitCode.OK),
        (("pass", "fail"), {}, ExitCode.GATE_FAILED),
        (("pass", "chance-level"), {}, ExitCode.GATE_FAILED),
        (("trivial-rule",), {}, ExitCode.GATE_FAILED),
        (("diverged",), {}, ExitCode.GATE_FAILED),
        (("invalid",), {}, ExitCode.GATE_FAILED),
        (("pass", "inconclusive"), {}, ExitCode.UNDECIDED),
        (("pass", "missing"), {}, ExitCode.UNDECIDED),
        ((), {}, ExitCode.UNDECIDED),
        (("missing",), {"crashed": True}, ExitCode.RUN_FAILED),
        (("other-data",), {}, ExitCode.DATA),
        (("fail", "inconclusive"), {}, ExitCode.GATE_FAILED),
        (("fail", "missing"), {"crashed": True}, ExitCode.RUN_FAILED),
        (("other-data", "fail", "missing"), {"crashed": True}, ExitCode.DATA),
        (("pass", "inconclusive"), {"strict": True}, ExitCode.GATE_FAILED),
        (("missing",), {"strict": True}, ExitCode.GATE_FAILED),
        (("pass", "improved"), {"strict": True}, ExitCode.GATE_FAILED),
        ((), {"strict": True}, ExitCode.GATE_FAILED),
        (("pass", "xfail"), {"strict": True}, ExitCode.OK),
        (("other-data",), {"strict": True}, ExitCode.DATA),
    ],
)
def test_the_most_fundamental_decides(
    verdicts: tuple[Verdict, ...], options: dict[str, bool], code: ExitCode
) -> None:
    assert find_exit_code(verdicts, **options) is code
    assert find_exit_code(reversed(verdicts), **options) is code
