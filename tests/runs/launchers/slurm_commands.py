"""Slurm's commands as far as a submission needs them: scripts on PATH that note what they are given."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest

SBATCH = """\
#!/bin/bash
cp "$1" "{folder}/script.sh"
env > "{folder}/environment"
echo submitted >> "{folder}/submissions"
[ -e "{folder}/refuse" ] && {{ echo "sbatch: error: invalid partition" >&2; exit 1; }}
echo "Submitted batch job 77"
"""
SQUEUE = """\
#!/bin/bash
echo asked >> "{folder}/questions"
[ -e "{folder}/away" ] && {{ echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }}
cat "{folder}/queue"
"""
SCONTROL = """\
#!/bin/bash
echo "$@" >> "{folder}/requeues"
"""


@dataclass(frozen=True)
class Commands:
    """A folder with the commands, and what they were given."""

    folder: Path

    @property
    def script(self) -> str:
        """The last batch script."""
        return (self.folder / "script.sh").read_text(encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the last submission."""
        lines = (self.folder / "environment").read_text(encoding="utf-8").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    @property
    def requeued(self) -> list[str]:
        """What scontrol was asked to do."""
        path = self.folder / "requeues"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def times(self, what: str) -> int:
        """How often there were ``submissions`` or ``questions``."""
        path = self.folder / what
        return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0

    def queue(self, *lines: str) -> None:
        """What squeue is to answer."""
        (self.folder / "queue").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def has(self, name: str) -> None:
        """Raise a flag: ``refuse`` or ``away``."""
        (self.folder / name).touch()


def install(folder: Path, patch: pytest.MonkeyPatch) -> Commands:
    """Put the commands in front of PATH."""
    folder.mkdir()
    for name, text in {
        "sbatch": SBATCH,
        "squeue": SQUEUE,
        "scontrol": SCONTROL,
        "srun": "#!/bin/sh\n",
    }.items():
        path = folder / name
        path.write_text(text.format(folder=folder), encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    commands = Commands(folder)
    commands.queue()
    return commands
