"""Suites: one YAML file describes a table of the paper, or a scaled-down version of one.

::

    suites/<name>.yaml -> Suite -> plan -> RunSpec, one for every task × model × seed

A run's settings are merged from layers, the later one winning:
the suite's own ``data``, ``model`` and ``train`` < the task's < the model's < ``--set``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Literal, TypeVar

from msbench import datasets
from msbench.config import DATASETS, MODELS, RunSpec, TrainConfig
from msbench.config.base import Config
from msbench.config.layers import LocatedValues, load_yaml, merge_layers, parse_override, run_checks, validate
from msbench.config.run import SECTIONS
from msbench.config.strict_yaml import KeyPath
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError, UnknownName, suggest_name
from msbench.results.files import find_own_folder
from msbench.runs.suite_file import Claim, GateSettings, PaperColumns, SuiteFile

T = TypeVar("T")
MOST_PARTS = 10_000
"""Layers times levels of a model. To build one takes a millisecond and 100 kB, however narrow it is."""


@dataclass(frozen=True)
class Suite:
    """A suite that has been read and validated, every task with every model.

    `tasks` and `models` are in the file's order; `source` holds the file's values with their lines.
    """

    name: str
    title: str
    protocol: Literal["paper", "scaled"]
    caption: str
    seeds: tuple[int, ...]
    reported: PaperColumns | None
    tasks: tuple[str, ...]
    models: tuple[str, ...]
    source: LocatedValues
    planned: Mapping[tuple[str, str], RunSpec] = field(default_factory=dict, repr=False)
    """Specs by task and model, at the first seed: runs of any seed are compared with them."""
    gate: GateSettings = field(default_factory=GateSettings)
    claims: tuple[Claim, ...] = ()

    @cached_property
    def common(self) -> LocatedValues:
        """The settings for all models and tasks."""
        return _select_sections(self.source.at())

    @property
    def size(self) -> int:
        """The number of its runs."""
        return len(self.tasks) * len(self.models) * len(self.seeds)


def load_suite(name_or_path: str | Path, folder: Path | None = None) -> Suite:
    """Load the suite of this name, or in this file, and check every task × model combination.

    A bare name is looked up in `folder`, or else in ``suites/`` here and among those that come with msbench.
    Raises UnknownName, or one ConfigError with a line for every fault.
    """
    text = str(name_or_path)
    if Path(text).name != text or text.endswith((".yaml", ".yml")):
        return _read_suite(load_yaml(Path(text), may_wait=True))
    files = _find_files(folder)
    if text not in files:
        raise UnknownName("suite", text, files)
    suite = _read_suite(load_yaml(files[text]))
    if suite.name != text:
        raise suite.source.error(("name",), f"must be {text!r}, as the file is named, not {suite.name!r}")
    return suite


def list_suites(
    folder: Path | None = None, on_error: Callable[[ConfigError], None] | None = None
) -> list[Suite]:
    """Return all suites that a bare name can reach, by name.

    An invalid file is skipped and reported to `on_error`; without one, ConfigError is raised.
    """
    found: list[Suite] = []
    for name in list_suite_names(folder):
        try:
            found.append(load_suite(name, folder))
        except ConfigError as error:
            if on_error is None:
                raise
            on_error(error)
    return found


def list_suite_names(folder: Path | None = None) -> list[str]:
    """Return the names by which suites can be reached, sorted; no suite is read."""
    return sorted(_find_files(folder))


def resolve_specs(
    suite: Suite,
    models: Iterable[str] = (),
    tasks: Iterable[str] = (),
    seeds: Iterable[int] = (),
    overrides: Iterable[str] = (),
) -> list[RunSpec]:
    """Return the runs of a suite: tasks × models × seeds in the suite's order, whatever the order requested.

    Empty means all of the suite's. A model that msbench knows, and a seed, may be requested even if the suite
    does not list it: they come after the listed ones. Such a model takes those of the suite's common settings
    that it has (`list_inapplicable_keys` has the others), and its own defaults. `overrides` are texts such as
    ``train.lr=1e-3``. Raises UnknownName for other names, ConfigError for an override that is invalid for any
    chosen run.
    """
    sets = run_checks(*(partial(_parse_set, text) for text in overrides))
    chosen_tasks = _choose("task", tasks, suite.tasks, suite.tasks)
    chosen_models = _choose("model", models, suite.models, _append_new(suite.models, MODELS))
    seeds = sorted(set(seeds))
    chosen_seeds = _choose("seed", seeds, suite.seeds, _append_new(suite.seeds, seeds))
    return run_checks(
        *(
            partial(_resolve, suite, task, model, seed, sets)
            for task in chosen_tasks
            for model in chosen_models
            for seed in chosen_seeds
        )
    )


def _read_suite(source: LocatedValues) -> Suite:
    head = validate(SuiteFile, source)
    same = ("name", "title", "protocol", "caption", "seeds", "reported", "claims")
    suite = Suite(
        **{name: getattr(head, name) for name in same},
        tasks=tuple(head.tasks),
        models=tuple(head.models),
        source=source,
        gate=head.gate or GateSettings(),
    )
    for model in suite.models:
        if model not in MODELS:
            raise UnknownName("model", model, MODELS, source.origin(("models", model)))
    return replace(
        suite,
        planned={(spec.task, spec.model_name): spec for spec in resolve_specs(suite, seeds=suite.seeds[:1])},
    )


def _resolve(suite: Suite, task: str, model: str, seed: int, overrides: Sequence[LocatedValues]) -> RunSpec:
    labels = {"suite": suite.name, "task": task, "model_name": model, "seed": seed}
    # A suite's own seeds have been checked: one that is refused here is from the command line.
    head = LocatedValues(labels, {("seed",): "--seed"}, suite.source.name)
    own = _select_sections(suite.source.at("models", model))
    common = [
        _drop_model_keys(layer, list_inapplicable_keys(suite, task, model))
        for layer in _list_common_layers(suite, task)
    ]
    merged = merge_layers(head, *common, own, *overrides)
    spec = RunSpec.resolve(merged)
    if wrong := list(find_faults(spec, datasets.outline(spec.data))):
        raise ConfigError("\n".join(str(merged.error(path, problem)) for path, problem in wrong))
    return spec


def check_fit(spec: RunSpec, info: TaskInfo) -> None:
    """Raise ConfigError if a run does not fit its data, which must be set up."""
    for path, problem in find_faults(spec, info):
        raise ConfigError(f"{'.'.join(map(str, path))}: {problem}")
    pad_to, longest = spec.train.pad_to, info.longest
    if pad_to is not None and pad_to < longest:
        raise ConfigError(f"train.pad_to is {pad_to}, but the longest of {spec.task} has {longest} tokens")


def find_faults(spec: RunSpec, info: TaskInfo) -> Iterator[tuple[KeyPath, str]]:
    """Yield the key and the problem of every setting that is invalid for this task.

    `info` may be an outline: its `longest` is then an upper bound, and settings that pass may still be
    refused once the data is set up.
    """
    model, train = spec.model, spec.train
    repeated = {key: max(1, getattr(model, key, 1)) for key in ("layers", "layers_factor", "levels")}
    if (parts := prod(repeated.values())) > MOST_PARTS:
        largest = max(repeated, key=lambda key: repeated[key])
        yield ("model", largest), f"gives {parts:,} layers and levels; {MOST_PARTS:,} are the most"
    if info.real_valued and model.encoder == "scalar":
        yield (
            ("model", "encoder"),
            f"'scalar' feeds token ids as numbers, but {spec.task} is a task of {info.kind} without tokens;"
            " leave it out",
        )
    if info.multi_label and train.loss == "double-softmax":
        yield (
            ("train", "loss"),
            f"'double-softmax' needs one label an example, but {spec.task} has several; use 'cross-entropy'",
        )
    if model.positions == "learned" and train.pad_to is not None and train.pad_to > info.longest:
        yield (
            ("train", "pad_to"),
            f"{train.pad_to} is beyond model.positions 'learned', which end with the longest of {spec.task},"
            f" {info.longest}; lower it, leave it out or use positions: none",
        )
    if model.norm == "batch" and isinstance(train.micro_batch, int) and train.micro_batch < train.batch_size:
        yield (
            ("train", "micro_batch"),
            f"{train.micro_batch} would change the statistics of model.norm 'batch', which are those of all"
            f" {train.batch_size} examples of a batch; leave it out, or lower train.batch_size",
        )


def list_inapplicable_keys(suite: Suite, task: str, model: str) -> list[str]:
    """Return keys of the suite's common ``model`` that do not apply to a model which the suite does not list.

    They are not among its options, or its name fixes them; it runs without them. A listed model has none:
    there they are faults of the file.
    """
    if model in suite.models:
        return []
    entry = MODELS[model]
    free = entry.config.model_fields.keys() - entry.preset.keys()
    given = (key for layer in _list_common_layers(suite, task) for key in layer.at("model").values)
    return sorted({str(key) for key in given} - free)


def describe_unlisted_models(suite: Suite, specs: Iterable[RunSpec]) -> list[str]:
    """Return a line for each model of these runs that the suite does not list, with its settings."""
    lines = []
    for task, model in dict.fromkeys((spec.task, spec.model_name) for spec in specs):
        if model not in suite.models:
            absent = ", ".join(f"model.{key}" for key in list_inapplicable_keys(suite, task, model))
            without = f"; it has no {absent}" if absent else ""
            lines.append(
                f"{suite.name} does not list {model}: on {task} it runs with the suite's common settings and"
                f" its own defaults{without}"
            )
    return lines


def _list_common_layers(suite: Suite, task: str) -> tuple[LocatedValues, LocatedValues]:
    """Return the suite's settings for all models, and for all models on this task."""
    return suite.common, _select_sections(suite.source.at("tasks", task))


