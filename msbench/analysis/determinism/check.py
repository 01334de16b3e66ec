"""Train a model several times, and find the first difference."""

import random
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from msbench import models
from msbench.analysis.determinism.difference import TensorDifference, first_difference
from msbench.analysis.determinism.problem import DeterminismProblem, dataset_of, spec_of
from msbench.analysis.determinism.trace import Moment, Recorder
from msbench.errors import Interrupted
from msbench.models import Classifier
from msbench.runs.progress import Quiet
from msbench.training.loop import Trainer, fabric_for
from msbench.training.seeding import generator_states, restore_generators
from msbench.training.signals import SignalFlag

Comparison = Literal["twice", "resumed", "threads"]
PROMISED: tuple[Comparison, ...] = ("twice", "resumed")
"""Comparisons that must be equal; another number of threads may sum in another order: only reported."""
Build = Callable[..., Classifier]


@dataclass(frozen=True)
class Finding:
    """Results of one model: the first difference of each comparison, None where all bits were equal.

    ``threads`` is compared on the CPU only. `failure` is set if the model could not be trained; then nothing
    was compared.
    """

    model: str
    kernel: str
    compared: Mapping[Comparison, TensorDifference | None] = field(default_factory=dict)
    failure: str = ""

    @property
    def equal(self) -> bool:
        """Return True if all promised comparisons were equal."""
        return not self.failure and all(self.compared[name] is None for name in PROMISED)

    @property
    def word(self) -> Literal["equal", "differs", "failed"]:
        """Return the result in one word."""
        return "failed" if self.failure else "equal" if self.equal else "differs"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**asdict(self), "equal": self.equal}


def check(model: str, device: str, problem: DeterminismProblem, build: Build = models.build) -> Finding:
    """Train `model` twice, once more with a stop and a resume, and on ``cpu`` with other threads.

    Parameters
    ----------
    device : cpu or cuda
    build : like `msbench.models.build`

    An exception is reported in the finding; random generators and process settings are restored.
    """
    kernel = models.family(model).kernel(spec_of(problem, model).model, device)
    training = _Training(model, device, problem, build)
    with _generators_kept():
        try:
            compared = _compare(training, device)
        except Exception as error:
            first_line = next(iter(str(error).strip().splitlines()), "")
            return Finding(model, kernel, failure=f"{type(error).__name__}: {first_line}")
    return Finding(model, kernel, compared)


def other_threads() -> int:
    """Return the number of threads that the current number is compared with."""
    return 2 if torch.get_num_threads() == 1 else 1


def _compare(training: "_Training", device: str) -> dict[Comparison, TensorDifference | None]:
    once = training.run()
    found: dict[Comparison, TensorDifference | None] = {"twice": first_difference(once, training.run())}
    found["resumed"] = first_difference(once, training.resumed())
    if device == "cpu":
        with _threads(other_threads()):
            found["threads"] = first_difference(once, training.begun())
    return found


class _Training:
    """A training that can be repeated."""

    def __init__(self, model: str, device: str, problem: DeterminismProblem, build: Build) -> None:
        self.spec, self.dataset = spec_of(problem, model), dataset_of(problem)
        self.device, self.problem, self.build = device, problem, build

    def run(self) -> list[Moment]:
        """Return the moments of an uninterrupted run."""
        return self._recorded(self._finish)

    def resumed(self) -> list[Moment]:
        """Return the moments of a run that is stopped and resumed from its checkpoint."""
        return self._recorded(partial(self._begin, self.problem.stop), self._finish)

    def begun(self) -> list[Moment]:
        """Return the moments up to `DeterminismProblem.threads_steps`."""
        return self._recorded(partial(self._begin, self.problem.threads_steps))

    def _recorded(self, *attempts: Callable[[Recorder, Path], None]) -> list[Moment]:
        """Return the moments of attempts in one folder, each resuming the previous one."""
        recorder = Recorder()
        with tempfile.TemporaryDirectory(prefix="msbench-") as folder:
            for attempt in attempts:
                attempt(recorder, Path(folder))
        return recorder.moments

    def _finish(self, recorder: Recorder, folder: Path) -> None:
        trainer = self._trainer(folder, SignalFlag())
        recorder.watch(trainer)
        trainer.run()
        recorder.close(trainer)

    def _begin(self, steps: int, recorder: Recorder, folder: Path) -> None:
        flag = SignalFlag()

        def stop(step: int) -> None:
            if step == steps:
                flag.received = signal.SIGTERM

        trainer = self._trainer(folder, flag)
        recorder.watch(trainer, stop)
        try:
            trainer.run()
        except Interrupted:
            return
        raise AssertionError("a run that was told to stop went on to its end")

    def _trainer(self, folder: Path, flag: SignalFlag) -> Trainer:
        # As in another process: what is not seeded or restored must not continue from the last run's state.
        torch.seed()
        np.random.seed()
        random.seed()
        spec, info = self.spec, self.dataset.info
        fabric = fabric_for(self.device, spec.train.precision)
        model = self.build(spec.model_name, spec.model, info, spec.seed)
        return Trainer(spec, model, self.dataset, folder, "0" * 12, fabric, Quiet(), flag)


@contextmanager
def _generators_kept() -> Iterator[None]:
    before = generator_states()
    try:
        yield
    finally:
        restore_generators(*before)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
