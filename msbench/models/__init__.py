"""Models by name; the same seed builds the same model."""

from collections.abc import Iterable
from importlib import import_module

import torch
from torch import nn

from msbench.config import MODELS, ClassifierConfig, RunSpec
from msbench.config.own import find_own
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError, UnknownName
from msbench.models.classifier import Classifier
from msbench.models.family import Family
from msbench.models.own import build_own, get_own_family
from msbench.ops.scan.dispatch import requested_kernel, state_limit

NO_FIXED_ORDER = {
    "mamba-ssm": "its backward adds up the gradients of B and C by atomic additions, in no fixed order"
    " (state-spaces/mamba #493); leave --scan out, or use --scan triton",
}
"""Scan kernels that no setting makes deterministic, with the reason; torch does not know of them."""


def find_family(name: str, config: ClassifierConfig | None = None) -> Family:
    """Return the family of the model of this name, or of a user's own model by its config.

    Raises UnknownName for neither.
    """
    code = None if config is None else find_own(config)
    return find_registered_family(name) if code is None else get_own_family(code)


def find_registered_family(name: str) -> Family:
    """Return the family of a model of msbench, from the module of its entry; raise UnknownName."""
    if name not in MODELS:
        raise UnknownName("model", name, MODELS)
    family: Family = import_module(MODELS[name].module).FAMILY
    return family


def find_config_family(config: ClassifierConfig) -> Family:
    """Return the family of the models with a config of this class."""
    if (code := find_own(config)) is not None:
        return get_own_family(code)
    return find_family(next(name for name, entry in MODELS.items() if entry.config is type(config)))


def build(name: str, config: ClassifierConfig, info: TaskInfo, seed: int) -> Classifier:
    """Build the model on the CPU, with parameters that depend only on the arguments.

    Leaves the state of torch's global generator unchanged. Raises UnknownName for an unknown `name`, and
    ConfigError if the config is another model's, or the user's code for it fails.
    """
    if (code := find_own(config)) is not None:
        return build_own(code, config, info, seed)
    return build_registered(name, config, info, seed)


def build_registered(name: str, config: ClassifierConfig, info: TaskInfo, seed: int) -> Classifier:
    """Build a model of msbench; see `build`."""
    found, expected = find_registered_family(name), MODELS[name].config
    if not isinstance(config, expected):
        raise ConfigError(f"model {name} takes a {expected.__name__}, not a {type(config).__name__}")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return found.build(config, info)


def build_outline(name: str, config: ClassifierConfig, info: TaskInfo) -> Classifier:
    """Build the model with parameters of its sizes that take no memory and have no values: to count them."""
    with torch.device("meta"):
        return build(name, config, info, 0)


def check_kernel(name: str, config: ClassifierConfig) -> None:
    """Raise ConfigError if the requested scan allows too few states for the model."""
    limit, needed = state_limit(), find_family(name, config).count_scanned(config)
    if limit is not None and needed > limit:
        raise ConfigError(
            f"{name} has {needed} states per stream, but the scan {requested_kernel()} supports"
            f" at most {limit}; lower model.state, or choose another with --scan"
        )


def check_fixed_order(specs: Iterable[RunSpec]) -> None:
    """Raise ConfigError, naming kernel and models, if a run cannot be deterministic."""
    engine = requested_kernel()
    reason = NO_FIXED_ORDER.get(engine)
    scanning = {
        spec.model_name
        for spec in specs
        if find_family(spec.model_name, spec.model).count_scanned(spec.model)
    }
    if reason and scanning:
        raise ConfigError(
            f"--deterministic: the scan {engine}, which {', '.join(sorted(scanning))} would use, is not:"
            f" {reason}"
        )


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def count_states_per_channel(name: str, config: ClassifierConfig) -> int:
    """Return the number of states of one channel of one layer, over all streams and directions."""
    return find_family(name, config).count_states(config)
