"""Equal trainings give equal bits, and a planted difference is named."""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from msbench import models
from msbench.analysis import determinism
from msbench.analysis.determinism import DeterminismProblem, Finding, check_model
from msbench.analysis.training_trace import Moment, TensorDifference, find_first_difference, has_same_bits
from msbench.cli import app
from msbench.config import MODELS
from msbench.environment import use_deterministic
from msbench.errors import NotDeterministic
from msbench.models.classifier import Classifier
from msbench.training import checkpoint, loop

TINY = DeterminismProblem(steps=3, stop=2, threads_steps=1, epoch=2, batch=4, longest=12, width=8, layers=1)
TINIEST = replace(TINY, steps=2, stop=1)


@pytest.fixture(autouse=True)
def do_not_start_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that wait for each other on a busy machine would take most of the time."""
    monkeypatch.setattr("msbench.analysis.determinism.other_threads", lambda: 1)


def checked(model: str = "mamba", build: Callable[..., Classifier] = models.build) -> Finding:
    return check_model(model, "cpu", TINY, build)


def planted(plant: Callable[[Classifier], Any]) -> Callable[..., Classifier]:
    """A build that does something to every model."""

    def build(*arguments: Any) -> Classifier:
        model = models.build(*arguments)
        plant(model)
        return model

    return build


def noise() -> Tensor:
    """From a generator that nobody seeds."""
    generator = torch.Generator()
    generator.seed()
    return 1e-3 * torch.rand((), generator=generator)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_is_equal_and_has_only_deterministic_operations(model: str) -> None:
    with use_deterministic("cpu"):
        found = check_model(model, "cpu", TINIEST)
    assert found == Finding(model, found.kernel, {"twice": None, "resumed": None, "threads": None})
    assert found.equal


def test_an_operation_that_draws_unseeded_numbers_is_found_in_the_loss() -> None:
    found = checked(
        build=planted(lambda model: model.register_forward_hook(lambda _m, _x, y: y * (1 + noise())))
    )
    twice = found.compared["twice"]
    assert twice is not None
    assert not found.equal
    assert (twice.step, twice.kind, twice.name) == (1, "step", "loss")


def test_a_backward_that_adds_in_any_order_is_found_by_its_parameter() -> None:
    def plant(model: Classifier) -> None:
        parameter = dict(model.named_parameters())["head.weight"]
        parameter.register_hook(lambda gradient: gradient + noise())  # type: ignore[no-untyped-call]

    twice = checked(build=planted(plant)).compared["twice"]
    assert twice is not None
    assert (twice.step, twice.kind, twice.name) == (1, "step", "gradient of head.weight")
    assert twice.largest is not None
    assert 0 < twice.largest < 1e-3
    assert twice.others == 2  # both of its moments; the parameter once the warm-up has a rate
    assert str(twice).startswith("gradient of head.weight at step 1 by ")


def test_weights_that_no_seed_decides_are_found_before_the_first_step() -> None:
    def plant(model: Classifier) -> None:
        with torch.no_grad():
            dict(model.named_parameters())["head.bias"].add_(noise())

    twice = checked(build=planted(plant)).compared["twice"]
    assert twice is not None
    assert (twice.step, twice.kind, twice.name, twice.others) == (0, "start", "parameter head.bias", 0)


def test_an_evaluation_that_differs_is_found_at_the_end() -> None:
    def plant(model: Classifier) -> None:
        model.register_forward_hook(lambda m, _x, y: y if m.training else y * (1 + noise()))

    twice = checked(build=planted(plant)).compared["twice"]
    assert twice is not None
    assert (twice.kind, twice.name) == ("end", "validation loss of epoch 1")


def forgetting(key: str, original: Callable[..., None]) -> Callable[..., None]:
    """As `original`, but the tensor of this key comes back as zeros."""

    def load(*arguments: Any) -> None:
        *others, tensors = arguments
        original(*others, {name: torch.zeros_like(x) if name == key else x for name, x in tensors.items()})

    return load


@pytest.mark.parametrize(
    ("loader", "key", "name"),
    [
        ("load_weights", "model/head.weight", "parameter head.weight"),
        ("load_weights", "model/final_norm.running_mean", "buffer final_norm.running_mean"),
        ("load_optimizer", "optimizer/head.weight/exp_avg", "optimizer head.weight/exp_avg"),
    ],
)
def test_a_tensor_that_a_resume_forgets_is_named(
    loader: str, key: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = loop if loader == "load_weights" else checkpoint
    monkeypatch.setattr(where, loader, forgetting(key, getattr(where, loader)))
    found = checked()
    resumed = found.compared["resumed"]
    assert found.compared["twice"] is None
    assert resumed is not None
    assert (resumed.step, resumed.kind, resumed.name, resumed.others) == (TINY.stop, "resume", name, 0)
    assert resumed.largest == resumed.scale
    assert str(resumed).startswith(f"{name} right after the resume at step 2 by ")
    assert not found.equal


def test_a_generator_that_is_not_restored_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "restore_generators", lambda *_: None)
    found = checked()
    resumed = found.compared["resumed"]
    assert found.compared["twice"] is None
    assert resumed is not None
    assert (resumed.kind, resumed.name, resumed.others) == ("resume", "generator torch", 2)


def test_a_seed_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "seed_everything", lambda _seed: None)
    twice = checked().compared["twice"]
    assert twice is not None
    assert (twice.kind, twice.name, twice.others) == ("start", "generator torch", 2)


def test_nothing_of_the_process_is_changed() -> None:
    def drawn() -> tuple[Any, ...]:
        return torch.rand(()).item(), np.random.rand(), random.random()

    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    expected = drawn()
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])
    checked()
    assert drawn() == expected
    assert torch.get_num_threads() == 1


def test_an_operation_without_a_deterministic_way_is_named() -> None:
    def put(_model: Any, _inputs: Any, logits: Tensor) -> Tensor:
        return logits.clone().put_(torch.tensor([0]), logits.flatten()[:1])

    with use_deterministic("cpu"):
        found = checked(build=planted(lambda model: model.register_forward_hook(put)))
    assert found.failure.startswith("RuntimeError: put_ does not have a deterministic implementation")
    assert found.status == "failed"
    assert not found.equal
    assert found.compared == {}


def moment(kind: Any = "step", **state: Tensor) -> Moment:
    return Moment(1, kind, state=state)


def test_bits_are_compared_and_not_numbers() -> None:
    zero, nan = torch.zeros(2), torch.full((2,), float("nan"))
    assert find_first_difference([moment(a=nan)], [moment(a=nan.clone())]) is None
    found = find_first_difference([moment(a=zero)], [moment(a=-zero)])
    assert found == TensorDifference(1, "step", "a", 0.0, 0.0)
    assert find_first_difference([moment(a=zero)], [moment(a=nan)]) == TensorDifference(
        1, "step", "a", None, None
    )
    assert not has_same_bits(zero, zero.double())
    assert not has_same_bits(zero, zero.reshape(1, 2))
    assert has_same_bits(torch.tensor(1.0), torch.tensor(1.0))
    assert has_same_bits(torch.ones(3, dtype=torch.complex64), torch.ones(3, dtype=torch.complex64))


def test_a_tensor_that_only_one_has_differs() -> None:
    one = torch.ones(())
    for ours, theirs in (({"a": one, "b": one}, {"a": one}), ({"a": one}, {"a": one, "b": one})):
        found = find_first_difference([moment(**ours)], [moment("resume", **theirs)])
        assert found == TensorDifference(1, "resume", "b", None, None)


@pytest.fixture
def tiny_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb with trainings that take no time."""
    monkeypatch.setattr(determinism, "DeterminismProblem", lambda: TINY)


