"""Models of the user's own: any `torch.nn.Module`, in the place of msbench's own classifiers.

A function ``build(config, info)`` returns a `Classifier`, which has every feature of msbench, or another
module with ``forward(inputs, lengths) -> logits``; `docs/extending.md` describes both. `use` may name a
`Family` too, which says more of the model: whether it is causal, and its states.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from msbench.config import ClassifierConfig
from msbench.config.own import OwnCode, find_own
from msbench.datasets.dataset import Batch, Split, TaskInfo
from msbench.errors import MsbenchError
from msbench.models.classifier import Classifier
from msbench.models.family import Family, count_no_states

PADDING_PROBE = 64
"""Positions of padding that a model is tried with before its training."""
ROUNDING = 1e-3
"""Largest difference of logits that counts as rounding, relative to the largest of them and to 1."""


class ModuleClassifier(Classifier):
    """A user's module with ``forward(inputs, lengths) -> logits``, in the form that training expects.

    Parameters
    ----------
    module : maps inputs and lengths as in `msbench.datasets.dataset.Batch` to logits (b, classes); its
        attribute `mixing_layers`, if there is one, lists the layers whose mixing distance is measured
    """

    def __init__(self, config: ClassifierConfig, info: TaskInfo, module: nn.Module) -> None:
        nn.Module.__init__(self)
        self.config, self.sequences = config, info.sequences
        self.module = module
        self.blocks = nn.ModuleList()
        self.final_norm = self.auxiliary = self._auxiliary_loss = None

    @property
    def mixing_layers(self) -> tuple[nn.Module, ...]:
        """The layers whose mixing distance is measured, in order."""
        return tuple(getattr(self.module, "mixing_layers", ()))

    @property
    def has_batch_norm(self) -> bool:
        """See `Classifier`; torch's own batch norms count too."""
        return super().has_batch_norm or any(isinstance(part, _BatchNorm) for part in self.modules())

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map inputs and lengths to logits (b, classes)."""
        logits: Tensor = self.module(inputs, lengths)
        return logits


def get_own_family(code: OwnCode) -> Family:
    """Return the family that the code names; of a function, one that claims nothing of its model."""
    if isinstance(code.target, Family):
        return code.target
    return Family(code.function, count_no_states, is_causal=lambda _config: False)


def build_own(code: OwnCode, config: ClassifierConfig, info: TaskInfo, seed: int) -> Classifier:
    """Build a user's model, with parameters that depend only on the arguments if it draws them by torch.

    Raises ConfigError, naming the line of the user's code, where it fails or returns anything but a module.
    """
    try:
        found = build_seeded(code.function, config, info, seed)
    except MsbenchError:
        raise
    except Exception as error:
        raise code.error("model.use", f"building it failed: {code.describe_failure(error)}") from error
    if not isinstance(found, Classifier):
        raise code.error("model.use", f"must return a torch.nn.Module, not {type(found).__name__}")
    if not any(parameter.requires_grad for parameter in found.parameters()):
        raise code.error("model.use", "its module has no parameters to train")
    return found


def build_seeded(function: Callable[..., Any], config: ClassifierConfig, info: TaskInfo, seed: int) -> Any:
    """Return what a user's function builds from this seed; a module in the form that training expects."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        found = function(config, info)
    plain = isinstance(found, nn.Module) and not isinstance(found, Classifier)
    return ModuleClassifier(config, info, found) if plain else found


def check_own(
    config: ClassifierConfig, model: Classifier, info: TaskInfo, split: Split, pad_to: int | None
) -> None:
    """Raise ConfigError if a user's model gives anything but logits, or others with padding than without.

    It is tried on the shortest example of a split, where batches of it will have padding, in evaluation.
    Nothing is done for msbench's own models, which tests hold to this.
    """
    if (code := find_own(config)) is None:
        return
    lengths = split.lengths
    example, width = np.array([int(lengths.argmin())]), int(lengths.min())
    longest = max(int(lengths.max()), pad_to or 0)
    plain = _compute_logits(model, split.batch(example), code)
    if plain.ndim != 2 or plain.shape[1] != info.classes or not plain.is_floating_point():
        raise code.error(
            "model.use", f"must give logits (b, {info.classes}), and gives {plain.dtype} {tuple(plain.shape)}"
        )
    if longest == width or config.padding == "paper":
        return
    padded = _compute_logits(model, split.batch(example, min(longest, width + PADDING_PROBE)), code)
    apart = float((padded - plain).abs().max())
    if not apart <= ROUNDING * max(1.0, float(plain.abs().max())):
        raise code.error(
            "model.use",
            f"its logits depend on padding: those of an example of {width} positions change by {apart:.2g}"
            " when padding follows it, as in a batch with a longer one; use lengths, which are the true ones",
        )


@torch.no_grad()
def _compute_logits(model: Classifier, batch: Batch, code: OwnCode) -> Tensor:
    device = next(model.parameters()).device
    training = model.training
    try:
        found = model.eval()(*(torch.from_numpy(each).to(device) for each in (batch.inputs, batch.lengths)))
    except MsbenchError:
        raise
    except Exception as error:
        raise code.error("model.use", f"its forward failed: {code.describe_failure(error)}") from error
    finally:
        model.train(training)
    if not isinstance(found, Tensor):
        raise code.error("model.use", f"its forward must return logits, not {type(found).__name__}")
    return found
