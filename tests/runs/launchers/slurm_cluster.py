"""A Slurm of one node, started for a test: own configuration, ports, key and state, in one folder."""

import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("sbatch", "squeue", "scontrol", "scancel", "sinfo", "srun")
CPUS = 6
CONFIGURATION = """\
ClusterName=msbench-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
KillWait=60
ReturnToService=2
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=4000 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES State=UP PriorityTier=1
PartitionName=high Nodes=ALL State=UP PriorityTier=2 PreemptMode=OFF
"""


def missing() -> str:
    """Why a Slurm cannot be started here; empty where it can."""
    # Daemons are where the PATH of a user does not lead.
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    absent = [name for name in (*DAEMONS, *CLIENTS) if shutil.which(name, path=path) is None]
    if absent:
        return f"no {', '.join(absent)}: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "slurmctld and slurmd are started as root only"


@contextmanager
def started(folder: Path) -> Iterator[None]:
    """A Slurm in `folder`, answering to ``SLURM_CONF``; all that was started is ended."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(256))
    key.chmod(0o400)
    host = platform.node().partition(".")[0]
    text = CONFIGURATION.format(folder=folder, host=host, ports=_free_ports(), cpus=CPUS)
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    munge = {name: f"--{name}={folder / name}" for name in ("pid-file", "log-file", "seed-file")}
    own = [f"--socket={folder / 'munge.socket'}", f"--key-file={key}", *munge.values()]
    processes = [_start(folder, "munged", "--foreground", "--force", *own)]
    try:
        until(lambda: (folder / "munge.socket").exists(), "munged to listen")
        processes += [_start(folder, "slurmctld", "-D"), _start(folder, "slurmd", "-D", "-N", host)]
        until(lambda: "idle" in slurm("sinfo", "-h", "-o", "%T", check=False), "the node to be idle")
        yield
    finally:
        if len(processes) > 1:
            slurm("scancel", "--signal=KILL", "--user=root", check=False)
            until(lambda: not slurm("squeue", "-h", check=False), "the queue to be empty", fail=False)
        for process in reversed(processes):
            process.terminate()
            process.wait(timeout=30)


def slurm(*words: str, check: bool = True) -> str:
    """What one of Slurm's commands prints."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert not (check and done.returncode), (words, done.stderr)
    return done.stdout.strip()


def until(reached: Callable[[], bool], what: str, seconds: float = 120, *, fail: bool = True) -> None:
    """Wait for a condition; AssertionError, naming it, where it never comes."""
    end = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > end:
            assert not fail, f"waited {seconds} s for {what}"
            return
        time.sleep(0.1)


def _start(folder: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    path = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert path is not None
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen([path, *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL)


def _free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in (one, other)]
