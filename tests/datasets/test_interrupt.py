"""A signal to a whole process group, as Slurm and a terminal send it, in the middle of generating."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = """\
import sys
from pathlib import Path

if __name__ == "__main__":
    from msbench import datasets as data
    from msbench.errors import MsbenchError
    from msbench.config.data import ListOpsConfig
    from msbench.training.signals import SignalFlag

    with SignalFlag() as signals:
        def progress(what, done, total):
            print(what, flush=True)
            signals.check()
        try:
            data.setup(ListOpsConfig(train=10**6), Path(sys.argv[1]), processes=2, progress=progress)
        except MsbenchError as error:
            print(error, file=sys.stderr)
            sys.exit(error.exit_code)
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
@pytest.mark.parametrize("delay", [0.0, 0.1, 0.5], ids=["starting", "importing", "working"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_ends_the_parent_alone_and_nothing_partial_is_left(
    number: signal.Signals, code: int, delay: float, tmp_path: Path
) -> None:
    """The first line says that generating begins: workers start then, import for a while, and work."""
    script = tmp_path / "generate.py"
    script.write_text(SCRIPT)
    with subprocess.Popen(
        [sys.executable, script, tmp_path / "root"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert "generating" in process.stdout.readline()
        assert list((tmp_path / "root").rglob(".*building*"))
        time.sleep(delay)
        os.killpg(process.pid, number)
        _, messages = process.communicate(timeout=60)
    assert (process.returncode, "saved" in messages) == (code, True), messages
    assert list((tmp_path / "root").rglob(".*building*")) == []
