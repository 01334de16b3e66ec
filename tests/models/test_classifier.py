"""Properties of every model and every option: padding, causality, gradients, precision, evaluation."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from model_cases import (
    CASES,
    INFO,
    RECURRENT,
    TOKEN_MODELS,
    case_id,
    compute_test_loss,
    layer_of,
    list_distinct_cases,
    model_of,
    tokens,
    warmed_up,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from msbench.errors import DataError
from msbench.training.checkpoint import Checkpoint, CheckpointFolder, get_model_tensors, load_weights, unpack

every_case = pytest.mark.parametrize("case", CASES, ids=case_id)
distinct_cases = pytest.mark.parametrize("case", list_distinct_cases(), ids=case_id)
Case = tuple[str, dict[str, Any]]
FULL_PRECISION = ("lstm", "r-lstm", "ckconv", *RECURRENT)
"""Networks whose only products are those of the recurrence, or of CKConv's frequencies: always in float32."""


@every_case
def test_padding_never_changes_a_prediction(case: Case) -> None:
    model = warmed_up(model_of(case[0], **case[1]))
    inputs, lengths = tokens(7, 31, 1, 12)
    together = model(inputs, lengths)
    assert together.shape == (4, INFO.classes)
    assert together.dtype == torch.float32
    for row, length in enumerate(lengths.tolist()):
        alone = model(inputs[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-5, atol=1e-5)
    for size in (2, 3):
        torch.testing.assert_close(
            model(inputs[:size], lengths[:size]), together[:size], rtol=1e-5, atol=1e-5
        )
    junk = torch.where(inputs == 0, 9, inputs)
    torch.testing.assert_close(model(junk, lengths), together, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", [case for case in CASES if "kernel_dropout" not in case[1]], ids=case_id)
def test_padding_changes_no_loss_and_no_statistics_in_training(case: Case) -> None:
    """Dropped kernels alone are as many as the batch is long."""
    inputs, lengths = tokens(7, 31, 1, 12)
    found = []
    for batch in (inputs, torch.nn.functional.pad(inputs, (0, 9)), torch.where(inputs == 0, 9, inputs)):
        model = model_of(case[0], **case[1])
        torch.manual_seed(0)
        loss = compute_test_loss(model, (batch, lengths))
        found.append([loss.detach(), *model.buffers()])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


@every_case
def test_every_parameter_gets_a_finite_gradient(case: Case) -> None:
    model = model_of(case[0], **case[1], dropout=0.1)
    torch.manual_seed(0)
    compute_test_loss(model, tokens(7, 31, 1, 12)).backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert bool(parameter.grad.any()), name


@distinct_cases
def test_bf16_autocast_has_finite_gradients_and_little_drift(case: Case) -> None:
    model = model_of(case[0], **case[1])
    inputs, lengths = tokens(33, 40)
    torch.manual_seed(0)
    exact = model(inputs, lengths)
    torch.manual_seed(0)  # the same paths are dropped
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(inputs, lengths)
        loss = torch.nn.functional.cross_entropy(rough, torch.tensor([0, 1]))
    torch.autograd.backward(loss)
    assert rough.dtype == torch.float32
    with torch.no_grad():
        drift = float((rough - exact).abs().max() / exact.abs().max())
    # The scalar encoder adds a product.
    assert (drift == 0) == (case[0] in FULL_PRECISION and "encoder" not in case[1])
    assert drift < 0.05
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


class HalfPrecision(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operators that run on half precision within it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(
            isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16 for x in tree_leaves((args, kwargs))
        ):
            self.found.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", TOKEN_MODELS)
def test_exponentials_are_never_in_half_precision(name: str) -> None:
    """Nor what decays, what is divided by its size, what becomes an angle, or a choice."""
    model = model_of(name)
    with torch.autocast("cpu", dtype=torch.bfloat16), HalfPrecision() as half:
        compute_test_loss(model, tokens(33, 40))
    assert bool(half.found & {"addmm", "mm", "convolution"}) == (name not in FULL_PRECISION)
    assert not half.found & {
        *("exp", "log", "log1p", "expm1", "erf", "logsumexp", "cumsum", "elu", "pow"),
        *("rsqrt", "linalg_vector_norm", "sin", "cos", "argmax", "sort", "topk", "_log_softmax"),
    }


@distinct_cases
def test_evaluation_gives_the_same_bits_and_draws_nothing(case: Case) -> None:
    model = warmed_up(model_of(case[0], **case[1], dropout=0.1))
    batch = tokens(7, 31, 1, 12)
    model(*batch)  # what a first call keeps for later ones must not depend on its batch
    before = random.getstate(), repr(np.random.get_state()), torch.get_rng_state()
    first = model(*batch)
    after = random.getstate(), repr(np.random.get_state()), torch.get_rng_state()
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])
    model(*tokens(19, 4, seed=2))
    assert torch.equal(model(*batch), first)


@distinct_cases
def test_a_checkpoint_holds_all_that_a_prediction_needs(case: Case) -> None:
    """Random plans, rotations and features too: a model of another seed is then the same."""
    model, other = (model_of(case[0], seed, **case[1]) for seed in (0, 1))
    packed = CheckpointFolder(Path(), "run").pack(Checkpoint(get_model_tensors(model), {}))
    load_weights(other, unpack(packed).tensors)
    batch = tokens(7, 31, 1, 12)
    assert torch.equal(other.eval()(*batch), model.eval()(*batch))


@pytest.mark.parametrize("name", ["mamba", "msssm-s6"])
def test_logits_of_a_prefix_do_not_see_what_follows(name: str) -> None:
    model = model_of(name, pooling="last", padding="paper", state=7).eval()
    inputs, _ = tokens(30, 30)
    other = inputs.clone()
    other[:, 18:] = tokens(30, 30, seed=5)[0][:, 18:]
    lengths = torch.tensor([18, 11])
    torch.testing.assert_close(model(inputs, lengths), model(other, lengths), rtol=0, atol=0)
    changed = inputs.clone()
    changed[:, 10] = inputs[:, 10] % (INFO.vocabulary - 1) + 1
    assert (model(changed, lengths) - model(inputs, lengths)).abs().max() > 1e-6


@pytest.mark.parametrize("name", ["mamba", "msssm-s6"])
def test_bidirectional_models_do_see_what_follows(name: str) -> None:
    model = model_of(name, bidirectional=True, pooling="last").eval()
    x = torch.randn(1, 9, 8, generator=torch.Generator().manual_seed(0))
    later = x.clone()
    later[:, 8] += 1
    layer, lengths = layer_of(model), torch.tensor([9])
    assert (layer(x, lengths)[:, 0] - layer(later, lengths)[:, 0]).abs().max() > 1e-7


def test_paper_padding_flows_through_batch_statistics_but_not_through_pooling() -> None:
    inputs, lengths = tokens(4, 30)
    masked, paper = (
        model_of("msssm-s6", norm="batch", padding=padding, state=7) for padding in ("masked", "paper")
    )
    apart = (masked(inputs, lengths) - paper(inputs, lengths)).abs().max()
    assert apart > 1e-4
    mask, full = (model.state_dict()["blocks.0.norm.running_mean"] for model in (masked, paper))
    assert not torch.allclose(mask, full)
    pooled = model_of("mamba", padding="paper").eval()
    torch.testing.assert_close(
        pooled(inputs, lengths)[0], pooled(inputs[:1, :4], lengths[:1])[0], rtol=1e-5, atol=1e-5
    )


def test_mean_with_padding_depends_on_padding() -> None:
    model = model_of("mamba", pooling="mean-with-padding").eval()
    inputs, lengths = tokens(4, 30)
    assert (model(inputs, lengths)[0] - model(inputs[:1, :4], lengths[:1])[0]).abs().max() > 1e-5


@pytest.mark.parametrize("name", TOKEN_MODELS)
@pytest.mark.parametrize("norm", ["layer", "rms", "batch"])
def test_the_smallest_batch_trains(name: str, norm: str) -> None:
    model = model_of(name, norm=norm)
    loss = model(*tokens(1)).sum()
    loss.backward()
    assert torch.isfinite(loss)


def test_learned_positions_end_with_a_clear_error() -> None:
    model = model_of("mamba", positions="learned")
    assert model(*tokens(INFO.longest)).shape == (1, INFO.classes)
    with pytest.raises(DataError, match=r"41 tokens.*40.*longest"):
        model(*tokens(INFO.longest + 1))


def test_without_positions_any_length_works() -> None:
    model = model_of("msssm-s6").eval()
    assert torch.isfinite(model(*tokens(INFO.longest + 25))).all()


def test_scalar_encoder_feeds_the_number() -> None:
    encoder = model_of("mamba", encoder="scalar").encoder
    x = encoder(torch.tensor([[0, 1, 2]]))[0]
    torch.testing.assert_close(x[2] - x[1], x[1] - x[0])


def test_dropout_is_off_in_evaluation_and_on_in_training() -> None:
    model = model_of("msssm-s6", dropout=0.5)
    batch = tokens(9, 9)
    assert not torch.equal(model.train()(*batch), model(*batch))
    assert torch.equal(model.eval()(*batch), model(*batch))


@pytest.mark.parametrize("name", ["mamba", "msssm-s6"])
def test_a_model_cast_to_half_precision_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match="use autocast"):
        model_of(name).bfloat16()(*tokens(5))


@pytest.mark.parametrize("name", TOKEN_MODELS)
def test_double_precision_models_work(name: str) -> None:
    model = model_of(name)
    batch = tokens(5, 9)
    expected = model(*batch)
    torch.testing.assert_close(model.double()(*batch).float(), expected, rtol=1e-4, atol=1e-5)