def _drop_model_keys(layer: LocatedValues, keys: Sequence[str]) -> LocatedValues:
    """Return the layer without these keys of its ``model``."""
    if "model" not in layer.values or not keys:
        return layer
    kept = {key: value for key, value in layer.at("model").values.items() if key not in keys}
    return replace(layer, values={**layer.values, "model": kept})


def _select_sections(layer: LocatedValues) -> LocatedValues:
    """Return a layer's settings of data, model and training; a null section counts as absent."""
    values = {key: layer.values[key] for key in SECTIONS if layer.values.get(key) is not None}
    origins = {path: origin for path, origin in layer.origins.items() if path and path[0] in values}
    return LocatedValues(values, origins, layer.name)


def _parse_set(text: str) -> LocatedValues:
    part = parse_override(text)
    ((section, below),) = part.values.items()
    if section not in SECTIONS or not isinstance(below, Mapping):
        raise ConfigError(
            f"{part.name}: a key begins with data., model. or train.{_suggest_section(section)}"
        )
    return part


def _suggest_section(key: str) -> str:
    """Return a hint on the section of a key without one, or with a misspelt one."""
    configs: dict[str, list[type[Config]]] = {
        "train": [TrainConfig],
        "model": [entry.config for entry in MODELS.values()],
        "data": list(DATASETS.values()),
    }
    for section, classes in configs.items():
        if any(key in each.model_fields for each in classes):
            return f"; did you mean '{section}.{key}'?"
    return suggest_name(key, SECTIONS)


def _choose(kind: str, asked: Iterable[T], listed: Sequence[T], allowed: Sequence[T]) -> list[T]:
    """Return what was requested, once each and in the order of `allowed`; `listed` if nothing was."""
    wanted = set(asked)
    for name in sorted(map(str, wanted.difference(allowed))):
        raise UnknownName(kind, name, map(str, allowed))
    return [each for each in allowed if each in wanted] or list(listed)


def _append_new(first: Sequence[T], more: Iterable[T]) -> list[T]:
    return list(dict.fromkeys((*first, *more)))


def _find_files(folder: Path | None) -> dict[str, Path]:
    """Return suite files by name; of two with the same name, the first folder's."""
    folders = [folder] if folder is not None else [Path("suites"), find_own_folder("suites")]
    found: dict[str, Path] = {}
    # Editors, and macOS on disks of others, put hidden files next to those of the user.
    for path in (path for each in folders for path in sorted(each.glob("[!.]*.yaml"))):
        found.setdefault(path.stem, path)
    return found
