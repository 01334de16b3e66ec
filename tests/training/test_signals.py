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


def test_the_same_signal_passed_on_at_once_is_one_and_later_it_kills() -> None:
    killed: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with SignalFlag(once=60.0) as flag:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            assert flag.received == signal.SIGTERM
            assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN)
            flag.once = 1e-9
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(signal, "raise_signal", killed.append)
                os.kill(os.getpid(), signal.SIGTERM)
            assert killed == [signal.SIGTERM]
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_first_process_of_a_container_ends_at_a_second_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    number, send = os.getpid(), os.kill
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with SignalFlag() as flag:
        send(number, signal.SIGTERM)
        assert (flag.received, left) == (signal.SIGTERM, [])
        send(number, signal.SIGTERM)
        assert left == [143]
    assert signal.getsignal(signal.SIGTERM) is before
