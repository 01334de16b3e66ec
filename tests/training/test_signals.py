"""Signals become a flag; the handlers before are put back."""

import os
import signal

import pytest

from msbench.errors import ExitCode, Interrupted
from msbench.training.signals import SignalFlag


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, ExitCode.INTERRUPTED),
        (signal.SIGTERM, ExitCode.TERMINATED),
        (signal.SIGUSR1, ExitCode.TERMINATED),
        (signal.SIGHUP, ExitCode.TERMINATED),
    ],
)
def test_a_signal_is_noticed_at_the_next_check(number: signal.Signals, code: ExitCode) -> None:
    before = signal.getsignal(number)
    with SignalFlag() as flag:
        flag.check()
        os.kill(os.getpid(), number)
        with pytest.raises(Interrupted) as caught:
            flag.check()
    assert caught.value.exit_code == code
    assert signal.getsignal(number) is before
