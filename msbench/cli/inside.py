"""Execution of a command inside a container: its data are set up first, then the engine is called."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from msbench import console
from msbench.console import command_line
from msbench.errors import ConfigError

if TYPE_CHECKING:
    from msbench.config import RunSpec


def check_options(engine: str | None, image: str | None) -> None:
    """Raise ConfigError for an image without an engine, and for an engine in one of several processes."""
    from msbench.runs.launchers.devices import check_single

    if image is not None and engine is None:
        raise ConfigError("--image goes with --container docker, podman or apptainer")
    if engine is not None:
        check_single("--container")


def enter(
    engine: str,
    image: str | None,
    specs: "list[RunSpec]",
    suite: str,
    results: Path,
    device: str,
    *,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Run this command line without its ``--container`` in an image, and exit with its code.

    Data that have to be fetched are set up first: inside there is no network.
    """
    from msbench.runs.launchers import container

    container.check_paths(sys.argv[1:], results)
    gpu = container.wants_gpu(device)
    found = container.image_of(engine, image or container.default_image(engine, gpu=gpu))
    if not dry_run:
        _make_ready(specs, results, quiet=quiet)
    user, host = container.this_machine()
    inside = container.Inside(
        image=found,
        words=container.words_inside(sys.argv[1:]),
        mounts=container.mounts(suite, results),
        variables=container.variables(os.environ, found),
        user=user,
        gpu=gpu,
        terminal=all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)),
        host=host,
    )
    if not quiet:
        console.say(f"msbench: {command_line(inside.command)}")
    raise typer.Exit(container.run(inside))


def _make_ready(specs: "list[RunSpec]", results: Path, *, quiet: bool) -> None:
    from msbench import datasets as data
    from msbench.runs import setup as provision

    code = provision.bring(specs, quiet=quiet)
    if code:
        raise typer.Exit(code)
    for folder in (results, data.data_root()):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder}: cannot be made: {error.strerror}") from None
