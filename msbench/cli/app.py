"""The command itself, and what verbs share: handling of errors, selection of runs."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer
from typer.core import TyperGroup

from msbench import __version__, console
from msbench.errors import ConfigError, ExitCode, MsbenchError, explain_lack_of_memory, explain_unusable

if TYPE_CHECKING:
    from msbench.config import RunSpec

P = ParamSpec("P")
T = TypeVar("T")


class Command(TyperGroup):
    """The command, which expands ``~`` in paths itself: no shell does so in quotes or after ``--out=``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse expanded arguments. A home folder that is unknown ends with one message."""
        try:
            return super().parse_args(ctx, expand_arguments(args))
        except ConfigError as error:
            console.say(f"msbench: {error}")
            raise typer.Exit(error.exit_code) from None


def expand_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with ``~`` expanded where one, or its ``--option=``, is followed by it.

    Raises ConfigError for a home folder that is unknown.
    """
    return [re.sub("^(--[^=]*=)?(~.*)", _expand_match, text, flags=re.DOTALL) for text in arguments]


def _expand_match(found: re.Match[str]) -> str:
    from msbench.environment import expand_home  # a fifth of the time of --help

    return f"{found[1] or ''}{expand_home(found[2])}"


app = typer.Typer(
    name="msbench",
    cls=Command,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: boxes drawn by rich take as long as all the rest of --help
    help="Benchmark suite and reproducibility harness for MS-SSM.",
    epilog=(
        "Exit codes: 0 done · 2 usage or configuration · 3 a run failed · 4 the gate failed · "
        "5 undecided or nothing measured · 6 data missing or damaged · 130/143 interrupted"
    ),
)


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
        except (MemoryError, ImportError) as error:
            if not (message := explain_lack_of_memory(error)):
                raise
            console.say(f"msbench: {message}")
            raise typer.Exit(ExitCode.RUN_FAILED) from None
        except KeyboardInterrupt:
            console.say("msbench: interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    return guarded


def collect(options: type[T], values: Mapping[str, Any]) -> T:
    """Build the options of a verb from those `values`, its parameters, that have the name of an option.

    Unset values (None) are left to the defaults, and lists become tuples.
    """
    given = {}
    for name in inspect.signature(options).parameters:
        value = values.get(name)
        if value is not None:
            given[name] = tuple(value) if isinstance(value, list) else value
    return options(**given)


def expand_suites(names: Sequence[str]) -> list[str]:
    """Return names of suites, each once; ``paper`` stands for those of all of the paper's tables."""
    from msbench.reporting.tables.definitions import PAPER_SUITES
    from msbench.runs.suite_file import PAPER

    return list(dict.fromkeys(each for name in names for each in (PAPER_SUITES if name == PAPER else [name])))


def select_specs(
    suites: Sequence[str],
    models: list[str] | None,
    tasks: list[str] | None,
    seeds: list[int] | None,
    overrides: list[str] | None,
) -> "list[RunSpec]":
    """Return the runs of suites that options select; models that a suite does not list are reported."""
    from msbench.runs.suite import describe_unlisted_models, load_suites, resolve_all

    found = load_suites(suites)
    specs = resolve_all(found, models or (), tasks or (), seeds or (), overrides or ())
    for each in found:
        for text in describe_unlisted_models(each, [spec for spec in specs if spec.suite == each.name]):
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
