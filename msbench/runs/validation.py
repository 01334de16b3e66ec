"""Compatibility of a run's settings with its task, checked before any data is available.

Faults within one config are refused by the config itself.
"""

from collections.abc import Iterator

from msbench.config import RunSpec
from msbench.config.strict_yaml import KeyPath
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError


def check(spec: RunSpec, info: TaskInfo) -> None:
    """Raise ConfigError if a run does not fit its data, which must be set up."""
    for path, problem in faults(spec, info):
        raise ConfigError(f"{'.'.join(map(str, path))}: {problem}")
    pad_to, longest = spec.train.pad_to, info.longest
    if pad_to is not None and pad_to < longest:
        raise ConfigError(f"train.pad_to is {pad_to}, but the longest of {spec.task} has {longest} tokens")


def faults(spec: RunSpec, info: TaskInfo) -> Iterator[tuple[KeyPath, str]]:
    """Yield the key and the problem of every setting that is invalid for this task.

    `info` may be an outline: its `longest` is then an upper bound, and settings that pass may still be
    refused once the data is set up.
    """
    model, train = spec.model, spec.train
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
