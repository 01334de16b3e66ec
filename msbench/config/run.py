"""Fully resolved runs: the same spec is the same run, whatever the order or spelling it was written in."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import AfterValidator, SerializeAsAny

from msbench.config.data import DATASETS, DataConfig
from msbench.config.layers import Config, Located, frozen, gather, merge, shown, validate
from msbench.config.model import ClassifierConfig
from msbench.config.models import MODELS
from msbench.config.numbers import Seed
from msbench.config.train import TrainConfig
from msbench.errors import UnknownName

SECTIONS = ("data", "model", "train")

LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def check_label(name: str) -> str:
    """Return the name of a suite, task or model if it is valid as a folder: no path escapes, not too long."""
    if not LABEL.fullmatch(name):
        rule = "1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
        raise ValueError(f"{shown(name)} is no name: {rule}")
    return name


Label = Annotated[str, AfterValidator(check_label)]


class RunSpec(Config):
    """One model, on one task, from one seed.

    `suite` and `task` are labels: they determine the run's folder, and are not part of its digest.
    """

    suite: Label
    task: Label
    model_name: Label
    seed: Seed
    data: SerializeAsAny[DataConfig]
    model: SerializeAsAny[ClassifierConfig]
    train: TrainConfig

    @classmethod
    def resolve(cls, part: Located) -> Self:
        """Build a spec from plain values: layers of a suite, or the ``spec`` of a ``run.json``.

        Raises one ConfigError with a line for every fault found.
        """
        header = part.at()
        data, model, train = gather(
            lambda: resolve_data(part.at("data")),
            lambda: resolve_model(header.values.get("model_name"), part.at("model")),
            lambda: validate(TrainConfig, part.at("train")),
        )
        sections = {"data": data, "model": model, "train": train}
        return validate(cls, replace(header, values={**header.values, **sections}))

    def canonical(self) -> str:
        """Return canonical JSON of all that determines the outcome."""
        return canonical_json(self.model_dump(mode="json"))

    @property
    def digest(self) -> str:
        """sha256 of the canonical JSON, in hex."""
        return spec_digest(self.model_dump(mode="json"))


def canonical_json(values: Mapping[str, Any]) -> str:
    """Return a spec's plain values as JSON with sorted keys, no spaces and no labels."""
    kept = {key: value for key, value in values.items() if key not in ("suite", "task")}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), allow_nan=False)


def spec_digest(values: Mapping[str, Any]) -> str:
    """Return sha256, in hex, of a spec's plain values as records hold them."""
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()


def resolve_data(part: Located) -> DataConfig:
    """Return the config of the dataset that the key ``dataset`` names."""
    name = part.values.get("dataset")
    if name is None:
        raise part.error(("dataset",), f"required key is missing; known: {', '.join(sorted(DATASETS))}")
    if not isinstance(name, str) or name not in DATASETS:
        where = f"{part.origin(('dataset',))}: {part.dotted(('dataset',))}"
        raise UnknownName("dataset", str(name), DATASETS, where)
    return validate(DATASETS[name], part, f"dataset {name!r}")


def resolve_model(name: Any, part: Located) -> ClassifierConfig:
    """Return the model config of `name`: its preset beats the defaults, and nothing may contradict it."""
    if not isinstance(name, str) or name not in MODELS:
        raise UnknownName("model", str(name), MODELS, part.name)
    entry = MODELS[name]
    _check_preset(name, entry.preset, part)
    return validate(
        entry.config, merge(Located(entry.preset, {}, part.name, part.prefix), part), f"model {name!r}"
    )


def _check_preset(name: str, preset: Mapping[str, Any], part: Located) -> None:
    """Raise ConfigError for an override of the preset: the run would be stored under a wrong name."""
    for key, fixed in preset.items():
        given = part.values.get(key, fixed)
        if frozen(given) != frozen(fixed):
            problem = f"{shown(given)} contradicts model {name!r}, which is {key} {shown(fixed)}"
            raise part.error((key,), problem)
