"""Terminal output on runs: plans, submissions, outcomes and the progress of training."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from msbench import console
from msbench.cli import flags
from msbench.config import RunSpec
from msbench.config.layers import run_checks
from msbench.config.messages import format_bytes, format_duration, format_value
from msbench.console import command_line
from msbench.results.record import RunRecord
from msbench.runs.launchers import PoolProgress, RunOptions, RunOutcome
from msbench.runs.launchers.slurm_jobs import locate_submission
from msbench.runs.plan import PlannedRun, describe_run, name_run
from msbench.runs.suite import SettingOrigin, list_origins, load_suite
from msbench.training.metrics import EpochRow, ProgressCallback, StepReport, describe_epoch

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from msbench.runs.duration import Campaign, Estimate
    from msbench.runs.launchers.slurm import SubmissionResult


MOST_ORIGINS = 8
"""Most models and tasks of a plan whose settings are printed: more would hide the plan."""
SECONDS_BETWEEN_FIGURES = 0.2


def print_plan(entries: Sequence[PlannedRun]) -> None:
    """Print a row for each run: what would be done, and why."""
    _print_rows(_name_suites([describe_run(entry) for entry in entries], entries), below=1)


def _name_suites(rows: list[dict[str, Any]], entries: Sequence[PlannedRun]) -> list[dict[str, Any]]:
    """Return the rows of these runs with their suites, if there are several."""
    if len({entry.spec.suite for entry in entries}) < 2:
        return rows
    return [{"suite": entry.spec.suite, **row} for row, entry in zip(rows, entries, strict=True)]


def print_sized_plan(
    entries: Sequence[PlannedRun], device: str, options: RunOptions, *, estimate: bool, as_json: bool
) -> None:
    """Print a row for each run, also with its size on its devices and its time, and their total.

    Below them are the origins of their settings. With `estimate`, steps are timed where no earlier run of
    this machine says how long a run takes.
    """
    from msbench.runs.duration import estimate_durations, read_times
    from msbench.runs.memory import estimate_size

    # Builds every model without memory for it, and reports all that cannot be built.
    sizes = run_checks(*(partial(estimate_size, entry, device, options.devices) for entry in entries))
    rows = [describe_run(entry) | size for entry, size in zip(entries, sizes, strict=True)]
    times = estimate_durations(entries, read_times(entries, options, device), timed=estimate)
    for row, each in zip(rows, times, strict=True):
        row |= {"hours": each and each.seconds / 3600, "hours from": each and each.source}
    suites = {each.name: each for each in map(load_suite, options.suites)}
    cells = {(entry.spec.suite, entry.spec.task, entry.spec.model_name): entry.spec for entry in entries}
    origins = {cell: list_origins(suites[cell[0]], spec, options.overrides) for cell, spec in cells.items()}
    if as_json:
        for row, entry in zip(rows, entries, strict=True):
            row["suite"] = entry.spec.suite
            found = origins[entry.spec.suite, entry.spec.task, entry.spec.model_name]
            row["settings"] = {key: {"value": each.value, "from": each.name} for key, each in found.items()}
        console.out_json(rows)
        return
    rows = _name_suites(rows, entries)
    total = _describe_total(entries, times, [row["memory"] or 0 for row in rows], options.jobs)
    for row, each in zip(rows, times, strict=True):
        row["memory"] = format_bytes(row["memory"]) if row["memory"] else "--"
        row["hours"] = format_duration(each.seconds) if each else "--"
        row["hours from"] = f"time from {each.source}" if each and each.source else ""
    # For 80 columns: short names, and last what may go under the row.
    short = {"parameters": "params", "states per channel": "states", "hours": "time", "hours from": ""}
    last = ("run", "why", "hours from")
    names = [*(name for name in rows[0] if name not in last), *last]
    header = [short.get(name, name) for name in names]
    console.out_rows(header, [[row[name] for name in names] for row in rows], below=3)
    console.out(total)
    if len(cells) > MOST_ORIGINS:
        console.say(f"the origin of each setting: for up to {MOST_ORIGINS} models and tasks, or with --json")
        return
    for (suite, task, model), found in origins.items():
        of = f" of {suite}" if len(suites) > 1 else ""
        console.out(f"\n{model} on {task}{of}; all other settings are defaults")
        _print_origins(found)


def _print_origins(origins: Mapping[str, SettingOrigin]) -> None:
    """Print a line for each layer that sets something, with its settings."""
    layers: dict[str, list[str]] = {}
    for key, each in origins.items():
        if each.layer:
            layers.setdefault(each.layer, []).append(key)
    for layer, keys in layers.items():
        where = origins[keys[0]].where
        given = ", ".join(f"{key} {format_value(origins[key].value)}" for key in keys)
        console.out_wrapped(f"  {layer}{f' ({where})' if where else ''}: {given}", "    ")


def _describe_total(
    entries: Sequence[PlannedRun], times: "Sequence[Estimate | None]", memory: Sequence[int], jobs: int
) -> str:
    """Return one line: the time of all runs to train, how many of them it covers, and the largest memory."""
    from msbench.runs.duration import compute_makespan, is_to_train

    found = [each for entry, each in zip(entries, times, strict=True) if is_to_train(entry)]
    known = [each.seconds for each in found if each is not None]
    at_once = f" with {jobs} jobs" if jobs > 1 else ""
    time = format_duration(compute_makespan(known, jobs)) if known or not found else "--"
    covered = f"for {len(known)} of {console.format_count(len(found), 'run')} to train"
    return f"total: {time}{at_once}, {covered}; at most {format_bytes(max(memory))} each"


def print_submission(result: "SubmissionResult", options: RunOptions, *, as_json: bool) -> None:
    """Print the runs of a submission or of its preview, and how to watch and cancel its jobs."""
    submission = result.submission
    rows = [_describe_submitted(entry, result) for entry in result.entries]
    if options.dry_run:
        if as_json:
            console.out_json({"runs": rows, "script": result.script})
        else:
            _print_rows(rows)
            console.out(f"\n{result.script}" if result.script else "\nnothing to submit")
        return
    for entry in result.entries:
        if entry.action == "damaged":
            console.say(f"msbench: {entry.reason}")
    if as_json:
        document = submission.model_dump(mode="json") if submission else None
        console.out_json({"submission": document, "runs": rows})
    else:
        _print_rows(rows, below=1)
    if submission is None:
        console.say("nothing to submit")
        return
    where = "" if options.results == flags.RESULTS else f" --results {command_line([str(options.results)])}"
    folder = locate_submission(options.results, submission.name)
    console.say(f"submitted {len(submission.runs)} runs as job {submission.job_id}, {submission.name}")
    console.say(f"watch:  msbench list runs{where}   or   squeue --name={submission.name}")
    console.say(f"logs:   {command_line([str(folder)])}")
    console.say(f"cancel: scancel {submission.job_id}")


def _describe_submitted(entry: PlannedRun, result: "SubmissionResult") -> dict[str, Any]:
    row = describe_run(entry)
    if job := result.active.get(entry.run_id or ""):
        row |= {"action": "keep", "why": f"{job.state} as job {job.submission.get_job_id(job.index)}"}
    if submission := result.submission:
        for index, run in enumerate(submission.runs):
            if run.run_id == entry.run_id:
                row |= {"action": "submit", "why": f"{entry.reason}; job {submission.get_job_id(index)}"}
    return row


def _print_rows(rows: Sequence[dict[str, Any]], below: int = 0) -> None:
    # The reason may be a sentence: it goes under its row if there is no room next to it, as may the id.
    console.out_rows(tuple(rows[0]), [tuple(row.values()) for row in rows], below=below)


def print_outcome(outcome: RunOutcome, *, as_json: bool) -> None:
    """Print status, result and run id of each of the requested runs."""
    if as_json:
        console.out_json([record.model_dump(mode="json") for record in outcome.records])
    elif outcome.records:
        console.out_rows(*tabulate_records(outcome.records))


def tabulate_records(records: Sequence[RunRecord]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return header and rows of the requested runs."""
    header = ("task", "model", "seed", "status", "metric", "test", "run")
    rows = [
        (
            record.task,
            record.model,
            str(record.seed),
            record.status if record.failure is None else f"{record.status}: {record.failure.message}",
            record.metric,
            "--" if record.result is None else f"{record.result:.2%}",
            record.run_id,
        )
        for record in records
    ]
    return header, rows


