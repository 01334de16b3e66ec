"""Models by name, built the same from the same seed."""

from collections.abc import Callable

from torch import nn

from msbench import ops
from msbench.data.dataset import TaskInfo
from msbench.errors import ConfigError, UnknownName
from msbench.models import mamba, ms_ssm
from msbench.models.classifier import Classifier, seeded
from msbench.models.selective import inner_width
from msbench.models.streams import only_scanned, stream_count, stream_states
from msbench.specs import MODELS as ENTRIES
from msbench.specs import ClassifierConfig, MambaConfig, MsSsmConfig
from msbench.specs.model import SsmConfig

__all__ = [
    "MODELS",
    "MODULES",
    "Builder",
    "Classifier",
    "activation_bytes",
    "build",
    "parameter_count",
    "states_per_channel",
]

Builder = Callable[[ClassifierConfig, TaskInfo], Classifier]


def _mamba(config: ClassifierConfig, info: TaskInfo) -> Classifier:
    assert isinstance(config, MambaConfig)
    return mamba.build(config, info)


def _ms_ssm(config: ClassifierConfig, info: TaskInfo) -> Classifier:
    assert isinstance(config, MsSsmConfig)
    return ms_ssm.build(config, info)


MODELS: dict[str, Builder] = {
    "msssm-s6": _ms_ssm,
    "mamba": _mamba,
}

MODULES: dict[str, str] = {
    "msssm-s6": ms_ssm.__name__,
    "mamba": mamba.__name__,
}
"""The module that defines each model: with all that it imports, its part of a run's source digest."""


def build(name: str, config: ClassifierConfig, info: TaskInfo, seed: int) -> Classifier:
    """The model on the CPU, with parameters that depend on nothing but the arguments.

    The state of torch's global generator is left as it was. Raises UnknownName for `name`, and ConfigError
    where the config is another model's.
    """
    if name not in MODELS:
        raise UnknownName("model", name, MODELS)
    expected = ENTRIES[name].config
    if not isinstance(config, expected):
        raise ConfigError(f"model {name} takes a {expected.__name__}, not a {type(config).__name__}")
    return seeded(lambda: MODELS[name](config, info), seed)


def parameter_count(model: nn.Module) -> int:
    """Numbers that training changes."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def activation_bytes(name: str, config: ClassifierConfig, positions: int, device: str = "cpu") -> int:
    """About how much memory the activations of one training step take, for `positions` tokens with padding.

    Per position and channel one state in 16, and ten arrays of the width. Where the kernel of that device
    type does not make step sizes and streams itself, each stream adds its input, its step size before and
    after the softplus, and a copy in the order that the scan reads.
    """
    assert isinstance(config, SsmConfig)
    arrays = 10
    if not ops.makes_inputs(device):
        arrays += 4 * (stream_count(config) if isinstance(config, MsSsmConfig) else 1)
    elif isinstance(config, MsSsmConfig) and not only_scanned(config):
        arrays += 2 * stream_count(config)
    each = arrays * (1 + config.bidirectional) + states_per_channel(name, config) / 16
    return round(4 * positions * config.layers * inner_width(config) * each)


def states_per_channel(name: str, config: ClassifierConfig) -> int:
    """States that one channel of one layer carries, over all streams and directions."""
    if name not in MODELS:
        raise UnknownName("model", name, MODELS)
    if isinstance(config, MsSsmConfig):
        states = sum(stream_states(config)) if config.ssm == "s6" else 0
        return states * (1 + config.bidirectional)
    assert isinstance(config, MambaConfig)
    return config.state * (1 + config.bidirectional)
