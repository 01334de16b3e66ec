"""AdamW with parameter groups, each with its weight decay and learning rate.

===========  ==================================================  ============  ====================
group        parameters                                          weight decay  learning rate
===========  ==================================================  ============  ====================
``weights``  matrices, embeddings, filters, the mixer's matrix   yes           ``lr``
``plain``    biases, norms, constant (static) mixers             no            ``lr``
``ssm``      decays ``A_log``, skips ``D``                       no            ``ssm_lr``
``dt``       step sizes ``log_dt``, biases of step sizes         ``dt_decay``  ``dt_lr``
``dt-maps``  matrices that step sizes are computed by            yes           ``dt_lr``
``kernels``  SGConv's kernels                                    yes           ``kernel_lr``
===========  ==================================================  ============  ====================

Without ``dt_lr`` or ``kernel_lr`` the rate is ``ssm_lr``, and without that ``lr``. Where ``dt`` then has the
settings of ``ssm``, it is part of it.
Groups without weight decay are those whose zeros have another meaning: a rate of -1, no skip, steps of 0.69,
equal streams switched off. A static mixer is a scale, as a norm's is, so it does not decay either. Models
whose skip ``D`` has the common learning rate in their source have it in ``plain``.
"""

from collections.abc import Mapping

import torch
from torch import nn

from msbench.config import TrainConfig

STATE_SPACE = ("A_log", "D")
STEP_SIZE = "log_dt"


def make_parameter_groups(model: nn.Module, train: TrainConfig) -> list[dict[str, object]]:
    """Return AdamW's groups, with ``name``, ``params``, ``lr`` and ``weight_decay``; empty ones are left out.

    Every trainable parameter is in exactly one group. Raises RuntimeError, naming the parameter, otherwise.
    """
    ssm_lr = train.lr if train.ssm_lr is None else train.ssm_lr
    dt_lr = ssm_lr if train.dt_lr is None else train.dt_lr
    kernel_lr = ssm_lr if train.kernel_lr is None else train.kernel_lr
    decay = train.weight_decay
    settings = {
        "weights": (train.lr, decay),
        "plain": (train.lr, 0.0),
        "ssm": (ssm_lr, 0.0),
        "dt": (dt_lr, decay if train.dt_decay else 0.0),
        "dt-maps": (dt_lr, decay),
        "kernels": (kernel_lr, decay),
    }
    members: dict[str, list[nn.Parameter]] = {name: [] for name in settings}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad:
                group = find_group(module, name, parameter)
                # One group where settings are equal: the order of groups is that in which clipping sums.
                alike = group == "dt" and settings["dt"] == settings["ssm"]
                members["ssm" if alike else group].append(parameter)
    check_partition(model, members)
    return [
        {"name": group, "params": parameters, "lr": settings[group][0], "weight_decay": settings[group][1]}
        for group, parameters in members.items()
        if parameters
    ]


def find_group(module: nn.Module, name: str, parameter: nn.Parameter) -> str:
    """Return the group of a parameter, from the module that owns it and its name there.

    A module may set it itself: ``optimizer_groups`` maps names of its parameters to groups.
    """
    own: Mapping[str, str] = getattr(module, "optimizer_groups", {})
    if name in own:
        return own[name]
    if name == STEP_SIZE:
        return "dt"
    if name in STATE_SPACE:
        return "ssm"
    return "plain" if name == "bias" or parameter.ndim < 2 else "weights"


def check_partition(model: nn.Module, members: dict[str, list[nn.Parameter]]) -> None:
    """Raise RuntimeError if a trainable parameter is in no group, or in two."""
    seen = [id(parameter) for parameters in members.values() for parameter in parameters]
    for name, parameter in model.named_parameters(remove_duplicate=False):
        count = seen.count(id(parameter))
        if parameter.requires_grad and count != 1:
            raise RuntimeError(
                f"parameter {name} is in {count} groups of the optimiser; a parameter has one owner"
            )


def build_optimizer(model: nn.Module, train: TrainConfig) -> torch.optim.AdamW:
    """Build AdamW over `make_parameter_groups`; on a GPU fused, so that it can skip a step by itself."""
    groups = make_parameter_groups(model, train)
    fused = next(model.parameters()).is_cuda
    return torch.optim.AdamW(groups, lr=train.lr, betas=(train.beta1, train.beta2), fused=fused or None)