class LogProgress(ProgressCallback):
    """Progress as a line per epoch and a line per note: for logs and pipes."""

    def __init__(self, spec: RunSpec, campaign: "Campaign | None" = None) -> None:
        self.spec, self.campaign, self.name = spec, campaign, name_run(spec)
        self.epochs = spec.train.epochs

    def __enter__(self) -> Self:
        if self.campaign is not None and (place := self.campaign.describe_run(self.spec)):
            self.note(", ".join(filter(None, (place, self.campaign.describe_left()))))
        return self

    def epoch(self, row: EpochRow) -> None:
        """Print one line."""
        self.note(describe_epoch(row, self.epochs))

    def note(self, text: str) -> None:
        """Print one line."""
        console.say(f"{self.name}: {text}")


class BarProgress(LogProgress):
    """Progress as a live bar (loss, accuracy, tokens/s, time left), and a line per epoch above it.

    Of several runs, a second bar counts those that have ended, and has the time left of all.
    """

    def __init__(self, spec: RunSpec, campaign: "Campaign | None" = None) -> None:
        super().__init__(spec, campaign)
        self.bar = _build_bar()
        self._shown: float | None = None
        short = f"{spec.model_name} s{spec.seed}"
        self.task = self.bar.add_task("", name=short, figures="", left="", total=None)
        self.all: TaskID | None = None
        if campaign is not None and (place := campaign.describe_run(spec)):
            left, ended = campaign.describe_left(), campaign.ended
            self.all = self.bar.add_task(
                "", name=place, figures="", left=left, completed=ended, total=campaign.count
            )

    def __enter__(self) -> Self:
        self.bar.start()
        super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def step(self, report: StepReport) -> None:
        """Move the bars; their figures a few times a second, since reading them waits for the device."""
        self.bar.update(self.task, completed=report.step, total=report.total)
        now = self.bar.get_time()
        if self._shown is not None and now - self._shown < SECONDS_BETWEEN_FIGURES:
            return
        self._shown = now
        figures = (
            f"loss {report.loss:.3f} acc {report.accuracy:.1%} {report.tokens_per_second / 1e3:.1f}k tok/s"
        )
        self.bar.update(self.task, figures=figures)
        mine = self.bar.tasks[0].time_remaining
        self.bar.update(self.task, left=f"{format_duration(mine)} left" if mine else "")
        if self.all is not None and self.campaign is not None:
            self.bar.update(self.all, left=self.campaign.describe_left(self.spec, mine))

    def note(self, text: str) -> None:
        """Print one line above the bars."""
        _print_above(self.bar, f"{self.name}: {text}")

    def warn(self, text: str) -> None:
        """Print one line above the bars."""
        _print_above(self.bar, f"msbench: {text}")


