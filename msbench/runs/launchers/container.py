"""Execution of the same command inside a container of docker, podman or apptainer.

Inside, paths are as typed: relative ones start at `HOME`, absolute ones stay as they are. The root is
read-only, there is no network, the user is the caller; only the data, the results and a private ``/tmp`` can
be written.
"""

import hashlib
import os
import posixpath
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msbench import datasets
from msbench.config import RunSpec
from msbench.console import command_line, encodable, say
from msbench.environment import CONTAINER
from msbench.errors import ConfigError, UnknownName
from msbench.results.files import encode_csv, parse_json
from msbench.runs.launchers import RunOptions
from msbench.runs.launchers.distributed import forward_signals
from msbench.runs.setup import setup_fetched_data
from msbench.runs.suite import load_suite

ENGINES = ("docker", "podman", "apptainer")
NO_IMAGE = ("no such image", "image not known")
"""Parts of the engines' messages for an image that they do not have; any other is of the engine itself."""
OWN = ("--container", "--image")
"""Options of this command that are not passed to the command inside."""

HOME = "/work"
DATA = "/data"
KERNELS = "/data/.cache/triton"
PASSED_ON = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_VISIBLE_DEVICES",
    "NO_COLOR",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TERM",
)
FAMILIES = ("MSBENCH_", "NCCL_")
"""Prefixes of variables that are passed on too."""
SHARED_MEMORY = "1g"  # for NCCL; an engine's default of 64 MB ends runs on several GPUs with a bus error


@dataclass(frozen=True)
class Image:
    """An image as its engine knows it; `digest` covers all of its content."""

    engine: str
    reference: str
    digest: str


@dataclass(frozen=True)
class Mount:
    """A file or folder of this machine and its path inside."""

    source: Path
    target: str
    writable: bool = True

    @property
    def words(self) -> tuple[str, str]:
        """The option, which all three engines parse as one line of CSV: a path may hold commas and quotes."""
        fields = ["type=bind", f"source={self.source}", f"destination={self.target}"]
        line = encode_csv(fields if self.writable else [*fields, "ro"], [])
        return ("--mount", line.decode().removesuffix("\n"))


@dataclass(frozen=True)
class ContainerCommand:
    """A command to run in an image, and what it gets of this machine."""

    image: Image
    words: Sequence[str]
    mounts: Sequence[Mount]
    variables: Mapping[str, str]
    user: tuple[int, int]
    gpu: bool = False
    terminal: bool = False
    host: str = ""

    @property
    def command(self) -> list[str]:
        """The engine's command line; it does not contain values of variables."""
        return self._build_apptainer() if self.image.engine == "apptainer" else self._build_docker()

    @property
    def environment(self) -> dict[str, str]:
        """Additions to the engine's own environment: the variables under the names that it looks for."""
        prefix = "APPTAINERENV_" if self.image.engine == "apptainer" else ""
        return {f"{prefix}{name}": value for name, value in self.variables.items()}

    def _build_docker(self) -> list[str]:
        podman = self.image.engine == "podman"
        words = [self.image.engine, "run", "--rm", "--read-only", "--network", "none"]
        words += ["--user", ":".join(map(str, self.user))]
        if podman and self.user[0] != 0:  # rootless podman maps users to other ids than this machine's
            words += ["--userns", "keep-id"]
        words += ["--cap-drop", "all", "--security-opt", "no-new-privileges"]
        words += ["--security-opt", "label=disable"]  # SELinux would hide the mounts, or relabel a whole home
        # exec: Triton loads its kernels from there.
        words += ["--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777"]
        words += ["--shm-size", SHARED_MEMORY, "--hostname", self.host]
        words += ["--interactive", "--tty"] if self.terminal else []
        if self.gpu:
            words += ["--device", "nvidia.com/gpu=all"] if podman else ["--gpus", "all"]
        words += [word for mount in self.mounts for word in mount.words]
        words += [word for name in self.variables for word in ("--env", name)]
        return [*words, "--workdir", HOME, self.image.digest, *self.words]

    def _build_apptainer(self) -> list[str]:
        # `exec` and not `run`: an image's run script is executed by a shell.
        words = ["apptainer", "exec", "--containall", "--no-home"]
        words += ["--net", "--network", "none", "--pwd", HOME]
        words += ["--nv"] if self.gpu else []
        words += [word for mount in self.mounts for word in mount.words]
        return [*words, self.image.reference, "msbench", *self.words]


def drop_container_options(arguments: Iterable[str]) -> list[str]:
    """Return the arguments of this command without those that sent it into a container."""
    left, words = iter(arguments), []
    for word in left:
        if word in OWN:
            next(left, None)
        elif word.partition("=")[0] not in OWN:
            words.append(word)
    return words


def resolve_inside(typed: str | Path) -> str:
    """Return the path inside that a typed path leads to."""
    return posixpath.normpath(posixpath.join(HOME, str(typed)))


def list_mounts(suites: Sequence[str], results: Path) -> list[Mount]:
    """Return mounts of the results, the data (at `DATA`) and the suites' files, as far as they exist."""
    loaded = {suite: load_suite(suite) for suite in suites}
    files = {suite: Path(each.source.name) for suite, each in loaded.items()}
    # The order matters: a job's copy of the suite is in the results, and is mounted over them read-only.
    wanted = [
        Mount(results.resolve(), resolve_inside(results)),
        Mount(datasets.data_root().resolve(), DATA),
        *(
            Mount(
                file.resolve(),
                resolve_inside(suite if Path(suite) == file else Path("suites") / file.name),
                writable=False,
            )
            for suite, file in files.items()
        ),
        *(
            Mount((each.folder / name).resolve(), resolve_inside(Path(suite).parent / name), writable=False)
            for suite, each in loaded.items()
            for name in each.list_own_files()
        ),
    ]
    return [mount for mount in wanted if mount.source.exists()]


