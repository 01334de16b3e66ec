"""Small models in every option, and batches, that the model tests share."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from msbench import models
from msbench.config import MODELS, ClassifierConfig, TrainConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import Classifier
from msbench.training.optimizer import build_optimizer

Module = TypeVar("Module", bound=nn.Module)

INFO = TaskInfo("tokens", 11, 4, 40, "accuracy", 0.25, {})

COMMON: list[dict[str, Any]] = [
    {},
    {"norm": "batch"},
    {"norm": "rms", "prenorm": False},
    {"norm": "batch", "prenorm": False, "pooling": "last"},
    {"positions": "learned", "encoder": "scalar"},
    {"bidirectional": True},
    {"bidirectional": True, "norm": "batch", "pooling": "last"},
    {"skip": False, "kernel": 1, "expand": 1.5, "dt_rank": 3},
]
MS_SSM: list[dict[str, Any]] = [
    {"levels": 0},
    {"levels": 1, "state": 3},
    {"state": 2},
    {"state_per_stream": True, "state": 3},
    {"ssm": "none"},
    {"ssm": "none", "mixer": "static", "mixer_channels": "per-channel"},
    {"decomposition": "shared-conv", "conv_bias": True},
    {"ssm_input": "raw", "parameters_from": "stream"},
    {"parameters_from": "stream"},
    {"mixer": "softmax", "mixer_init": "default"},
    {"mixer": "static"},
    {"mixer": "static", "mixer_channels": "per-channel", "mixer_init": "default"},
    {"mixer_channels": "per-channel", "block": "glu"},
    {"mixer": "softmax", "mixer_channels": "low-rank", "mixer_rank": 2, "mixer_init": "default"},
    {"mixer_bias": False, "mixer_init": "default", "raw_input": "token"},
    {"raw_input": "token", "expand": 1.5, "parameters_from": "stream"},
    {"raw_input": "sum", "step_sizes": "shared"},
    {"raw_input": "sum", "ssm": "none", "block": "glu"},
    {"input_conv": True, "step_sizes": "shared"},
    {"raw_stream": False},
    {"raw_decays": "slowest", "decomposition": "none"},
    {"decay_init": "mamba", "decay_spacing": "random"},
    {"input_discretisation": "raw"},
    {"conv_activation": "silu", "conv_bias": True},
    {"block": "glu"},
    {"block": "vit", "bidirectional": True},
]
MULTIRESNET: list[dict[str, Any]] = [
    {},
    {"kernel": 4, "norm": "batch", "independent_skip": True},
    {"prenorm": True, "norm": "rms", "pooling": "last"},
    {"depth": 1, "kernel": 3},
    {"depth": 9},  # beyond every sequence here
    {"positions": "learned", "encoder": "scalar"},
    {"bidirectional": True, "norm": "batch", "pooling": "last"},
]
SGCONV: list[dict[str, Any]] = [
    {},
    {"norm": "batch", "decay_min": 0.5},
    {"norm": "rms", "prenorm": False, "pooling": "last"},
    {"kernel_dim": 64},  # one sub-kernel, longer than every sequence here
    {"positions": "learned", "encoder": "scalar"},
    {"bidirectional": True, "norm": "batch", "pooling": "last"},
]
INCEPTION: list[dict[str, Any]] = [
    {},
    {"layers": 4, "shortcut_every": 2},
    {"kernels": [40, 20, 10], "norm": "layer", "layers": 3},
    {"kernels": [1], "shortcut_every": 1, "norm": "rms", "pooling": "last"},
    {"positions": "learned", "encoder": "scalar"},
]
CDIL: list[dict[str, Any]] = [
    {},
    {"layers": 7},  # the last dilations are beyond every sequence here
    {"kernel": 5, "pooling": "last", "final_norm": True},
    {"final_norm": True, "norm": "batch"},
    {"positions": "learned", "encoder": "scalar"},
]
CKCONV: list[dict[str, Any]] = [
    {},
    {"norm_over": "sequence", "pooling": "mean"},
    {"norm": "batch", "frequency": 10, "kernel_width": 2},
    {"norm": "rms", "final_norm": True},
    {"positions": "learned", "encoder": "scalar", "kernel_init": "torch"},
    {"kernel_dropout": 0.2},
]
TNN: list[dict[str, Any]] = [
    {},
    {"norm": "batch", "decay": 1.0, "expand": 1.5, "mlp_expand": 2.5},
    {"norm": "rms", "prenorm": False, "pooling": "last", "kernel_width": 2},
    {"positions": "learned", "encoder": "scalar"},
]
ORCHID: list[dict[str, Any]] = [
    {},
    {"norm": "batch", "bands": 16, "kernel_depth": 1, "kernel": 5},
    {"norm": "rms", "prenorm": False, "pooling": "last", "kernel_depth": 0, "kernel": 1},
    {"positions": "none", "encoder": "scalar", "mlp_expand": 0.5, "frequency": 1},
]
AROUND: list[dict[str, Any]] = COMMON[:5]
"""Options of what surrounds the blocks, which every model has."""
GRIFFIN: list[dict[str, Any]] = [
    *AROUND,
    *COMMON[5:7],
    {"heads": 2, "kernel": 1, "expand": 1.5, "mlp_expand": 0.5},
    {"pattern": ["attention"], "window": 3, "heads": 2},
    {"pattern": ["attention"], "bidirectional": True},
]
TRANSFORMER: list[dict[str, Any]] = [
    *AROUND,
    {"positions": "none", "heads": 1, "mlp_expand": 1},
    {"causal": True},
]
LINEAR_ATTENTION: list[tuple[str, dict[str, Any]]] = [
    *((name, options) for name in ("linear-transformer", "performer") for options in AROUND),
    *(("cosformer", {"heads": 2, **options}) for options in AROUND),
    *((name, {"causal": True}) for name in ("linear-transformer", "cosformer")),
    ("linear-transformer", {"positions": "none", "heads": 1, "mlp_expand": 1}),
    ("linear-transformer", {"causal": True, "norm": "batch", "pooling": "last"}),
    ("performer", {"heads": 1, "mlp_expand": 1}),
    ("performer", {"features": 5}),
]
LINFORMER: list[dict[str, Any]] = [
    *AROUND,
    {"sharing": "keys-and-values", "heads": 1, "mlp_expand": 1},
    {"sharing": "layers", "rank": 64, "positions": "none"},
]
LOCAL_ATTENTION: list[dict[str, Any]] = [*AROUND, {"heads": 1, "mlp_expand": 1, "block": 64}, {"block": 1}]
LUNA: list[dict[str, Any]] = [
    {},
    {"norm": "batch", "layers": 3},
    {"norm": "rms", "final_norm": True},
    {"norm": "batch", "pooling": "last", "layers": 1},
    {"positions": "none", "encoder": "scalar", "heads": 1, "mlp_expand": 1},
]
TOKEN_MODELS = [name for name, entry in MODELS.items() if not entry.numbers_only]
"""Models that read tokens too."""
RECURRENT = ("hippo-rnn", "ur-gru", "lipschitz-rnn")
"""Loops over positions, with neither norms nor residuals around their layers."""
LOOPS: list[dict[str, Any]] = [
    {},
    {"layers": 1, "final_norm": True, "norm": "batch"},
    {"pooling": "mean", "positions": "learned", "encoder": "scalar"},
]
FLASH: list[dict[str, Any]] = [
    *AROUND,
    {"chunk": None, "norm": "batch", "expand": 0.5},
    {"chunk": 5, "key_dim": 2, "positions": "none"},
]
MEGA: list[dict[str, Any]] = [
    *AROUND,
    {"attention": "laplace", "norm": "batch", "chunk": 8},
    {"attention": "relu2", "key_dim": 1, "expand": 0.5, "mlp_expand": 1, "state": 2},
    {"chunk": 5, "prenorm": False},
]
H_TRANSFORMER: list[dict[str, Any]] = [*AROUND, {"heads": 1, "mlp_expand": 1, "block": 2}, {"block": 16}]
LONGFORMER: list[dict[str, Any]] = [
    *AROUND,
    {"heads": 1, "mlp_expand": 1, "window": 128},
    {"window": 2, "global_tokens": 2},
]
BIGBIRD: list[dict[str, Any]] = [
    *AROUND,
    {"block": 1, "random_blocks": 3},
    {"block": 64},
    {"random_blocks": 0},
]
SPARSE_TRANSFORMER: list[dict[str, Any]] = [
    *AROUND,
    {"block": None, "summaries": 8},
    {"block": 1, "summaries": 1, "heads": 1},
    {"block": 64},
]
REFORMER: list[dict[str, Any]] = [
    *AROUND,
    {"heads": 1, "mlp_expand": 1, "chunk": 2},
    {"rounds": 3, "buckets": 6},
    {"chunk": 64},
]
SPACETIME: list[dict[str, Any]] = [
    {},
    {"layers": 3, "norm": "batch", "pooling": "last"},
    {"preprocess": False, "norm": "rms", "state": 1},
    {"positions": "learned", "encoder": "scalar"},
    {"final_norm": False, "layers": 1},
]
SINKHORN: list[dict[str, Any]] = [
    *AROUND,
    {"heads": 1, "mlp_expand": 1, "block": 1},
    {"block": 15, "iterations": 1, "temperature": 0.2},
]
LINEAR: list[tuple[str, dict[str, Any]]] = [
    *((name, options) for name in ("s4", "s5") for options in COMMON[:-1]),
    ("s4", {"copies": 2, "bidirectional": True}),
    *(("s4d-lin", options) for options in ({}, {"bidirectional": True}, {"discretisation": "bilinear"})),
    *((name, {}) for name in ("s4d-inv", "s4d-legs")),
    *(("s4d-real", options) for options in ({"state": 3}, {"bidirectional": True, "copies": 4})),
    *((name, {}) for name in ("dss-softmax", "dss-exp", "dss-exp-no-scale")),
    ("dss-softmax", {"bidirectional": True, "separate_steps": False, "horizon": 16}),
    *(("liquid-s4", {"liquid_kernel": kernel}) for kernel in ("polyb", "kb")),
    ("liquid-s4", {"liquid_kernel": "kb", "degree": 3, "powers": "row-sum", "bidirectional": True}),
    ("liquid-s4", {"bidirectional": True, "norm": "batch"}),
    *(("liquid-s4", {"liquid_kernel": "allcombs", "bidirectional": both}) for both in (False, True)),
    ("liquid-s4", {"liquid_kernel": "allcombs", "liquid_term": "frozen", "degree": 3}),
    ("liquid-s4", {"products": "shifted", "degree": 3, "liquid_term": "frozen"}),
    ("liquid-s4", {"products": "shifted", "degree": 4, "liquid_kernel": "kb", "liquid_term": "frozen"}),
    ("dss-softmax", {"gate": "none", "prenorm": False, "norm": "batch", "embedding_std": 1.0}),
    *((name, {"b_clip": None}) for name in ("s4", "s4d-legs")),
    *((name, {"gelu": "tanh", "dense_init": "lecun", "final_norm": False}) for name in ("s5", "lru")),
    ("s5", {"norm": "batch", "batch_norm_momentum": 0.05, "drop_path": 0.2, "embedding_std": None}),
    ("s4", {"prenorm": False, "final_norm": True, "drop_path": 0.5}),
    *(("s5", {"gate": gate}) for gate in ("full", "half", "none")),
    ("s5", {"blocks": 2, "output_init": "lecun-normal", "discretisation": "bilinear"}),
    ("s5", {"output_init": "complex-normal", "bidirectional": True}),
    *(("lru", options) for options in ({}, {"bidirectional": True}, {"r_min": 0.5, "r_max": 0.9})),
]
MS_SSM_S4: list[dict[str, Any]] = [
    {},
    {"levels": 0, "skip": False},
    {"state": 2, "learned_b": True, "raw_stream": False},
    {"bidirectional": True, "norm": "batch", "pooling": "last"},
    {"mixer_channels": "per-channel", "block": "vit"},
    {"decay_spacing": "random", "raw_decays": "slowest", "block": "glu"},
]
MS_SSM_COMPLEX: list[dict[str, Any]] = [
    {},
    {"levels": 0, "skip": False},
    {"state": 2, "state_per_stream": True, "decay_init": "mamba"},
    {"bidirectional": True, "norm": "batch", "pooling": "last"},
    {"mixer_channels": "per-channel", "block": "vit"},
    {"raw_decays": "slowest", "decomposition": "shared-conv", "block": "glu"},
]
MS_SSM_NAMES = ("msssm-s6", "msssm-s4", "msssm-s4d", "msssm-s4-dplr")
ABLATIONS = [name for name in MODELS if name.startswith("msssm-") and name not in MS_SSM_NAMES]
CASES: list[tuple[str, dict[str, Any]]] = [
    *(("mamba", {"state": 4, **options}) for options in [*COMMON, {"conv_bias": False}]),
    *(("msssm-s6", {"state": 7, "levels": 2, **options}) for options in [*COMMON, *MS_SSM]),
    *(("msssm-s4", {"state": 7, "levels": 2, **options}) for options in MS_SSM_S4),
    *((name, {"state": 10, "levels": 2, **each}) for name in MS_SSM_NAMES[2:] for each in MS_SSM_COMPLEX),
    *((name, {"state": 7, "levels": 2, **options}) for name in ABLATIONS for options in COMMON[:2]),
    *((name, {"state": 7, "levels": 2, "bidirectional": True}) for name in ABLATIONS),
    *((name, {"state": 3}) for name in ("mamba-2x-param", "mamba-2x-state")),
    *(("multiresnet", options) for options in MULTIRESNET),
    *(("sgconv", {"kernel_dim": 4, **options}) for options in SGCONV),
    *(("inceptiontime", {"kernels": [9, 5, 3], "bottleneck": 4, **options}) for options in INCEPTION),
    *(("cdil", options) for options in CDIL),
    *(("ckconv", {"kernel_width": 6, **options}) for options in CKCONV),
    *(("orchid", {"kernel_width": 6, **options}) for options in ORCHID),
    *(("tnn", {"kernel_width": 6, **options}) for options in TNN),
    *(("spacetime", {"state": 5, **options}) for options in SPACETIME),
    *(("griffin", {"pattern": ["recurrent", "attention"], "window": 5, **options}) for options in GRIFFIN),
    *(("hawk", options) for options in ({}, *COMMON[5:7])),
    *(("transformer", options) for options in TRANSFORMER),
    *(("local-attention", {"block": 5, **options}) for options in LOCAL_ATTENTION),
    *LINEAR_ATTENTION,
    *(("linformer", {"rank": 6, **options}) for options in LINFORMER),
    *(("sparse-transformer", {"block": 4, "summaries": 2, **options}) for options in SPARSE_TRANSFORMER),
    *(("longformer", {"window": 6, **options}) for options in LONGFORMER),
    *(("bigbird", {"block": 3, "random_blocks": 1, **options}) for options in BIGBIRD),
    *(("luna-256", {"packed": 9, **options}) for options in LUNA),
    *(("flash", {"key_dim": 6, "chunk": 8, **options}) for options in FLASH),
    *(("mega", {"key_dim": 6, "state": 3, **options}) for options in MEGA),
    *(("h-transformer-1d", {"block": 4, **options}) for options in H_TRANSFORMER),
    *(("reformer", {"chunk": 8, **options}) for options in REFORMER),
    *(("sinkhorn", {"block": 4, **options}) for options in SINKHORN),
    *(("lstm", options) for options in COMMON[:7]),
    *((name, options) for name in RECURRENT for options in LOOPS),
    *(("hippo-rnn", {"memory": size, "final_norm": True}) for size in (1, 13)),
    ("lipschitz-rnn", {"beta": 1, "gamma": 0, "euler_step": 1, "init_std": 3}),
    *(("r-lstm", {"segment": 9, "decoder_width": 6, **options}) for options in LOOPS),
    *((name, {"state": 4, **options}) for name, options in LINEAR),
]
AROUND_BLOCKS = {"norm", "prenorm", "final_norm", "pooling", "positions", "encoder"}
"""Options of the one classifier that all models share."""


def list_distinct_cases() -> list[tuple[str, dict[str, Any]]]:
    """Return those of `CASES` that differ in the blocks themselves; of the two main models all."""
    found: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
    for name, options in CASES:
        main = name in ("mamba", "msssm-s6")
        own = {key: value for key, value in options.items() if main or key not in AROUND_BLOCKS}
        found.setdefault((name, repr(own)), (name, options))
    return [*found.values()]


OWN_SHORTCUTS = ("inceptiontime", "cdil", "luna-256", "mega", "r-lstm", "ckconv", "spacetime")
"""Models without the classifier's residuals."""