@pytest.mark.usefixtures("tiny_doctor")
class TestVerb:
    def test_a_row_a_model(self) -> None:
        done = CliRunner().invoke(app, ["doctor", "--determinism", "--model", "lstm", "--device", "cpu"])
        assert done.exit_code == 0, done.stderr
        assert done.stdout.splitlines()[0].split("  ")[0] == "model"
        assert done.stdout.splitlines()[1].split() == ["lstm", "torch", "equal", "equal", "equal"]
        assert "1/1 lstm: equal" in done.stderr
        assert "1 of 1 models equal in every bit" in done.stderr

    def test_one_document(self) -> None:
        words = ["doctor", "--determinism", "--model", "lstm", "--json", "--quiet", "--device", "cpu"]
        done = CliRunner().invoke(app, [*words, "--deterministic"])
        found = json.loads(done.stdout)
        assert done.stderr == ""
        assert found["equal"] is True
        assert found["environment"]["deterministic"] is True
        assert found["problem"]["steps"] == TINY.steps
        assert [(each["model"], each["equal"]) for each in found["models"]] == [("lstm", True)]

    def test_a_difference_exits_with_3(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(loop, "restore_generators", lambda *_: None)
        done = CliRunner().invoke(app, ["doctor", "--determinism", "--model", "lstm", "--device", "cpu"])
        assert done.exit_code == NotDeterministic.exit_code == 3
        assert done.stdout.splitlines()[1].split()[:5] == ["lstm", "torch", "equal", "differs", "equal"]
        assert "resumed: generator torch right after the resume at step 2" in done.stdout
        assert "not equal when repeated or resumed: lstm" in done.stderr

    def test_a_model_that_fails_is_not_reported_as_different(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            determinism, "check_model", lambda name, *_: Finding(name, "torch", failure="OutOfMemory: x")
        )
        done = CliRunner().invoke(app, ["doctor", "--determinism", "--model", "lstm", "--device", "cpu"])
        assert done.exit_code == 3
        assert "1/1 lstm: failed" in done.stderr
        assert "could not be trained, so nothing was compared: lstm" in done.stderr
        assert "not equal" not in done.stderr

    @pytest.mark.parametrize("words", [["--model", "lstm"], ["--device", "cpu"]])
    def test_options_of_the_training_need_it(self, words: list[str]) -> None:
        done = CliRunner().invoke(app, ["doctor", *words])
        assert done.exit_code == 2
        assert "--determinism" in done.stderr

    def test_an_unknown_model_is_refused_at_once(self) -> None:
        done = CliRunner().invoke(app, ["doctor", "--determinism", "--model", "lstn"])
        assert done.exit_code == 2
        assert "did you mean 'lstm'" in done.stderr
