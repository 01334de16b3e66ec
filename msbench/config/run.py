"""Fully resolved runs and their training settings.

The same spec is the same run, whatever the order or spelling it was written in.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SerializeAsAny, model_validator

from msbench.config.base import (
    LARGEST_COUNT,
    ClassifierConfig,
    Config,
    DataConfig,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    Probability,
    Seed,
    freeze,
)
from msbench.config.data import DATASETS
from msbench.config.layers import LocatedValues, merge_layers, run_checks, validate
from msbench.config.messages import format_value
from msbench.config.models import MODELS
from msbench.errors import UnknownName

SECTIONS = ("data", "model", "train")

LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def check_label(name: str) -> str:
    """Return the name of a suite, task or model if it is valid as a folder: no path escapes, not too long."""
    if not LABEL.fullmatch(name):
        rule = "1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
        raise ValueError(f"{format_value(name)} is not a valid name: use {rule}")
    return name


Label = Annotated[str, AfterValidator(check_label)]


class TrainConfig(Config):
    """Optimiser, schedule, batches and precision.

    The learning rate rises linearly for `warmup_epochs`, then falls along a cosine to `min_lr` at the last
    step of `epochs` (or of `max_steps`, where that comes first).
    """

    epochs: PositiveInt = 10
    max_steps: PositiveInt | None = None
    batch_size: PositiveInt = 32
    lr: PositiveFloat = 1e-3
    ssm_lr: PositiveFloat | None = None
    """Learning rate of decays, step sizes and skips; None means `lr`."""
    min_lr: NonNegativeFloat = 0.0
    weight_decay: NonNegativeFloat = 0.01
    beta1: Probability = 0.9
    beta2: Probability = 0.999
    warmup_epochs: Annotated[NonNegativeFloat, Field(lt=LARGEST_COUNT)] = 1.0
    clip: PositiveFloat | None = None
    """Largest gradient norm; None means no clipping."""
    precision: Literal["float32", "bf16"] = "float32"
    bucketing: bool = True
    """Batches of similar length, padded to the longest of the batch."""
    pad_to: PositiveInt | None = None
    """Pad every batch to this length instead, as the paper does with 2048."""
    loss: Literal["cross-entropy", "double-softmax"] = "cross-entropy"
    """``double-softmax`` repeats a fault in the code of the published Mamba rows."""
    micro_batch: Annotated[PositiveInt | Literal["auto"] | None, Field(exclude=True)] = None
    """Examples that a device computes at once, with gradients summed over a batch; ``auto`` halves them if
    memory runs out. An option of the execution, not part of the settings that are recorded and compared."""

    @model_validator(mode="after")
    def _rates_are_in_order(self) -> Self:
        if self.min_lr > self.lr:
            raise ValueError(f"min_lr {self.min_lr} is above lr {self.lr}")
        return self


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
    def resolve(cls, part: LocatedValues) -> Self:
        """Build a spec from plain values: layers of a suite, or the ``spec`` of a ``run.json``.

        Raises one ConfigError with a line for every fault found.
        """
        header = part.at()
        data, model, train = run_checks(
            lambda: resolve_data(part.at("data")),
            lambda: resolve_model(header.values.get("model_name"), part.at("model")),
            lambda: validate(TrainConfig, part.at("train")),
        )
        sections = {"data": data, "model": model, "train": train}
        return validate(cls, replace(header, values={**header.values, **sections}))

    @property
    def digest(self) -> str:
        """sha256 of the canonical JSON, in hex."""
        return compute_spec_digest(self.model_dump(mode="json"))


def format_canonical_json(values: Mapping[str, Any]) -> str:
    """Return a spec's plain values as JSON with sorted keys, no spaces and no labels."""
    kept = {key: value for key, value in values.items() if key not in ("suite", "task")}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), allow_nan=False)


def compute_spec_digest(values: Mapping[str, Any]) -> str:
    """Return sha256, in hex, of a spec's plain values as records hold them."""
    return hashlib.sha256(format_canonical_json(values).encode()).hexdigest()


def resolve_data(part: LocatedValues) -> DataConfig:
    """Return the config of the dataset that the key ``dataset`` names."""
    name = part.values.get("dataset")
    if name is None:
        raise part.error(("dataset",), f"required key is missing; known: {', '.join(sorted(DATASETS))}")
    if not isinstance(name, str) or name not in DATASETS:
        where = f"{part.origin(('dataset',))}: {part.dotted(('dataset',))}"
        raise UnknownName("dataset", str(name), DATASETS, where)
    return validate(DATASETS[name], part, f"dataset {name!r}")


def resolve_model(name: Any, part: LocatedValues) -> ClassifierConfig:
    """Return the model config of `name`: its preset beats the defaults, and nothing may contradict it."""
    if not isinstance(name, str) or name not in MODELS:
        raise UnknownName("model", str(name), MODELS, part.name)
    entry = MODELS[name]
    _check_preset(name, entry.preset, part)
    return validate(
        entry.config,
        merge_layers(LocatedValues(entry.preset, {}, part.name, part.prefix), part),
        f"model {name!r}",
    )


def _check_preset(name: str, preset: Mapping[str, Any], part: LocatedValues) -> None:
    """Raise ConfigError for an override of the preset: the run would be stored under a wrong name."""
    for key, fixed in preset.items():
        given = part.values.get(key, fixed)
        if freeze(given) != freeze(fixed):
            problem = (
                f"{format_value(given)} contradicts model {name!r}, which is {key} {format_value(fixed)}"
            )
            raise part.error((key,), problem)
