"""Write the locks: every package of each image, pinned and hashed. Run by ``make lock``.

Only resolves, installs nothing. Pins of a lock that is there are kept where they still satisfy
pyproject.toml; ``--upgrade`` takes the newest of each.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXTRAS = ("slurm", "peers")
"""Extras of the package that every image has."""

# An image is of one kind of machine and of the Python of its base.
TARGET = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28")
QUIET = ("--quiet", "--generate-hashes", "--no-header", "--no-emit-index-url", "--no-emit-find-links")

# torch's packages on PyPI are CUDA builds; those for CPUs have an index and versions of their own.
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CPU = ("torch==2.13.0+cpu",)
BUILD = ("setuptools>=77",)
# The compiler that PyTorch's own CUDA libraries belong to: a mamba-ssm of another CUDA does not load.
MAMBA_BUILD = ("cuda-toolkit[nvcc,cccl]==13.0.3.0", "ninja")


def asked(project: dict[str, object], lock: str) -> list[str]:
    """The requirements that the lock of this name answers, as they stand in pyproject.toml and above."""
    metadata = project["project"]
    assert isinstance(metadata, dict)
    extras: dict[str, list[str]] = metadata["optional-dependencies"]
    run: list[str] = metadata["dependencies"] + [text for name in EXTRAS for text in extras[name]]
    mamba = [*run, *extras["mamba"]]
    return {"build": [*BUILD], "cpu": [*run, *CPU], "cuda": run, "mamba": [*mamba, *MAMBA_BUILD]}[lock]


def digest(requirements: list[str]) -> str:
    """What the head of a lock says of what it was made from."""
    return hashlib.sha256(json.dumps(sorted(requirements)).encode()).hexdigest()


def head(requirements: list[str]) -> str:
    """The first lines of a lock."""
    inputs = f"# inputs: sha256:{digest(requirements)}"
    return f"# Made by `make lock` from pyproject.toml; not to be edited.\n{inputs}\n"


def resolve(name: str, project: dict[str, object], options: list[str]) -> None:
    """Write ``requirements-<name>.txt``, all of it or nothing."""
    lock = HERE / f"requirements-{name}.txt"
    wanted = asked(project, name)
    with tempfile.TemporaryDirectory() as folder:
        made, inputs = Path(folder) / "lock.txt", Path(folder) / "inputs.in"
        inputs.write_text("\n".join(wanted) + "\n", encoding="utf-8")
        if lock.exists():
            made.write_text(lock.read_text(encoding="utf-8"), encoding="utf-8")
        command = [sys.executable, "-m", "uv", "pip", "compile", *QUIET, *TARGET, *options]
        subprocess.run(
            [*command, str(inputs), "--output-file", str(made)], check=True, stdout=subprocess.DEVNULL
        )
        text = re.sub(r"^ +# .*\n", "", made.read_text(encoding="utf-8"), flags=re.MULTILINE)
    whole = lock.with_suffix(".new")
    whole.write_text(head(wanted) + text, encoding="utf-8", newline="\n")
    whole.replace(lock)
    sys.stdout.write(f"{lock.name}: {len(re.findall('^[a-z0-9]', text, re.MULTILINE))} packages\n")


def main() -> None:
    """Resolve every lock; the CUDA one first, which mamba-ssm's has to agree with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest of each")
    parser.add_argument("--find-links", help="folder with the CPU build of torch, instead of its index")
    given = parser.parse_args()
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    upgrade = ["--upgrade"] if given.upgrade else []
    source = ["--find-links", given.find_links] if given.find_links else ["--extra-index-url", CPU_INDEX]
    resolve("build", project, upgrade)
    resolve("cpu", project, [*upgrade, *source])
    resolve("cuda", project, upgrade)
    resolve("mamba", project, [*upgrade, "--constraint", str(HERE / "requirements-cuda.txt")])


if __name__ == "__main__":
    main()
