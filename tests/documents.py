"""What pages are held against: their tables, and the commands that there are."""

import re

import typer
from typer.core import TyperGroup

from msbench.cli import app

GROUP = typer.main.get_command(app)
VERBS = GROUP.commands if isinstance(GROUP, TyperGroup) else {}


def rows(text: str, header: str) -> list[list[str]]:
    """The cells of the table that begins so."""
    (body,) = re.findall(rf"^\| {header} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]


def options(verb: str) -> set[str]:
    """Every spelling of every option of a verb."""
    return {name for known in VERBS[verb].params for name in (*known.opts, *known.secondary_opts)}
