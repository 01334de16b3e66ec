"""Which runs a command line means."""

from typing import TYPE_CHECKING

from msbench import console

if TYPE_CHECKING:
    from msbench.specs import RunSpec


def plan(
    name: str,
    models: list[str] | None,
    tasks: list[str] | None,
    seeds: list[int] | None,
    overrides: list[str] | None,
) -> "list[RunSpec]":
    """The runs of a suite that options choose; which of its models the suite does not list is told."""
    from msbench import suite as suites

    suite = suites.load(name)
    specs = suites.plan(suite, models or (), tasks or (), seeds or (), overrides or ())
    for text in suites.strangers(suite, specs):
        console.say(f"msbench: {text}")
    return specs
