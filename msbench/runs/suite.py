"""Suites: one YAML file describes a table of the paper, or a scaled-down version of one.

::

    suites/<name>.yaml -> Suite -> plan -> RunSpec, one for every task × model × seed

A run's settings (``data``, ``model`` and ``train``) are merged from layers, the later one winning:

    the suite's < families.F < models.M < tasks.T < families.F.tasks.T < models.M.tasks.T < --set

The suite's own ``model`` and those of its tasks are for every model, so they may have only settings that
every model has. Settings of a family, such as its states or kernel, are under ``families`` or ``models``:
those of one family never reach another, and what is not set there has the default of the model's own config.
"""

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from msbench import datasets
from msbench.config import DATASETS, MODELS, RunSpec, TrainConfig
from msbench.config.base import ClassifierConfig, Config
from msbench.config.layers import LocatedValues, load_yaml, merge_layers, parse_override, run_checks, validate
from msbench.config.own import find_entry_point, list_entry_points
from msbench.config.run import SECTIONS
from msbench.config.strict_yaml import KeyPath
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError, UnknownName, suggest_name
from msbench.results.files import find_own_folder, write_atomically
from msbench.runs.suite_file import Claim, GateSettings, PaperColumns, SuiteFile, SuiteProtocol

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
    protocol: SuiteProtocol
    caption: str
    seeds: tuple[int, ...]
    reported: PaperColumns | None
    tasks: tuple[str, ...]
    models: tuple[str, ...]
    cells: frozenset[tuple[str, str]]
    """The tasks and models that it lists: all, but for models with `only` some tasks."""
    source: LocatedValues = field(repr=False)
    planned: Mapping[tuple[str, str], RunSpec] = field(default_factory=dict, repr=False)
    """Specs by task and model, at the first seed: runs of any seed are compared with them."""
    gate: GateSettings = field(default_factory=GateSettings)
    claims: tuple[Claim, ...] = ()

    @cached_property
    def folder(self) -> Path:
        """The folder of its file, in which it finds files of the user's own models and datasets."""
        return Path(self.source.name).parent.absolute()

    @cached_property
    def common(self) -> LocatedValues:
        """The settings for all models and tasks."""
        return self.select_sections()

    def list_own_files(self) -> list[str]:
        """Return the files of the user's own models and datasets that are given from its folder."""
        layers = [self.source.at("models", name) for name in self.models]
        layers += [self.source.at(*path, "data") for path in ((), *(("tasks", name) for name in self.tasks))]
        files = {str(layer.values.get("use")).rpartition(":")[0] for layer in layers}
        return sorted(file for file in files if file.endswith(".py") and not Path(file).is_absolute())

    def copy_file(self, content: bytes, path: Path) -> None:
        """Write the `content` of its file to `path`, with links next to it to the user's own files."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
        for name in self.list_own_files():
            link = path.parent / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(self.folder / name)

    def select_sections(self, *path: str) -> LocatedValues:
        """Return the settings of data, model and training below a key of its file; a null section is absent.

        The place of a user's own code is with them, as `use` of the model or of the data.
        """
        layer = self.source.at(*path)
        values = {key: layer.values[key] for key in SECTIONS if layer.values.get(key) is not None}
        origins = {key: origin for key, origin in layer.origins.items() if key and key[0] in values}
        if path[:1] == ("models",) and layer.values.get("use") is not None:
            values["model"] = {**values.get("model", {}), "use": layer.values["use"]}
            origins["model", "use"] = layer.origin(("use",))
        for key in ("data", "model"):
            use = values[key].get("use") if isinstance(values.get(key), Mapping) else None
            if isinstance(use, str) and use.rpartition(":")[0].endswith(".py"):
                if ".." in Path(use).parts:
                    text = f"{use} is not next to the suite, nor below its folder; give its whole path"
                    raise layer.error(("use",) if ("use",) in layer.origins else (key, "use"), text)
                values[key] = {**values[key], "use": str(self.folder / use)}
        return LocatedValues(values, origins, layer.name)

    @property
    def size(self) -> int:
        """The number of its runs."""
        return len(self.cells) * len(self.seeds)

    @cached_property
    def own_settings(self) -> frozenset[tuple[str, str]]:
        """The tasks and models whose settings are msbench's own, as the row's source publishes none."""
        return frozenset(cell for cell in self.cells if self._find_settings(*cell) == "ours")

    def _find_settings(self, task: str, model: str) -> str:
        layers = (self.source.at(*path).values.get("settings") for path in list_paths(task, model))
        return next((each for each in reversed(list(layers)) if each is not None), "source")

    def list_layers(self, task: str, model: str) -> list[LocatedValues]:
        """Return the settings of a task and model, from the suite's own to the most specific ones."""
        _, *paths = list_paths(task, model)
        return [self.common, *(self.select_sections(*path) for path in paths)]


def list_paths(task: str, model: str) -> list[tuple[str, ...]]:
    """Return the keys of a suite file below which a run's settings are, the last one winning."""
    groups = [("families", MODELS[model].family)] if model in MODELS else []
    groups.append(("models", model))
    return [(), *groups, ("tasks", task), *((*each, "tasks", task) for each in groups)]


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


