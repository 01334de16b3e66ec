"""Display of the set-up of data: amount done, rate and time left, as a bar or as lines of a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from msbench import console
from msbench.config.messages import format_duration
from msbench.datasets.dataset import Progress, ignore_progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

Clock = Callable[[], float]


class AmountRate:
    """The rate of the stage that set-up is in, from the amount and the time at which it began."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self.what, self.first, self.last, self.began = "", 0, 0, 0.0

    def describe(self, what: str, done: int, total: int) -> str:
        """Return text such as ``300 of 1,000, 25/s, 28 s left``; a resumed download begins where it was."""
        now = self.clock()
        if what != self.what or done < self.last:
            self.what, self.first, self.began = what, done, now
        self.last = done
        text, gained, seconds = f"{done:,} of {total:,}", done - self.first, now - self.began
        if gained <= 0 or seconds <= 0:
            return text
        rate = gained / seconds
        left = f", {format_duration((total - done) / rate)} left" if done < total else ""
        return f"{text}, {_format_rate(rate)}/s{left}"


def _format_rate(rate: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g}{unit}"
    return f"{rate:.3g}"


def log_amounts(say: Callable[[str], None], clock: Clock = time.monotonic) -> Progress:
    """Return a receiver of reports that says a line for each tenth of a stage."""
    rate, printed = AmountRate(clock), ("", -1)

    def report(what: str, done: int, total: int) -> None:
        nonlocal printed
        text, tenth = rate.describe(what, done, total), (what, done * 10 // total)
        if tenth != printed:
            printed = tenth
            say(f"{what}: {text}")

    return report


@contextmanager
def show_amounts(*, quiet: bool, clock: Clock = time.monotonic) -> Iterator[Progress]:
    """Yield the receiver of reports on set-up that suits the destination of stderr."""
    if quiet or console.muted():
        yield ignore_progress
    elif not console.can_move():
        yield log_amounts(console.say, clock)
    else:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=None))
        text = TextColumn("{task.fields[amount]}", markup=False)
        with Bar(*columns, text, console=Console(stderr=True), transient=True) as bar:
            yield partial(_move_bar, bar, AmountRate(clock))


def _move_bar(bar: "Bar", rate: AmountRate, what: str, done: int, total: int) -> None:
    amount = rate.describe(what, done, total)
    shown = console.printable(what)
    if not bar.tasks:
        bar.add_task(shown, amount=amount)
    task = bar.tasks[0].id
    bar.update(task, description=shown, completed=done, total=total, amount=amount)
