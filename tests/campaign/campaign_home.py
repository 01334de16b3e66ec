"""One folder that nothing has happened to: data, runs, a baseline, measures and a report."""

from dataclasses import dataclass
from pathlib import Path

import commands
from conftest import TINY_SUITE

from msbench.errors import ExitCode

REPORT = ("--csv", "--latex", "--html", "--figures")


@dataclass(frozen=True)
class Home:
    """A suite's file, its data, and what commands on it have made."""

    root: Path

    @property
    def suite(self) -> Path:
        return self.root / "tiny.yaml"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    @property
    def check_code(self) -> int:
        """The exit code of `check` here: of a model of a few steps it depends on the processor's rounding."""
        return int((self.root / "check-code").read_text(encoding="utf-8"))

    def words(self, verb: str, *more: str | Path) -> tuple[str | Path, ...]:
        """A command on the suite and its results."""
        return (verb, self.suite, "--results", self.results, *more)

    def run(self, verb: str, *more: str | Path, before: commands.Before | None = None) -> commands.Ended:
        """That command, to its end."""
        return commands.run(*self.words(verb, *more), data=self.data, before=before)


def make(root: Path) -> Home:
    """All of it, by commands that nobody stopped."""
    home = Home(root)
    home.suite.write_text(TINY_SUITE, encoding="utf-8")
    for verb, *more in (
        ("run", "--quiet"),
        ("baseline",),
        ("mixing", "--examples", "2", "--out", home.reports),
        ("report", *REPORT, "--out", home.reports),
    ):
        ended = home.run(str(verb), *more)
        assert ended.code == 0, ended.text
    code = home.run("check").code
    assert code in (ExitCode.GATE_FAILED, ExitCode.UNDECIDED)
    (root / "check-code").write_text(str(code), encoding="utf-8")
    return home


def snapshot(root: Path) -> dict[str, bytes]:
    """Every file that has a final name, but locks."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith(".") and path.suffix != ".lock"
    }