def load_suites(names: Iterable[str]) -> list[Suite]:
    """Load the suites of these names, or in these files, each once.

    Raises ConfigError where two have one name: nothing that is shown would distinguish their runs.
    """
    found: dict[str, Suite] = {}
    for each in map(load_suite, names):
        if found.setdefault(each.name, each) != each:
            files = f"{found[each.name].source.name} and {each.source.name}"
            raise ConfigError(f"two suites are called {each.name}, {files}; name them one by one")
    return list(found.values())


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

    Empty means all that the suite lists. A model that msbench knows, and a seed, may be requested even if the
    suite does not list it: they come after the listed ones. So may a task of a model that is listed for
    others only, if both are requested. `overrides` are texts such as ``train.lr=1e-3``. Raises UnknownName
    for other names, ConfigError for an override that is invalid for any chosen run, or where no run is left.
    """
    sets = run_checks(*(partial(_parse_set, text) for text in overrides))
    chosen_tasks = _choose("task", tasks, suite.tasks, suite.tasks)
    known = _append_new(suite.models, [*MODELS, *list_entry_points("model")])
    chosen_models = _choose("model", models, suite.models, known)
    seeds = sorted(set(seeds))
    chosen_seeds = _choose("seed", seeds, suite.seeds, _append_new(suite.seeds, seeds))
    listed = set(suite.models)
    by_name = bool(set(tasks)) and bool(set(models))
    cells = [
        (task, model)
        for task in chosen_tasks
        for model in chosen_models
        if by_name or model not in listed or (task, model) in suite.cells
    ]
    if not cells:
        raise suite.source.error((), f"lists no model for {', '.join(chosen_tasks)}; name one with --model")
    return run_checks(
        *(partial(_resolve, suite, task, model, seed, sets) for task, model in cells for seed in chosen_seeds)
    )


def resolve_all(
    suites: Sequence[Suite],
    models: Iterable[str] = (),
    tasks: Iterable[str] = (),
    seeds: Iterable[int] = (),
    overrides: Iterable[str] = (),
) -> list[RunSpec]:
    """Return the runs of several suites, as `resolve_specs` does of one.

    A requested task is one of any of them, and a model is run by those that list it, or by all if none does.
    Both may be requested as `expand_names` takes them.
    """
    seeds, overrides = tuple(seeds), tuple(overrides)
    known = [task for each in suites for task in each.tasks]
    listed = [model for each in suites for model in each.models]
    models, tasks = expand_names("model", models, listed), expand_names("task", tasks, known)
    _choose("task", tasks, known, known)
    specs: list[RunSpec] = []
    for each in suites:
        wanted = [model for model in models if model in each.models or model not in listed]
        there = [task for task in tasks if task in each.tasks]
        if bool(wanted) == bool(models) and bool(there) == bool(tasks):
            specs += resolve_specs(each, wanted, there, seeds, overrides)
    if not specs:
        names = ", ".join(each.name for each in suites)
        raise ConfigError(f"{names}: none lists {', '.join(models)} for {', '.join(tasks)}")
    return specs


def expand_names(kind: str, asked: Iterable[str], known: Sequence[str]) -> list[str]:
    """Return the requested names: ``a,b`` are two, and ``msssm-*`` are all of `known` that match it.

    Raises UnknownName, which suggests a similar name, for a pattern that none matches.
    """
    found: list[str] = []
    for name in (part.strip() for text in asked for part in text.split(",")):
        matching = fnmatch.filter(known, name)
        if not matching and not set(name).isdisjoint("*?["):
            raise UnknownName(f"{kind} pattern", name, known)
        found += matching or [name]
    return list(dict.fromkeys(found))


def _read_suite(source: LocatedValues) -> Suite:
    head = validate(SuiteFile, source)
    _check_shared_keys(source, head)
    same = ("name", "title", "protocol", "caption", "seeds", "reported", "claims")
    suite = Suite(
        **{name: getattr(head, name) for name in same},
        tasks=tuple(head.tasks),
        models=tuple(head.models),
        cells=frozenset(
            (task, model)
            for model, layer in head.models.items()
            for task in (layer and layer.only) or head.tasks
        ),
        source=source,
        gate=head.gate or GateSettings(),
    )
    for model, layer in head.models.items():
        own = layer is not None and layer.use is not None
        if not own and model not in MODELS and find_entry_point("model", model) is None:
            known = (*MODELS, *list_entry_points("model"))
            raise UnknownName("model", model, known, source.origin(("models", model)))
    families = {entry.family for entry in MODELS.values()}
    for family in head.families:
        if family not in families:
            raise UnknownName("family", family, families, source.origin(("families", family)))
    return replace(
        suite,
        planned={(spec.task, spec.model_name): spec for spec in resolve_specs(suite, seeds=suite.seeds[:1])},
    )


def _check_shared_keys(source: LocatedValues, head: SuiteFile) -> None:
    """Raise ConfigError if settings for every model include one that not every model has."""
    layers = [source.at(), *(source.at("tasks", task) for task in head.tasks)]
    wrong = [
        layer.error(
            ("model", key),
            "is not a setting of every model; put it under families.<family>.model or models.<model>.model",
        )
        for layer in layers
        for key in layer.at("model").values
        if key not in ClassifierConfig.model_fields
    ]
    if wrong:
        raise ConfigError("\n".join(map(str, wrong)))


def _resolve(suite: Suite, task: str, model: str, seed: int, overrides: Sequence[LocatedValues]) -> RunSpec:
    merged = _merge_settings(suite, task, model, seed, overrides)
    spec = RunSpec.resolve(merged)
    if wrong := list(find_faults(spec, datasets.outline(spec.data))):
        raise ConfigError("\n".join(str(merged.error(path, problem)) for path, problem in wrong))
    return spec


def _merge_settings(
    suite: Suite, task: str, model: str, seed: int, overrides: Sequence[LocatedValues]
) -> LocatedValues:
    labels = {"suite": suite.name, "task": task, "model_name": model, "seed": seed}
    # A suite's own seeds have been checked: one that is refused here is from the command line.
    head = LocatedValues(labels, {("seed",): "--seed"}, suite.source.name)
    return merge_layers(head, *suite.list_layers(task, model), *overrides)


@dataclass(frozen=True)
class SettingOrigin:
    """A setting's value and where it comes from.

    `layer` is the key in the suite's file, such as ``families.s4.tasks.text``, or ``--set``; empty for what
    the model's name or its config says. `where` is the first line of the layer's settings.
    """

    value: Any
    layer: str = ""
    where: str = ""
    preset: bool = False

    @property
    def name(self) -> str:
        """The origin in one text."""
        if not self.layer:
            return "the model's name" if self.preset else "default"
        return f"{self.layer}, {self.where}" if self.where else self.layer


def list_origins(suite: Suite, spec: RunSpec, overrides: Iterable[str] = ()) -> dict[str, SettingOrigin]:
    """Return the origin of every setting of a run, by dotted key; `overrides` are those of its command."""
    named = [
        (".".join(path) or "all models", suite.select_sections(*path))
        for path in list_paths(spec.task, spec.model_name)
    ]
    named += [("--set", _parse_set(text)) for text in overrides]
    preset = MODELS[spec.model_name].preset if spec.model_name in MODELS else {}
    found: dict[str, SettingOrigin] = {}
    for section in SECTIONS:
        for key, value in getattr(spec, section).model_dump(mode="json").items():
            origin = SettingOrigin(value, preset=section == "model" and key in preset)
            for layer, source in named:
                if key in source.at(section).values:
                    where = "" if layer == "--set" else source.origin((section, key))
                    origin = SettingOrigin(value, layer, where)
            found[f"{section}.{key}"] = origin
    return found


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
    for key in ("mixup", "cutmix"):
        if getattr(train, key) is None:
            continue
        if info.multi_label or not info.real_valued:
            kind = f"{info.kind} with several labels an example" if info.multi_label else info.kind
            yield (
                ("train", key),
                f"mixes numbers of examples with one label each, but {spec.task} is a task of {kind};"
                " leave it out",
            )
        elif key == "cutmix" and not info.patch:
            yield ("train", key), f"cuts rectangles out of images, and {spec.task} has none; leave it out"
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
    if spec.model_name in MODELS and MODELS[spec.model_name].numbers_only:
        yield from _find_faults_of_whole_signals(spec, info)


def _find_faults_of_whole_signals(spec: RunSpec, info: TaskInfo) -> Iterator[tuple[KeyPath, str]]:
    """Yield what `find_faults` yields for a model that reads numbers of one length alone."""
    name, train = spec.model_name, spec.train
    if not info.real_valued or spec.data.ragged:
        yield (
            ("data", "dataset"),
            f"{spec.data.dataset} has {info.kind}, but {name} reads numbers alone, in signals of one length;"
            " choose a dataset of signals, pixels or patches",
        )
    if train.pad_to is not None:
        yield ("train", "pad_to"), f"padding would change what {name} reads; leave it out"
    if isinstance(train.micro_batch, int) and train.micro_batch < train.batch_size:
        yield (
            ("train", "micro_batch"),
            f"{train.micro_batch} would change the statistics by which {name} scales its features, which are"
            " those of whole batches; leave it out, or lower train.batch_size",
        )


def describe_unlisted_models(suite: Suite, specs: Iterable[RunSpec]) -> list[str]:
    """Return a line for each model of these runs that the suite does not list for the task."""
    cells = dict.fromkeys((spec.task, spec.model_name) for spec in specs)
    families = suite.source.at("families").values
    return [
        f"{suite.name} does not list {model}"
        + (f" for {task}: it runs" if model in suite.models else f": on {task} it runs")
        + (
            f" with the suite's settings for {family}"
            if model in MODELS and ((family := MODELS[model].family) in families or model in suite.models)
            else " with the suite's common settings and its own defaults"
        )
        for task, model in cells
        if (task, model) not in suite.cells
    ]


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
