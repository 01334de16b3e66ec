"""SIGKILL at random moments of every verb that writes; the same command goes on, to the very same bytes.

Every other kill comes at a random time, the others before a random thing that is done to a file: most of the
time of a command is computing, and most of its danger is not.
"""

import itertools
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import commands
import pytest
from campaign_home import REPORT, Home
from crash_points import die_before
from faulty_server import serving, slowly
from published import PUBLISHED
from same_results import assert_same
from whole_files import assert_whole, leftovers

from msbench import datasets as data
from msbench.datasets.archive_dataset import ArchiveDataset

KILLS = int(os.environ.get("MSBENCH_TEST_CAMPAIGN", "7"))
"""In all, a hundred in a campaign; of each kind there is one at least."""
SHARES = {
    "run": 0.30,
    "report": 0.20,
    "setup-generated": 0.14,
    "setup-fetched": 0.14,
    "mixing": 0.08,
    "baseline": 0.08,
    "check": 0.06,
}
COMPLETE = 3
"""After so many kills, at most, the command is let go on to its end."""
CIFAR10 = next(each for each in PUBLISHED.values() if each.dataset == "cifar10" and each.fetched)


@dataclass(frozen=True)
class Victim:
    """A command, what undoes all that it made, what must hold at its end, and how it ends."""

    words: tuple[str | Path, ...]
    undo: Callable[[], None]
    done: Callable[[], None]
    code: int = 0
    before: commands.Before | None = None


def both(first: commands.Before | None, second: commands.Before) -> None:
    if first is not None:
        first()
    second()


class Killer:
    """Kills one command again and again."""

    def __init__(self, home: Home, victim: Victim, seed: int) -> None:
        self.home, self.victim, self.chance = home, victim, random.Random(seed)
        victim.undo()
        began = time.monotonic()
        self.finish()
        self.seconds, self.steps = time.monotonic() - began, 60

    def finish(self) -> None:
        """To the end, where nothing is half, nothing is left over, and all is as if nobody had killed it."""
        ended = commands.run(*self.victim.words, data=self.home.data, before=self.victim.before)
        assert ended.code == self.victim.code, ended.text
        assert_whole(self.home.root)
        assert leftovers(self.home.root) == []
        self.victim.done()

    def kill(self, at_a_step: bool) -> None:
        """One kill; where the command came to its end before it, all is undone for another try."""
        for _ in range(50):
            ended = self._before_a_step() if at_a_step else self._in_time()
            if ended.code == -9:
                assert_whole(self.home.root)
                return
            assert ended.code == self.victim.code, ended.text
            self.victim.undo()
        raise AssertionError("it always came to its end")

    def _in_time(self) -> commands.Ended:
        command = commands.start(*self.victim.words, data=self.home.data, before=self.victim.before)
        time.sleep(self.chance.uniform(0, self.seconds))
        return command.kill()

    def _before_a_step(self) -> commands.Ended:
        step = self.chance.randint(1, self.steps)
        dying = partial(both, self.victim.before, partial(die_before, step, self.home.root))
        ended = commands.run(*self.victim.words, data=self.home.data, before=dying)
        if ended.code != -9:
            self.steps = max(1, step - 1)
        return ended


def remove(*paths: Path) -> None:
    for path in paths:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def same_files(folder: Path, expected: Path, names: str) -> None:
    wanted = {path.name: path.read_bytes() for path in expected.glob(names)}
    assert wanted
    assert {path.name: path.read_bytes() for path in folder.glob(names)} == wanted


def running(home: Home, unbroken: Home) -> Victim:
    def done() -> None:
        assert_same(home.results, unbroken.results)

    return Victim(home.words("run", "--quiet"), lambda: remove(home.results / "tiny"), done)


def reporting(home: Home, unbroken: Home) -> Victim:
    def done() -> None:
        for names in ("*.csv", "*.tex", "*.svg"):
            same_files(home.reports, unbroken.reports, names)
        page = (home.reports / "report.html").read_text(encoding="utf-8")
        assert page.rstrip().endswith("</html>")
        # With its tables, runs and figures it has about 94,000 characters.
        assert len(page) > 80_000

    words = home.words("report", *REPORT, "--out", home.reports)
    return Victim(words, lambda: remove(home.reports), done)


