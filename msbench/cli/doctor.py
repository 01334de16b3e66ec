"""Capabilities of this machine, and the kernels that would be used, with reasons."""

import os
import shutil

from msbench import __version__, ops
from msbench import datasets as data
from msbench.environment import describe_environment
from msbench.errors import ConfigError
from msbench.ops import native_library


def findings() -> list[tuple[str, str]]:
    """Return pairs of a topic and its finding, in reading order."""
    found = describe_environment()
    packages = found["packages"]
    git = found["git"]
    root = data.data_root()
    return [
        (
            "msbench",
            __version__ + (f" at {git['commit'][:12]}{' (changed)' if git['dirty'] else ''}" if git else ""),
        ),
        ("python", found["python"]),
        ("platform", found["platform"]),
        ("cpu", f"{found['cpu']}, {found['cores']} cores, {found['threads']} threads"),
        ("torch", f"{packages.get('torch')} for CUDA {found['cuda']}"),
        ("gpus", ", ".join(found["gpus"]) or "none: runs use the CPU"),
        *_kernels("cpu"),
        *([("threads of cpp", native_library.describe_threads())] if native_library.load_library() else []),
        *(_kernels("cuda") if found["gpus"] else []),
        ("triton", packages.get("triton", "not installed")),
        ("mamba-ssm", packages.get("mamba-ssm", "not installed: optional, not needed")),
        ("data", f"{root}, {_free(root)} free"),
    ]


def _kernels(device: str) -> list[tuple[str, str]]:
    """Return the scan kernel of a device type, and the reason why each faster kernel is not used."""
    try:
        choice = ops.choose_kernel(device)
    except ConfigError as error:  # a kernel is forced that this device type does not support; another may
        return [(f"scan on {device}", f"none: {error}")]
    forced = f", forced by {ops.VARIABLE}" if ops.requested_kernel() != "auto" else ""
    return [
        (f"scan on {device}", choice.label + forced),
        *((f"not {engine} on {device}", why) for engine, why in choice.passed_over.items()),
    ]


def _free(path: os.PathLike[str]) -> str:
    """Return the free space at the nearest folder that exists."""
    folder = os.path.abspath(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return f"{shutil.disk_usage(folder).free / 1e9:.0f} GB"
