"""Completion of names at the press of the tab key: suites, models and tasks of a suite, ids of runs.

It must answer at once, so it imports nothing heavy: it looks at names of files and the keys of one suite.
What it cannot read it does not complete.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import typer

SHIPPED = Path(__file__).parents[1] / "share" / "suites"
RUN_ID = re.compile(r"[0-9a-f]{12}")


def complete_suites(incomplete: str) -> list[str]:
    """Return the suites, here and those of msbench, whose names begin so."""
    return sorted(name for name in {*_find_suites(), "paper"} if name.startswith(incomplete))


def complete_models(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the models that the suites of the command list and that begin so, the last of several."""
    return _complete_last(incomplete, _list_keys(ctx, "models"))


def complete_tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tasks of the suites of the command that begin so, the last of several."""
    return _complete_last(incomplete, _list_keys(ctx, "tasks"))


def complete_runs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the ids of runs in the results that begin so, each with its suite, task and model."""
    results = Path(ctx.params.get("results") or "results")
    found = {path.name: " ".join(path.parts[-4:-1]) for path in results.glob("*/*/*/*")}
    return sorted(
        each for each in found.items() if RUN_ID.fullmatch(each[0]) and each[0].startswith(incomplete)
    )


def _find_suites() -> dict[str, Path]:
    folders = (SHIPPED, Path("suites"))  # the latter, which is the user's, replaces the former
    return {path.stem: path for folder in folders for path in folder.glob("[!.]*.yaml")}


def _list_keys(ctx: typer.Context, section: str) -> Iterator[str]:
    """Yield the keys of this section of the suites that stand before on the command line."""
    import yaml

    # Before an option without its value, the words are left over, not yet assigned to a parameter.
    given = ctx.params.get("suites") or ctx.params.get("suite") or ctx.args
    for name in [given] if isinstance(given, str) else given:
        try:
            text = _find_suites().get(name, Path(name)).read_text(encoding="utf-8")
            yield from map(str, yaml.safe_load(text)[section])
        except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
            continue


def _complete_last(incomplete: str, names: Iterable[str]) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    left = [name for name in dict.fromkeys(names) if name not in before.split(",")]
    return [before + comma + name for name in left if name.startswith(last)]
