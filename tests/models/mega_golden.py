"""Numbers of Mega's port in transformers 4.46.3, the last version that had one, for `test_mega`.

Written anew with that version in a folder of its own::

    pip install --target FOLDER --no-deps transformers==4.46.3 tokenizers==0.20.3 huggingface-hub==0.36.0
    PYTHONPATH=FOLDER:tests/models python tests/models/mega_golden.py

Parameters and inputs are waves, so that the file needs to hold outputs and gradients alone. The port computes
its moving average in float32, and so is right to about 1e-7.
"""

import json
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

FILE = Path(__file__).with_suffix(".json")
D, STATE, KEY_DIM, VALUES, INNER, LONGEST = 4, 3, 6, 8, 10, 12
LENGTHS = (12, 5, 1)
CASES: dict[str, dict[str, Any]] = {
    "softmax": {"attention": "softmax"},
    "laplace": {"attention": "laplace"},
    "relu2": {"attention": "relu2"},
    "softmax-postnorm": {"attention": "softmax", "prenorm": False},
    "softmax-chunks": {"attention": "softmax", "chunk": 4},
    "laplace-chunks-postnorm": {"attention": "laplace", "chunk": 4, "prenorm": False},
}
"""Options of `MegaConfig`."""
SIZES: dict[str, tuple[int, ...]] = {
    "norm.weight": (D,),
    "norm.bias": (D,),
    **{f"average.{name}": (2, D, STATE) for name in ("delta", "alpha", "beta", "gamma")},
    "average.omega": (D,),
    "v_proj.weight": (VALUES, D),
    "v_proj.bias": (VALUES,),
    "mix_proj.weight": (2 * D + KEY_DIM + VALUES, D),
    "mix_proj.bias": (2 * D + KEY_DIM + VALUES,),
    "h_proj.weight": (D, VALUES),
    "h_proj.bias": (D,),
    "queries_keys.scale": (2, KEY_DIM),
    "queries_keys.offset": (2, KEY_DIM),
    "bias.bias": (2 * LONGEST - 1,),
    "mlp_norm.weight": (D,),
    "mlp_norm.bias": (D,),
    "up.weight": (INNER, D),
    "up.bias": (INNER,),
    "down.weight": (D, INNER),
    "down.bias": (D,),
}
"""The parameters of our block."""
THEIRS = {
    "norm": "mega_layer.norm.norm",
    "average.delta": "mega_layer.ema_gate.damping_factor",
    "average.alpha": "mega_layer.ema_gate.decay_factor",
    "average.beta": "mega_layer.ema_gate.ema_expansion_matrix",
    "average.gamma": "mega_layer.ema_gate.kernel_projection_matrix",
    "average.omega": "mega_layer.ema_gate.residual_weight",
    "v_proj": "mega_layer.v_proj",
    "mix_proj": "mega_layer.mx_proj",
    "h_proj": "mega_layer.h_proj",
    "queries_keys.scale": "mega_layer.qk_weight",
    "queries_keys.offset": "mega_layer.qk_bias",
    "bias.bias": "mega_layer.rel_pos_bias.rel_pos_bias",
    "mlp_norm": "nffn.norm.norm",
    "up": "nffn.fc1",
    "down": "nffn.fc2",
}
"""The port's names of the parameters, or of the modules that have them."""


def wave(number: int, *size: int) -> Tensor:
    """Numbers without a pattern, in double precision."""
    steps = torch.arange(math.prod(size), dtype=torch.float64)
    return torch.cos(1.7 * steps * (1 + 0.03 * steps) + 2.3 * number).view(size)


def make_parameters(chunk: int | None) -> dict[str, Tensor]:
    """The parameters by name; with chunks the bias has no further lags."""
    sizes = {**SIZES, "bias.bias": (2 * (chunk or LONGEST) - 1,)}
    return {name: 0.8 * wave(number, *size) for number, (name, size) in enumerate(sizes.items())}


def make_inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Inputs (b, l, d), zero after the end; lengths; and weights of the outputs, for gradients."""
    lengths = torch.tensor(LENGTHS)
    real = (torch.arange(LONGEST) < lengths.unsqueeze(1)).unsqueeze(2)
    x, weights = (wave(number, len(LENGTHS), LONGEST, D) * real for number in (50, 51))
    return x, lengths, weights


def build_port(options: dict[str, Any]) -> Any:
    """Mega's block of transformers with our parameters."""
    root = "transformers.models.deprecated.mega"
    chunk, prenorm = options.get("chunk"), options.get("prenorm", True)
    config = import_module(f"{root}.configuration_mega").MegaConfig(
        hidden_size=D,
        intermediate_size=VALUES,
        ema_projection_size=STATE,
        bidirectional=True,
        shared_representation_size=KEY_DIM,
        use_chunking=chunk is not None,
        chunk_size=chunk or -1,
        normalize_before_mega=prenorm,
        normalize_before_ffn=prenorm,
        normalization_type="layernorm",
        attention_activation=options["attention"],
        nffn_hidden_size=INNER,
        max_positions=LONGEST,
        relative_positional_bias="simple",
    )
    block = import_module(f"{root}.modeling_mega").MegaBlock(config).double().eval()
    values = block.state_dict()
    for ours, value in make_parameters(chunk).items():
        module, _, kind = ours.rpartition(".")
        theirs = THEIRS[ours] if ours in THEIRS else f"{THEIRS[module]}.{kind}"
        # With chunks only the first of the port's biases are used.
        padded = pad(value.flatten(), (0, values[theirs].numel() - value.numel()))
        values[theirs] = padded.view(values[theirs].shape)
    block.load_state_dict(values)
    return block


def compute_numbers(options: dict[str, Any]) -> dict[str, list[float]]:
    """Outputs at real positions, and gradients of the inputs there."""
    x, lengths, weights = make_inputs()
    real = torch.arange(LONGEST) < lengths.unsqueeze(1)
    leaf = x.clone().requires_grad_()
    outputs = build_port(options)(leaf.transpose(0, 1), attention_mask=real.double())[0].transpose(0, 1)
    (gradient,) = torch.autograd.grad((outputs * weights).sum(), leaf)
    found = {"outputs": outputs, "gradient": gradient}
    return {name: [round(x, 8) for x in each[real].flatten().tolist()] for name, each in found.items()}


if __name__ == "__main__":
    lines = (f'"{name}": {json.dumps(compute_numbers(options))}' for name, options in CASES.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