class PoolBar(PoolProgress):
    """Progress of runs in parallel as a live bar: runs that have ended, the time left, what is training."""

    live = True

    def __init__(self) -> None:
        self.bar = _build_bar()
        self.task = self.bar.add_task("", name="", figures="", left="", total=None)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def move(self, ended: int, count: int, left: str, training: Sequence[RunSpec]) -> None:
        """Move the bar."""
        now = ", ".join(f"{spec.model_name} s{spec.seed}" for spec in training)
        self.bar.update(self.task, name="runs", figures=now, left=left, completed=ended, total=count)

    def note(self, text: str) -> None:
        """Print one line above the bar."""
        _print_above(self.bar, text)


def _build_bar() -> "Progress":
    """Return a bar that vanishes at its end: name, bar, figures, how many of all, and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.fields[name]}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[figures]}", markup=False),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )


def _print_above(bar: "Progress", text: str) -> None:
    # Unwrapped, as else a line could begin with any word of the text.
    line = console.escape_commands(console.printable(text))
    bar.console.print(line, markup=False, highlight=False, soft_wrap=True)


def show_progress(spec: RunSpec, campaign: "Campaign | None" = None, *, quiet: bool) -> ProgressCallback:
    """Return the display of a run's progress that suits the destination of stderr."""
    if quiet or console.muted():
        return ProgressCallback()
    return BarProgress(spec, campaign) if console.can_move() else LogProgress(spec, campaign)


def show_pool(*, quiet: bool) -> PoolProgress:
    """Return the display of runs in parallel that suits the destination of stderr."""
    return PoolBar() if console.can_move() and not quiet else PoolProgress()
