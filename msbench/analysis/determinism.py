"""Determinism: bit equality of a training run twice, resumed, or with another number of threads."""

import random
import signal
import tempfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from msbench import console, models
from msbench.analysis.training_trace import Moment, TensorDifference, TraceRecorder, find_first_difference
from msbench.config import DATASETS, MODELS, RunSpec, TrainConfig
from msbench.datasets.dataset import Dataset, RaggedTokens, Samples, TaskInfo
from msbench.environment import (
    choose_accelerator,
    describe_environment,
    use_deterministic,
    use_matmul,
    use_threads,
)
from msbench.errors import Interrupted, NotDeterministic, UnknownName, get_first_line
from msbench.models.classifier import Classifier
from msbench.runs.suite import expand_names
from msbench.training.loop import Trainer, make_fabric
from msbench.training.metrics import ProgressCallback
from msbench.training.seeding import get_generator_states, restore_generators
from msbench.training.signals import SignalFlag

Comparison = Literal["twice", "resumed", "threads"]
PROMISED: tuple[Comparison, ...] = ("twice", "resumed")
"""Comparisons that must be equal; another number of threads may sum in another order: only reported."""
Build = Callable[..., Classifier]
TOKENS, CLASSES = 12, 4


@dataclass(frozen=True, kw_only=True)
class DeterminismOptions:
    """The options of ``msbench doctor --determinism``; all models if none is named."""

    models: tuple[str, ...] = ()
    device: str = "auto"
    deterministic: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class DeterminismProblem:
    """Sizes: `epoch` batches per epoch; the resumed run of `steps` was stopped after `stop` of them.

    With another number of threads only the first `threads_steps` are trained: small differences grow, and
    threads that wait for each other on a busy machine take long.

    By default all models take a minute or two on two cores, and the stop is within an epoch, after one that
    was validated. Few operations are so large that PyTorch would split them among threads.
    """

    steps: int = 20
    stop: int = 10
    threads_steps: int = 3
    epoch: int = 7
    batch: int = 8
    longest: int = 64
    width: int = 24
    layers: int = 2

    def dataset(self, *, numbers: bool = False) -> Dataset:
        """Generate random tokens of unequal length; the first one decides the class.

        With `numbers` they are random signals of one length instead, and the first value decides.
        """
        info = TaskInfo("tokens", TOKENS, CLASSES, self.longest, "accuracy", 1 / CLASSES, {})
        if numbers:
            info = replace(info, kind="signal", vocabulary=0, channels=1)
        split = self._generate_signals if numbers else self._generate_tokens
        counts = {"train": self.epoch * self.batch, "validation": self.batch, "test": self.batch}
        splits = {name: split(count, seed) for seed, (name, count) in enumerate(counts.items())}
        return Dataset(info, splits, "0" * 64, {})

    def _generate_signals(self, examples: int, seed: int) -> Samples:
        values = np.random.default_rng(seed).standard_normal((examples, self.longest, 1))
        return Samples(values, (values[:, 0, 0] > 0).astype(np.uint8))

    def _generate_tokens(self, examples: int, seed: int) -> RaggedTokens:
        source = np.random.default_rng(seed)
        lengths = source.integers(1, self.longest + 1, examples)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        tokens = source.integers(1, TOKENS, int(offsets[-1]), dtype=np.uint8)
        return RaggedTokens(tokens, offsets, tokens[offsets[:-1]] % CLASSES)

    def spec(self, model: str) -> RunSpec:
        """Return a run of this size, with dropout and batch norm (random numbers and state), and clipping."""
        entry = MODELS[model]
        sizes = {
            "d_model": self.width,
            "layers": self.layers,
            "dropout": 0.1,
            "norm": "batch",
            "state": 16,
            "levels": 3,
            "pattern": ("recurrent", "attention"),
            "window": self.longest // 3,
        }
        known = {key: value for key, value in sizes.items() if key in entry.config.model_fields}
        return RunSpec(
            suite="doctor",
            task="determinism",
            model_name=model,
            seed=0,
            data=DATASETS["listops"](dataset="listops"),
            model=entry.config(**{**known, **entry.preset}),
            train=TrainConfig(
                epochs=-(-self.steps // self.epoch),
                max_steps=self.steps,
                batch_size=self.batch,
                clip=1e3,  # never reached: once clipped, every gradient would carry the difference of any
            ),
        )


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
    def status(self) -> Literal["equal", "differs", "failed"]:
        """Return the result in one word."""
        return "failed" if self.failure else "equal" if self.equal else "differs"


@dataclass(frozen=True)
class DeterminismReport:
    """Findings on a device; `threads` is the number here and, on the CPU, the other one tried."""

    device: str
    threads: tuple[int, ...]
    problem: DeterminismProblem
    environment: Mapping[str, Any]
    findings: tuple[Finding, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the problem, the environment, and each model's first differences."""
        found = {name: value for name, value in asdict(self).items() if name != "findings"}
        models = [{**asdict(finding), "equal": finding.equal} for finding in self.findings]
        return found | {"equal": all(finding.equal for finding in self.findings), "models": models}

    def require_equal(self) -> None:
        """Raise NotDeterministic, naming the models, if a promised comparison was not equal."""
        messages = {
            "differs": "not equal when repeated or resumed: {}; runs cannot be reproduced bit for bit here",
            "failed": "could not be trained, so nothing was compared: {}",
        }
        lines = []
        for status, message in messages.items():
            if names := [finding.model for finding in self.findings if finding.status == status]:
                lines.append(message.format(", ".join(names)))
        if lines:
            raise NotDeterministic("\n".join(lines))


def check_models(options: DeterminismOptions) -> DeterminismReport:
    """Check the models one after the other, and report each when done unless `quiet`.

    Raises UnknownName for an unknown model or device, and ConfigError for a model that has no deterministic
    kernel, before anything is trained.
    """
    device, problem = choose_accelerator(options.device), DeterminismProblem()
    names = expand_names("model", options.models, list(MODELS)) or list(MODELS)
    for name in names:
        if name not in MODELS:
            raise UnknownName("model", name, MODELS, "--model")
    with use_deterministic(device) if options.deterministic else nullcontext():
        if options.deterministic:
            models.check_fixed_order([problem.spec(name) for name in names])
        findings = []
        for number, name in enumerate(names, 1):
            findings.append(check_model(name, device, problem))
            if not options.quiet:
                console.say(f"{number}/{len(names)} {name}: {findings[-1].status}")
        threads = (torch.get_num_threads(), *([other_threads()] if device == "cpu" else []))
        return DeterminismReport(device, threads, problem, describe_environment(), tuple(findings))


def check_model(model: str, device: str, problem: DeterminismProblem, build: Build = models.build) -> Finding:
    """Train `model` twice, once more with a stop and a resume, and on ``cpu`` with other threads.

    Parameters
    ----------
    device : cpu or cuda
    build : like `msbench.models.build`

    An exception is reported in the finding; random generators and process settings are restored.
    """
    spec = problem.spec(model)
    kernel = models.find_family(model).name_kernel(spec.model, device)
    train = partial(record_training, spec, problem.dataset(numbers=MODELS[model].numbers_only), device, build)
    before = get_generator_states()
    try:
        once = train(None)
        compared: dict[Comparison, TensorDifference | None] = {
            "twice": find_first_difference(once, train(None)),
            "resumed": find_first_difference(once, train(problem.stop, None)),
        }
        if device == "cpu":
            with use_threads(other_threads()):
                compared["threads"] = find_first_difference(once, train(problem.threads_steps))
    except Exception as error:
        return Finding(model, kernel, failure=f"{type(error).__name__}: {get_first_line(error)}")
    finally:
        restore_generators(*before)
    return Finding(model, kernel, compared)


def other_threads() -> int:
    """Return the number of threads that the current number is compared with."""
    return 2 if torch.get_num_threads() == 1 else 1


def record_training(
    spec: RunSpec, dataset: Dataset, device: str, build: Build, *stops: int | None
) -> list[Moment]:
    """Train in one folder up to each of the steps `stops` (None: the end), resuming every time."""
    recorder = TraceRecorder()
    numerics = use_matmul(spec.train.matmul, device)
    with numerics, tempfile.TemporaryDirectory(prefix="msbench-") as folder:
        for stop in stops:
            flag = SignalFlag()
            # As in another process: what is not seeded or restored must not continue from the last state.
            torch.seed()
            np.random.seed()
            random.seed()
            trainer = Trainer(
                spec,
                build(spec.model_name, spec.model, dataset.info, spec.seed),
                dataset,
                directory=Path(folder),
                run_id="0" * 12,
                fabric=make_fabric(device, spec.train.precision),
                callback=ProgressCallback(),
                signals=flag,
            )
            recorder.watch(trainer, partial(_stop_at, stop, flag))
            try:
                trainer.run()
            except Interrupted:
                if stop is None:
                    raise
                continue
            if stop is not None:
                raise AssertionError("a run continued although it was stopped")
            recorder.record_evaluation(trainer)
    return recorder.moments


def _stop_at(stop: int | None, flag: SignalFlag, step: int) -> None:
    if step == stop:
        flag.received = signal.SIGTERM


def print_report(report: DeterminismReport) -> None:
    """Print a row per model; the first difference is in the last column, or below its row."""
    names: list[Comparison] = [*PROMISED]
    if report.device == "cpu":
        names.append("threads")
    counts = [console.format_count(number, "thread") for number in report.threads]
    rows = [_row(finding, names) for finding in report.findings]
    console.out_rows(("model", "kernel", *PROMISED, *counts[1:], "first difference"), rows, below=1)
    problem, equal = report.problem, sum(finding.equal for finding in report.findings)
    text = (
        f"{equal} of {len(report.findings)} models equal in every bit on {report.device}, {counts[0]}:"
        f" {problem.steps} steps twice, and with a stop and resume at step {problem.stop}"
    )
    if report.device == "cpu":
        text += f"; {problem.threads_steps} steps with {counts[1]}, where nothing is promised"
    console.say(text)


def _row(finding: Finding, names: list[Comparison]) -> tuple[str, ...]:
    if finding.failure:
        return (finding.model, finding.kernel, *("failed" for _ in names), finding.failure)
    results = ("differs" if finding.compared[name] else "equal" for name in names)
    differences = (f"{name}: {found}" for name, found in finding.compared.items() if found)
    return (finding.model, finding.kernel, *results, "; ".join(differences))