def generating(home: Home, unbroken: Home) -> Victim:
    def done() -> None:
        (mine,), (other,) = (
            list((each.data / "listops").glob("*/manifest.json")) for each in (home, unbroken)
        )
        assert mine.read_bytes() == other.read_bytes()

    return Victim(("setup", home.suite, "--quiet"), lambda: remove(home.data), done)


def point(name: str, url: str) -> None:
    """Let a dataset be fetched from there, whatever its digest."""
    kept = data.DATASETS[name]
    assert isinstance(kept, ArchiveDataset)
    (remote,) = kept.remotes
    data.DATASETS[name] = replace(kept, remotes=(replace(remote, url=url, digest=None),))


def fetching(home: Home, url: str) -> Victim:
    def done() -> None:
        assert len(list((home.data / "cifar10").glob("*/manifest.json"))) == 1

    words = ("setup", "cifar10", "--quiet", *(word for each in CIFAR10.sets for word in ("--set", each)))
    return Victim(words, lambda: remove(home.data), done, before=partial(point, "cifar10", url))


def measures(results: Path) -> dict[Path, dict[str, Any]]:
    """All that was measured, without when and where."""
    found = {}
    for path in results.rglob("mixing/*.json"):
        values = json.loads(path.read_bytes())
        for machine in ("environment", "created", "seconds"):
            del values[machine]
        found[path.relative_to(results)] = values
    return found


def measuring(home: Home, unbroken: Home) -> Victim:
    def undo() -> None:
        remove(*home.results.rglob("mixing"))

    def done() -> None:
        assert measures(home.results) == measures(unbroken.results) != {}

    return Victim(home.words("mixing", "--examples", "2", "--quiet", "--out", home.reports), undo, done)


def keeping(home: Home, unbroken: Home) -> Victim:
    def done() -> None:
        same_files(home.results / "baseline", unbroken.results / "baseline", "*.yaml")

    return Victim(home.words("baseline"), lambda: remove(home.results / "baseline"), done)


def checking(home: Home, _unbroken: Home) -> Victim:
    def done() -> None:
        assert (home.root / "gate" / "junit.xml").exists()

    words = home.words("check", "--junit", home.root / "gate" / "junit.xml")
    return Victim(words, lambda: remove(home.root / "gate"), done, home.check_code)


VICTIMS = {
    "run": running,
    "report": reporting,
    "setup-generated": generating,
    "mixing": measuring,
    "baseline": keeping,
    "check": checking,
}


def campaign(home: Home, victim: Victim, name: str) -> None:
    killer = Killer(home, victim, seed=len(name))
    victim.undo()
    for number, at_a_step in zip(
        range(1, max(1, round(SHARES[name] * KILLS)) + 1), itertools.cycle((True, False)), strict=False
    ):
        killer.kill(at_a_step)
        if number % COMPLETE == 0:
            killer.finish()
            victim.undo()
    killer.finish()


def test_shares_are_of_a_whole() -> None:
    assert sum(SHARES.values()) == pytest.approx(1)
    assert SHARES.keys() == {*VICTIMS, "setup-fetched"}


@pytest.mark.parametrize("name", VICTIMS)
def test_killed_at_any_moment_it_goes_on(name: str, home: Home, unbroken: Home) -> None:
    campaign(home, VICTIMS[name](home, unbroken), name)


def test_killed_while_it_fetches_it_goes_on(home: Home, tmp_path: Path) -> None:
    (tmp_path / "published").mkdir()
    (archive,) = CIFAR10.build(tmp_path / "published")
    with serving(slowly(archive.read_bytes(), 0.005)) as server:
        campaign(home, fetching(home, f"{server.url.rpartition('/')[0]}/{archive.name}"), "setup-fetched")