def case_id(case: tuple[str, dict[str, Any]]) -> str:
    return "-".join([case[0], *(f"{key}={value}" for key, value in case[1].items())])


def config_of(name: str, **options: Any) -> ClassifierConfig:
    entry = MODELS[name]
    return entry.config(**{"d_model": 8, "layers": 2, **entry.preset, **options})


def known(name: str, **options: Any) -> dict[str, Any]:
    """Those of the options that this model has."""
    return {key: value for key, value in options.items() if key in MODELS[name].config.model_fields}


def model_of(name: str, seed: int = 0, **options: Any) -> Classifier:
    return models.build(name, config_of(name, **options), INFO, seed)


def layer_of(model: Classifier, index: int = 0) -> Any:
    """A block's layer; its own attributes are no part of nn.Module's type."""
    block: Any = model.blocks[index]
    return block.layer


def groups_of(model: Classifier) -> dict[str, str]:
    """The optimiser's group of every parameter."""
    optimizer = build_optimizer(model, TrainConfig())
    groups = {id(each): group["name"] for group in optimizer.param_groups for each in group["params"]}
    return {name: groups[id(parameter)] for name, parameter in model.named_parameters()}


def shaken(module: Module, share: float = 0.1, seed: int = 0) -> Module:
    """With noise on every parameter, so that no equality holds by a zero or a one of the start."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(share * noise)
    return module


def leaves(state: Any) -> list[Tensor]:
    """The tensors of a state: a tensor, or a nest of tensors and None."""
    if isinstance(state, Tensor):
        return [state]
    return [leaf for part in state or () for leaf in leaves(part)]


def stepped(layer: Any, x: Tensor) -> Tensor:
    """x (b, l, d) through a layer position by position; no step may write the state that it was given."""
    state, outputs = layer.start(x[:, 0]), []
    for position in x.unbind(1):
        before = [leaf.clone() for leaf in leaves(state)]
        y, following = layer.step(position, state)
        assert all(torch.equal(one, two) for one, two in zip(before, leaves(state), strict=True))
        outputs.append(y)
        state = following
    return torch.stack(outputs, dim=1)


def tokens(*lengths: int, width: int | None = None, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random sequences of these lengths, padded with 0 to `width` or the longest."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.zeros(len(lengths), width or max(lengths), dtype=torch.int64)
    for row, length in zip(inputs, lengths, strict=True):
        row[:length] = torch.randint(1, INFO.vocabulary, (length,), generator=generator)
    return inputs, torch.tensor(lengths)


def compute_test_loss(model: Classifier, batch: tuple[Tensor, Tensor]) -> Tensor:
    """A loss that every parameter has a part in: of the logits, and the auxiliary one if there is one."""
    loss: Tensor = model(*batch).square().sum()
    auxiliary = model.take_auxiliary_loss()
    return loss if auxiliary is None else loss + auxiliary


def find_largest_saved(run_forward: Callable[[], Tensor]) -> int:
    """The bytes of the largest tensor that a forward keeps for its backward, which is run as well."""
    sizes = [0]

    def keep(tensor: Tensor) -> Tensor:
        sizes.append(tensor.untyped_storage().nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = run_forward().sum()
    loss.backward()  # type: ignore[no-untyped-call]
    return max(sizes)


def warmed_up(model: Classifier) -> Classifier:
    """After one pass in training mode: batch norm has statistics of its own."""
    with torch.no_grad():
        model.train()(*tokens(9, 17, 5, seed=1))
    return model.eval()
