"""The command itself: options that verbs share, and their handling of errors."""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer

from msbench import __version__, console
from msbench.errors import ExitCode, MsbenchError, explain_unusable

if TYPE_CHECKING:
    from msbench.config import RunSpec

P = ParamSpec("P")
T = TypeVar("T")
MOST = 2**16
"""Limit of processes, devices and threads: more than any machine has, and accepted by each library."""

app = typer.Typer(
    name="msbench",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: boxes drawn by rich take as long as all the rest of --help
    help="Benchmark suite and reproducibility harness for MS-SSM.",
    epilog=(
        "Exit codes: 0 done · 2 usage or configuration · 3 a run failed · 4 the gate failed · "
        "5 undecided or nothing measured · 6 data missing or damaged · 130/143 interrupted"
    ),
)

Results = Annotated[Path, typer.Option(help="Folder of the runs.")]
Json = Annotated[bool, typer.Option("--json/--no-json", help="One JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")]
Models = Annotated[list[str] | None, typer.Option("--model", help="Only this model; repeatable.")]
Tasks = Annotated[list[str] | None, typer.Option("--task", help="Only this task; repeatable.")]
Seeds = Annotated[
    list[int] | None, typer.Option("--seed", help="This seed instead of the suite's; repeatable.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override, such as train.lr=1e-3; repeatable."),
]
Scan = Annotated[
    str | None, typer.Option(help="Scan kernel: auto, triton, cpp, torch, mamba-ssm or reference.")
]
Deterministic = Annotated[
    bool,
    typer.Option(
        envvar="MSBENCH_DETERMINISTIC",
        help="Give the same bits on the same machine, or an error that names what cannot.",
    ),
]
Run = Annotated[
    str, typer.Argument(metavar="RUN", help="Start of a run's id, suite:task:model[:seed], or its folder.")
]
SuiteFile = Annotated[
    Path | None, typer.Option("--suite", help="The suite's file, if its name does not find it.")
]
Name = Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name or the path of its YAML file.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda")]
Devices = Annotated[
    int, typer.Option(min=1, max=MOST, metavar="N", help="Train each run on N devices, a process each.")
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", min=1, max=MOST, metavar="N", help="Train N runs at a time, a process each."
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST,
        metavar="N",
        envvar="MSBENCH_THREADS",
        help="Threads of a process on the CPU; their number changes last digits.  [default: all cores]",
    ),
]
Launcher = Annotated[str, typer.Option(help="local: this process; slurm: one array of jobs")]
Profile = Annotated[
    Path | None,
    typer.Option(help="Limits of Slurm's jobs; default slurm.yaml, here or in the user's settings."),
]
Wait = Annotated[bool, typer.Option(help="With slurm: return when all have ended.")]
Container = Annotated[str | None, typer.Option(help="Run inside a container: docker, podman or apptainer.")]
Image = Annotated[str | None, typer.Option(help="Its image, instead of msbench:cpu or msbench:cuda.")]
Out = Annotated[Path, typer.Option(help="Folder for files; created if absent.")]
RESULTS = Path("results")
REPORTS = Path("reports")


def verb(function: Callable[P, None]) -> Callable[P, None]:
    """Make a verb end in one message and the documented exit code for every error that msbench knows."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except MsbenchError as error:
            console.say(f"msbench: {error}")
            raise typer.Exit(error.exit_code) from None
        except OSError as error:
            if not (message := explain_unusable(error)):
                raise
            console.say(f"msbench: {message}")
            raise typer.Exit(ExitCode.USAGE) from None
        except KeyboardInterrupt:
            console.say("msbench: interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    return guarded


def collect(make: Callable[..., T], values: Mapping[str, Any]) -> T:
    """Call `make`, for example an options class, with those values that it has parameters for.

    `values` are the parameters of a verb by name: unset ones (None) are left to the defaults of `make`, and
    lists become tuples.
    """
    given = {name: values[name] for name in inspect.signature(make).parameters if name in values}
    return make(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
            if value is not None
        }
    )


def select_specs(
    suite: str,
    models: list[str] | None,
    tasks: list[str] | None,
    seeds: list[int] | None,
    overrides: list[str] | None,
) -> "list[RunSpec]":
    """Return the runs of a suite that options select; models that the suite does not list are reported."""
    from msbench.runs.suite import describe_unlisted_models, load_suite, resolve_specs

    found = load_suite(suite)
    specs = resolve_specs(found, models or (), tasks or (), seeds or (), overrides or ())
    for text in describe_unlisted_models(found, specs):
        console.say(f"msbench: {text}")
    return specs


def _version(wanted: bool) -> None:
    if wanted:
        console.out(f"msbench {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that stand before the verb."""
