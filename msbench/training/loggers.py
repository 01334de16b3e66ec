"""Loggers of other programs: TensorBoard, and Weights & Biases (W&B).

They get the rows of ``metrics.csv``, and decide nothing: one that fails is reported and left out, as the rows
are in ``metrics.csv``. An attempt that resumes a run logs all rows from the first one on, and then removes
the files of earlier attempts: no point of a curve is missing, and none is there twice.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from msbench.errors import ConfigError, UnknownName, get_first_line
from msbench.results.metrics_log import OF_EPOCHS, NewRows

REQUIREMENTS = {"tensorboard": "tensorboard>=2.20", "wandb": "wandb>=0.31"}
"""The loggers, and the package of each as the extra of the same name has it."""
UPLOAD_SECONDS = 60.0
"""What a run waits for W&B's server at its end; its default is to wait for ever."""


def check_loggers(names: Sequence[str]) -> None:
    """Raise UnknownName for an unknown logger, ConfigError for one whose package is not installed."""
    for name in names:
        if name not in REQUIREMENTS:
            raise UnknownName("logger", name, REQUIREMENTS, "--log")
        found = find_spec(name)
        if found is None or found.origin is None:  # the latter is only a folder of that name
            raise ConfigError(
                f"--log {name}: the package {name} is not installed: pip install '{REQUIREMENTS[name]}'"
            )


class CurveLogger(Protocol):
    """One logger of one run."""

    def log(self, rows: NewRows) -> None:
        """Log those of all rows so far that were not logged yet."""

    def end(self, metrics: Mapping[str, float], *, finished: bool) -> None:
        """Log the results, if there are any, and end."""


@dataclass(frozen=True)
class LoggedRun:
    """A run as loggers know it.

    Parameters
    ----------
    folder : the run's, in which the loggers have their files
    run_id, title : the run's id and name in the logger
    settings : all settings, by dotted key
    warn : receives a message on a logger that fails
    """

    folder: Path
    run_id: str
    title: str
    settings: Mapping[str, Any]
    warn: Callable[[str], None]


class RunLoggers:
    """The loggers of one run, of these names; each that fails is reported and left out."""

    def __init__(self, names: Sequence[str], run: LoggedRun) -> None:
        self.run, self.active = run, dict[str, CurveLogger]()
        for name in dict.fromkeys(names):
            self._try(name, partial(self._start, name))

    def _start(self, name: str) -> None:
        self.active[name] = TensorBoardCurves(self.run) if name == "tensorboard" else WandbCurves(self.run)

    def log(self, rows: NewRows) -> None:
        """Log those of all rows so far that were not logged yet."""
        for name, logger in list(self.active.items()):
            self._try(name, partial(logger.log, rows))

    def end(self, metrics: Mapping[str, float], *, finished: bool) -> None:
        """Log the results of a finished run, and end."""
        named = {f"result/{name}": value for name, value in metrics.items()}
        for name, logger in list(self.active.items()):
            self._try(name, partial(logger.end, named, finished=finished))
        self.active.clear()

    def _try(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        # Whatever goes wrong in somebody else's package, the run goes on without it.
        except Exception as error:
            self.active.pop(name, None)
            self.run.warn(f"{name} has stopped: {get_first_line(error)}; metrics.csv has all rows")


def _name_values(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of a row by their names in a logger, which shows those within epochs apart."""
    kind = "step" if row.get(OF_EPOCHS) is None else "epoch"
    left_out = ("step", "epoch")
    return {f"{kind}/{key}": value for key, value in row.items() if key not in left_out and value is not None}


class TensorBoardCurves:
    """Event files in ``tensorboard/`` of the run's folder, through Fabric's logger."""

    def __init__(self, run: LoggedRun) -> None:
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger

        self.settings, self.logged, self.step = run.settings, 0, 0
        # Readers drop what files of earlier attempts have, also while these still exist.
        self.logger = TensorBoardLogger(run.folder.absolute(), name="", version="tensorboard", purge_step=0)
        self.earlier = list((run.folder / "tensorboard").glob("events.out.tfevents.*"))

    def log(self, rows: NewRows) -> None:
        """Log new rows; the file is created with the first one."""
        if self.logged == 0:
            lines = (f"| {key} | {value} |" for key, value in self.settings.items())
            self.logger.experiment.add_text(
                "settings", "\n".join(("| setting | value |", "|---|---|", *lines))
            )
        for row in rows[self.logged :]:
            self.step = row["step"]
            self.logger.log_metrics(_name_values(row), self.step)
        self.logged = len(rows)
        self.logger.save()
        while self.earlier:
            self.earlier.pop().unlink(missing_ok=True)

    def end(self, metrics: Mapping[str, float], *, finished: bool) -> None:
        """Log results and settings, for its table of hyperparameters, and close the file."""
        if finished:
            self.logger.log_hyperparams(dict(self.settings), dict(metrics), self.step)
        self.logger.finalize("success" if finished else "failed")


class WandbCurves:
    """A run of W&B with the id of the run, and its files in ``wandb/`` of the run's folder.

    Where no server can be reached, the run is logged offline. W&B's class for Fabric is not used: it imports
    all of PyTorch Lightning, which takes longer than a small run, and never ends the run that it began.
    """

    def __init__(self, run: LoggedRun) -> None:
        import wandb

        from msbench.datasets.download import is_offline

        options: dict[str, Any] = {
            "project": os.environ.get("WANDB_PROJECT") or "msbench",
            "id": run.run_id,
            "name": run.title,
            "dir": str(run.folder.absolute()),
            "config": dict(run.settings),
            "resume": "allow",
            "settings": wandb.Settings(
                silent=True,
                console="off",
                reinit="finish_previous",
                finish_timeout=UPLOAD_SECONDS,
                finish_timeout_raises=True,
            ),
        }
        if (mode := os.environ.get("WANDB_MODE") or ("offline" if is_offline() else None)) is not None:
            options["mode"] = mode
        try:
            online = wandb.setup().settings.mode == "online" == options.get("mode", "online")
            # Else a terminal would be asked for a key, amid the progress of training.
            if online and not wandb.login(prompt=False, verify=False):
                raise wandb.errors.UsageError("not logged in (`wandb login`)")
            self.run = wandb.init(**options)
        except (wandb.errors.Error, TimeoutError) as error:
            self.run = wandb.init(**options | {"mode": "offline"})
            run.warn(
                f"wandb logs offline: {get_first_line(error)}; `wandb sync {self.folder}` sends it later"
            )
        self.run.define_metric("*", step_metric="step")
        self.logged = self.run.starting_step  # a row is one of its steps; a server may have the first ones
        self.earlier = [path for path in self.folder.parent.glob("offline-run-*") if path != self.folder]

    @property
    def folder(self) -> Path:
        """The folder that ``wandb sync`` takes."""
        return Path(self.run.dir).parent

    def log(self, rows: NewRows) -> None:
        """Log new rows."""
        for row in rows[self.logged :]:
            self.run.log({**_name_values(row), "step": row["step"]})
        self.logged = max(self.logged, len(rows))
        while self.earlier:
            shutil.rmtree(self.earlier.pop(), ignore_errors=True)

    def end(self, metrics: Mapping[str, float], *, finished: bool) -> None:
        """Log results to the summary, and wait for the server."""
        self.run.summary.update(dict(metrics))
        try:
            self.run.finish(exit_code=0 if finished else 1)
        except TimeoutError:
            raise TimeoutError(
                f"its server did not answer; `wandb sync {self.folder}` sends the rest"
            ) from None