def check_paths(words: Iterable[str], results: Path) -> None:
    """Raise ConfigError for paths that are not UTF-8: engines pass their arguments on as JSON."""
    for text in (*words, str(results.resolve()), str(datasets.data_root().resolve())):
        if text != encodable(text):
            raise ConfigError(
                f"--container: {text}: an engine takes no path that is not UTF-8; choose another"
            )


def select_variables(environ: Mapping[str, str], image: Image) -> dict[str, str]:
    """Return the variables of the command inside: msbench's own, a few more, and the image's identity.

    Compiled kernels are kept with the data, if these can be written: all else that a container writes is lost
    at its end.
    """
    kernels = {"TRITON_CACHE_DIR": KERNELS} if os.access(datasets.data_root(), os.W_OK) else {}
    own = {key: value for key, value in environ.items() if key.startswith(FAMILIES) or key in PASSED_ON}
    about = {"engine": image.engine, "image": image.reference, "digest": image.digest}
    return {
        **own,
        "MSBENCH_DATA": DATA,
        **kernels,
        **{CONTAINER[key]: value for key, value in about.items()},
    }


def wants_gpu(device: str, driver: Path = Path("/dev/nvidiactl")) -> bool:
    """Return True if the container gets the GPUs; ConfigError if ``cuda`` is requested without a driver."""
    there = driver.exists() or Path("/dev/dxg").exists()  # the latter is Windows' own
    if device == "cuda" and not there:
        raise ConfigError(
            f"--device cuda: no NVIDIA driver is loaded here (there is no {driver}), so no container can use"
            " a GPU; use --device cpu or auto"
        )
    return device != "cpu" and there


def name_default_image(engine: str, *, gpu: bool) -> str:
    """Return the name of the image in the recipes' own commands: a tag, or a file here."""
    flavour = "cuda" if gpu else "cpu"
    return f"msbench-{flavour}.sif" if engine == "apptainer" else f"msbench:{flavour}"


def check_engine(name: str) -> None:
    """Raise UnknownName for an unknown engine."""
    if name not in ENGINES:
        raise UnknownName("container engine", name, ENGINES, "--container")


def find_image(engine: str, reference: str) -> Image:
    """Return the engine's local image, fetching nothing; ConfigError if it or the engine is missing."""
    check_engine(engine)
    if shutil.which(engine) is None:
        raise ConfigError(
            f"--container {engine}: there is no program {engine} here; install it, or use another"
        )
    if engine != "apptainer":
        return Image(engine, reference, _inspect_digest(engine, reference))
    file = Path(reference).absolute()
    if not file.is_file():
        raise ConfigError(
            f"--image {reference}: there is no such file; make it with"
            " `apptainer build msbench-cpu.sif containers/apptainer.def` (see docs/containers.md)"
        )
    with file.open("rb") as stream:
        return Image(engine, str(file), f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}")


def _inspect_digest(engine: str, reference: str) -> str:
    """Return the engine's id of the image: sha256 of its configuration, which names all layers."""
    asked = [engine, "image", "inspect", "--", reference]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    reason = answer.stderr.strip() or "it did not say why"
    if answer.returncode != 0 and not any(text in reason.lower() for text in NO_IMAGE):
        raise ConfigError(
            f"--container {engine}: {engine} does not answer: {reason}; start it, or use another engine"
        )
    if answer.returncode != 0:
        raise ConfigError(
            f"--image {reference}: {engine} has no such image: build it as in docs/containers.md, or pull it"
            f" ({reason})"
        )
    try:
        found = str(parse_json(answer.stdout)[0]["Id"]).removeprefix("sha256:")
    except (ValueError, LookupError, TypeError):
        found = ""
    if len(found) != 64 or set(found) - set("0123456789abcdef"):
        raise ConfigError(
            f"--image {reference}: {engine} does not say which image that is: {answer.stdout[:200]!r}"
        )
    return f"sha256:{found}"


def run_in_container(specs: Sequence[RunSpec], options: RunOptions, arguments: Sequence[str]) -> int:
    """Run this command line, `arguments`, without its ``--container`` in an image; return its exit code.

    Data that have to be fetched are set up first: inside there is no network.
    """
    assert options.container is not None, "only called with --container"
    check_paths(arguments, options.results)
    gpu = wants_gpu(options.device)
    image = find_image(options.container, options.image or name_default_image(options.container, gpu=gpu))
    if not options.dry_run:
        code = setup_fetched_data(specs, quiet=options.quiet)
        if code:
            return code
        for folder in (options.results, datasets.data_root()):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(f"{folder}: cannot be made: {error.strerror}") from None
    command = ContainerCommand(
        image=image,
        words=drop_container_options(arguments),
        mounts=list_mounts(options.suites, options.results),
        variables=select_variables(os.environ, image),
        user=(os.getuid(), os.getgid()),
        gpu=gpu,
        terminal=all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)),
        host=socket.gethostname(),
    )
    if not options.quiet:
        say(f"msbench: {command_line(command.command)}")
    return run_command(command)


def run_command(command: ContainerCommand) -> int:
    """Run the command inside, pass on every signal that arrives here, and return its exit code."""
    # A separate session: otherwise a terminal's signal to all would arrive twice, and the second one kills.
    # An engine that has the terminal gets its keys, not its signals.
    own = not command.terminal
    environment = {**os.environ, **command.environment}
    process = subprocess.Popen(command.command, env=environment, start_new_session=own)
    with process, forward_signals([process]):
        code = process.wait()
    # A negative code: the engine itself was ended by the signal that it passed on.
    return 128 - code if code < 0 else code
