"""Fully resolved runs and their training settings.

The same spec is the same run, whatever the order or spelling it was written in.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, SerializeAsAny, model_validator

from msbench.config.base import (
    LARGEST_COUNT,
    ClassifierConfig,
    Config,
    DataConfig,
    NonNegativeFloat,
    NonNegativeInt,
    OpenFraction,
    PositiveFloat,
    PositiveInt,
    Probability,
    Seed,
    freeze,
)
from msbench.config.baselines import SgConvConfig, TnnConfig
from msbench.config.data import DATASETS, ImageNetConfig, PathfinderConfig, PixelConfig
from msbench.config.layers import LocatedValues, merge_layers, run_checks, validate
from msbench.config.messages import format_value
from msbench.config.models import MODELS
from msbench.config.own import derive_config, find_entry_point, list_entry_points
from msbench.errors import ConfigError, UnknownName

C = TypeVar("C", bound=Config)
SECTIONS = ("data", "model", "train")

LABEL = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


def check_label(name: str) -> str:
    """Return the name of a suite, task or model if it is valid as a folder: no path escapes, not too long."""
    if not LABEL.fullmatch(name):
        rule = "1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
        raise ValueError(f"{format_value(name)} is not a valid name: use {rule}")
    return name


Label = Annotated[str, AfterValidator(check_label)]


OF_SCHEDULES = {
    ("cosine", "plateau", "one-cycle"): ("min_lr",),
    ("plateau",): ("plateau_factor", "plateau_patience"),
    ("one-cycle",): ("one_cycle_div_factor", "one_cycle_beta1"),
}
"""Schedules, and the options that act with them only."""


class TrainConfig(Config):
    """Optimiser, schedule, batches and precision.

    The learning rate rises linearly for `warmup_epochs` to `lr`; then it follows `schedule` to the last step
    of `epochs` (or of `max_steps`, where that comes first). All groups of parameters follow it with their own
    rates, so `min_lr` is in relation to `lr`.

    - ``cosine`` falls along half a cosine to `min_lr`.
    - ``constant`` stays.
    - ``rsqrt`` falls as 1 / sqrt(step), as for Long Range Arena's Transformers, where a base of 0.05 gives an
      `lr` of 0.05 / sqrt(steps of warm-up).
    - ``plateau`` multiplies by `plateau_factor` when the score on the validation split has not risen for more
      than `plateau_patience` epochs, down to `min_lr` (torch's ReduceLROnPlateau; S4's code and DSS's).
    - ``one-cycle`` rises along half a cosine from `lr` / `one_cycle_div_factor`, and falls along another to
      `min_lr` (torch's OneCycleLR). Fastai, so PTB-XL's baselines, warms up for 0.3 of `epochs` and ends at
      `lr` / 250,000.
    """

    epochs: PositiveInt = 10
    max_steps: PositiveInt | None = None
    batch_size: PositiveInt = 32
    lr: PositiveFloat = 1e-3
    ssm_lr: PositiveFloat | None = None
    """Learning rate of decays, step sizes and skips; None means `lr`."""
    dt_lr: PositiveFloat | None = None
    """Learning rate of step sizes and the matrices that they are computed by; None means that of `ssm_lr`."""
    dt_decay: bool = False
    """Weight decay of step sizes too: S5's ``dt_global``."""
    kernel_lr: PositiveFloat | None = None
    """Learning rate of SGConv's kernels (1e-3 in its code); None means that of `ssm_lr`."""
    min_lr: NonNegativeFloat = 0.0
    weight_decay: NonNegativeFloat = 0.01
    beta1: Probability = 0.9
    beta2: Probability = 0.999
    warmup_epochs: Annotated[NonNegativeFloat, Field(lt=LARGEST_COUNT)] = 1.0
    schedule: Literal["cosine", "constant", "rsqrt", "plateau", "one-cycle"] = "cosine"
    plateau_factor: OpenFraction = 0.2
    plateau_patience: NonNegativeInt = 20
    one_cycle_div_factor: Annotated[float, Field(ge=1, le=1e6)] = 25.0
    one_cycle_beta1: Probability | None = None
    """`beta1` at the peak of the learning rate, to which it falls and from which it returns; None: constant.
    Fastai has 0.85, with a `beta1` of 0.95."""
    clip: PositiveFloat | None = None
    """Largest gradient norm; None means no clipping."""
    precision: Literal["float32", "bf16"] = "float32"
    matmul: Literal["highest", "tf32"] = "highest"
    """Rounding of the inputs of float32 matrix products on a GPU: ``tf32`` keeps 10 bits of 23, for several
    times the speed. The default is PyTorch's. No effect on a CPU."""
    bucketing: bool = True
    """Batches of similar length, padded to the longest of the batch. Under batch norm it lowers accuracy."""
    pad_to: PositiveInt | None = None
    """Pad every batch to this length instead, as the paper does with 2048."""
    loss: Literal["cross-entropy", "double-softmax"] = "cross-entropy"
    """``double-softmax`` repeats a fault in the code of the published Mamba rows."""
    mixup: PositiveFloat | None = None
    """Parameter of the beta distribution of the share in which two examples and their labels are mixed, drawn
    for each batch (0.8 in S4ND's recipe); None means that none are."""
    cutmix: PositiveFloat | None = None
    """The same for rectangles of an image that are replaced by those of another (1.0 in S4ND's recipe). With
    `mixup` too, each batch has one of them, with equal probability."""
    label_smoothing: Probability = 0.0
    """Share of a label that is spread evenly over all classes in training (0.1 in S4ND's ImageNet).

    The losses of validation and test are without.
    """
    average_weights: OpenFraction | None = None
    """Decay of an exponential moving average of the weights over steps (S4ND's ImageNet: 0.99996), or None.

    The average, with that of batch norms' statistics, is validated, so that the epoch is chosen by it, kept
    as the best, and tested. Training itself, and its loss and accuracy, are without.
    """
    micro_batch: Annotated[PositiveInt | Literal["auto"] | None, Field(exclude=True)] = None
    """Examples that a device computes at once, with gradients summed over a batch; ``auto`` halves them if
    memory runs out. An option of the execution, not part of the settings that are recorded and compared."""
    log_every: Annotated[PositiveInt | None, Field(exclude=True)] = None
    """Steps from one row of ``metrics.csv`` to the next within an epoch; None gives about 100 rows a run. An
    option of the execution too."""

    @model_validator(mode="after")
    def _rates_are_in_order(self) -> Self:
        if self.min_lr > self.lr:
            raise ValueError(f"min_lr {self.min_lr} is above lr {self.lr}")
        return self

    @model_validator(mode="after")
    def _labels_suit_the_loss(self) -> Self:
        changed = self.changed(["label_smoothing", "mixup", "cutmix"])
        if changed and self.loss == "double-softmax":
            raise ValueError(
                f"{changed[0]} is not supported with loss: double-softmax, which repeats a published run;"
                " leave it out, or use loss: cross-entropy"
            )
        return self

    @model_validator(mode="after")
    def _options_suit_the_schedule(self) -> Self:
        for schedules, names in OF_SCHEDULES.items():
            if self.schedule not in schedules and (changed := self.changed(names)):
                raise ValueError(
                    f"schedule: {self.schedule} does not use {', '.join(changed)}, which belongs to"
                    f" {' and '.join(schedules)}; remove it"
                )
        if self.schedule in ("rsqrt", "one-cycle") and self.warmup_epochs == 0:
            raise ValueError(f"schedule: {self.schedule} begins with a warm-up; raise warmup_epochs above 0")
        if self.schedule == "one-cycle" and self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"warmup_epochs {self.warmup_epochs} leaves schedule: one-cycle no epoch to fall in, of"
                f" epochs {self.epochs}; lower it"
            )
        if self.one_cycle_beta1 is not None and self.one_cycle_beta1 > self.beta1:
            raise ValueError(
                f"one_cycle_beta1 {self.one_cycle_beta1} is above beta1 {self.beta1}, from which it falls;"
                " lower it"
            )
        return self


EXECUTION_OPTIONS = tuple(name for name, field in TrainConfig.model_fields.items() if field.exclude)
"""The options of training that decide no result: recorded with the environment, and in no digest."""


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
        spec = validate(cls, replace(header, values={**header.values, **sections}))
        idle = _find_idle_options(spec.data, spec.model, spec.train)
        lines = [str(part.error(("train", key), problem)) for key, problem in idle]
        if problem := _find_missing_picture(spec.data, spec.model):
            lines.append(str(part.error(("model", "dimensions"), problem)))
        if lines:
            raise ConfigError("\n".join(lines))
        return spec

    @property
    def digest(self) -> str:
        """sha256 of the canonical JSON, in hex."""
        return compute_spec_digest(self.model_dump(mode="json"))


def _find_idle_options(
    data: DataConfig, model: ClassifierConfig, train: TrainConfig
) -> Iterator[tuple[str, str]]:
    """Yield the key of each option of training that the data or the model do not take, and the problem."""
    if data.several_labels and train.label_smoothing:
        yield "label_smoothing", f"needs one label an example, and {data.dataset} has several; leave it out"
    if not model.has_step_sizes:
        for key in train.changed(("dt_lr", "dt_decay")):
            yield key, "acts on step sizes, and the model has none; leave it out"
    if train.kernel_lr is not None and not isinstance(model, SgConvConfig):
        yield "kernel_lr", "acts on the kernels of sgconv, and this is another model; leave it out"


def _find_missing_picture(data: DataConfig, model: ClassifierConfig) -> str:
    """Return the problem of a model of pictures on data that has none: empty if there is no problem."""
    if not isinstance(model, TnnConfig) or model.dimensions == 1:
        return ""
    pictures = isinstance(data, PixelConfig | PathfinderConfig | ImageNetConfig)
    if pictures and not getattr(data, "permuted", False):
        return ""
    return f"2 needs square pictures in reading order, and {data.dataset} has none here; set it to 1"


def format_canonical_json(values: Mapping[str, Any]) -> str:
    """Return a spec's plain values as JSON with sorted keys, no spaces, no labels and no places of code."""
    kept = {key: value for key, value in values.items() if key not in ("suite", "task")}
    kept |= {key: _drop_use(value) for key, value in kept.items() if isinstance(value, Mapping)}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), allow_nan=False)


def compute_spec_digest(values: Mapping[str, Any]) -> str:
    """Return sha256, in hex, of a spec's plain values as records hold them."""
    return hashlib.sha256(format_canonical_json(values).encode()).hexdigest()


def _drop_use(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != "use"}


def resolve_data(part: LocatedValues) -> DataConfig:
    """Return the config of the dataset that the key ``dataset`` names, or ``use`` if it is the user's own."""
    name, use = part.values.get("dataset"), part.values.get("use")
    if name is None and use is None:
        raise part.error(("dataset",), f"required key is missing; known: {', '.join(sorted(DATASETS))}")
    if use is None and isinstance(name, str) and name not in DATASETS:
        use = find_entry_point("dataset", name)
    if use is not None:
        return _validate_own(part, use, "dataset", DataConfig, f"dataset {name or use!r}")
    if not isinstance(name, str) or name not in DATASETS:
        where = f"{part.origin(('dataset',))}: {part.dotted(('dataset',))}"
        raise UnknownName("dataset", str(name), (*DATASETS, *list_entry_points("dataset")), where)
    return validate(DATASETS[name], part, f"dataset {name!r}")


def resolve_model(name: Any, part: LocatedValues) -> ClassifierConfig:
    """Return the model config of `name`: its preset beats the defaults, and nothing may contradict it.

    The key ``use`` says where a model of the user's own is.
    """
    use = part.values.get("use")
    known = isinstance(name, str) and name in MODELS
    if known and use is not None:
        raise part.error(("use",), f"{name} is a model of msbench; give yours another name")
    if use is None and not known:
        use = find_entry_point("model", str(name))
    if use is not None:
        return _validate_own(part, use, "model", ClassifierConfig, f"model {name!r}")
    if not known:
        raise UnknownName("model", str(name), (*MODELS, *list_entry_points("model")), part.name)
    entry = MODELS[name]
    _check_preset(name, entry.preset, part)
    return validate(
        entry.config,
        merge_layers(LocatedValues(entry.preset, {}, part.name, part.prefix), part),
        f"model {name!r}",
    )


def _validate_own(
    part: LocatedValues, use: Any, kind: Literal["model", "dataset"], base: type[C], owner: str
) -> C:
    """Return the config of a model or dataset of the user's own; see `derive_config`."""
    if not isinstance(use, str):
        raise part.error(("use",), f"must be text (in quotes), not {format_value(use)}")
    made = derive_config(part, use, kind)
    assert issubclass(made, base)
    if kind == "dataset" and not LABEL.fullmatch(made.model_fields["dataset"].default):
        name = format_value(made.model_fields["dataset"].default)
        raise part.error(("use",), f"its name {name} is no name of a folder: use a-z, 0-9, '.', '_' and '-'")
    return validate(made, replace(part, values=_drop_use(part.values)), owner)


def _check_preset(name: str, preset: Mapping[str, Any], part: LocatedValues) -> None:
    """Raise ConfigError for an override of the preset: the run would be stored under a wrong name."""
    for key, fixed in preset.items():
        given = part.values.get(key, fixed)
        if freeze(given) != freeze(fixed):
            problem = (
                f"{format_value(given)} contradicts model {name!r}, which is {key} {format_value(fixed)}"
            )
            raise part.error((key,), problem)
