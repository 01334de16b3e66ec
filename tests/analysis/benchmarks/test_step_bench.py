"""The benchmark of training steps on tiny models: rows, agreement with the peer, faults."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from bench_cases import silent
from step_cases import tiny, tiny_shape

from msbench import models
from msbench.analysis.benchmarks import contenders, measurement, step, step_models
from msbench.analysis.benchmarks.measurement import Report, TimedCall, measure_peak, time_in_turns
from msbench.analysis.benchmarks.options import BenchmarkOptions
from msbench.analysis.benchmarks.step_models import SHAPES, StepRunner, make_runner
from msbench.errors import UnknownName

OPTIONS = BenchmarkOptions(repeats=3, shapes=("tiny",))


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", tiny())


def rows(only: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in step.measure_steps(replace(OPTIONS, only=only), silent)["rows"]}


@pytest.mark.usefixtures("shapes")
def test_models_and_peers_are_measured_and_agree() -> None:
    found = step.measure_steps(OPTIONS, silent)
    by_name = {row["name"]: row for row in found["rows"]}
    assert list(by_name) == ["mamba/5", "msssm-s6/5", "transformers", "transformers-mambapy", "mamba-ssm"]
    assert "does not run on cpu" in by_name.pop("mamba-ssm")["reason"]
    for row in by_name.values():
        assert row["status"] == "measured", row
        assert row["size"] == {"b": 4, "l": 12, "tokens": 48}
        assert row["tokens_per_second"] == pytest.approx(48 / row["step"]["median"])
        assert row["states_per_channel"] == 5
    for name in ("transformers", "transformers-mambapy"):
        assert by_name[name]["agreement"]["loss"] < 1e-5
        assert by_name[name]["agreement"]["gradients"] < 1e-4
        assert by_name[name]["parameters"] == by_name["mamba/5"]["parameters"]
        assert by_name[name]["label"].startswith("transformers 5.")
    (shape,) = found["shapes"]
    assert [(x["name"], x["over"]) for x in shape["ratios"]] == [
        ("msssm-s6/5", "mamba/5"),
        ("transformers", "mamba/5"),
        ("transformers-mambapy", "mamba/5"),
    ]
    speed = [by_name[name]["tokens_per_second"] for name in ("mamba/5", "msssm-s6/5")]
    assert shape["ratios"][0]["ratio"] == pytest.approx(speed[0] / speed[1])


@pytest.mark.usefixtures("shapes")
def test_a_peer_with_other_weights_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    original = step_models.copy_weights

    @torch.no_grad()
    def off(ours: Any, theirs: Any) -> None:
        original(ours, theirs)
        theirs.D.mul_(1.1)

    monkeypatch.setattr(step_models, "copy_weights", off)
    found = step.measure_steps(OPTIONS, silent)
    row = next(row for row in found["rows"] if row["name"] == "transformers")
    assert row["status"] == "invalid"
    assert "is off by" in row["reason"]
    assert "step" not in row
    assert [x["name"] for x in found["shapes"][0]["ratios"]] == ["msssm-s6/5"]


@pytest.mark.usefixtures("shapes")
def test_a_model_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    original = models.build

    def build(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "msssm-s6":
            raise MemoryError
        return original(name, *arguments, **options)

    monkeypatch.setattr(models, "build", build)
    found = rows(("mamba", "msssm-s6"))
    assert (found["msssm-s6/5"]["status"], found["msssm-s6/5"]["reason"]) == ("failed", "out of memory")
    assert found["mamba/5"]["status"] == "measured"


def test_no_shape_is_timed_after_memory_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """That makes allocations slow: the steps of a second shape took 1.8 times as long."""
    done = []

    def peak(call: Callable[[], Any], device: str) -> Any:
        done.append("memory")
        return measure_peak(call, device)

    def interleave(calls: Sequence[TimedCall], repeats: int, report: Report) -> None:
        done.append("times")
        time_in_turns(calls, repeats, report)

    monkeypatch.setattr(measurement, "measure_peak", peak)
    monkeypatch.setattr(measurement, "time_in_turns", interleave)
    for name in ("one", "other"):
        monkeypatch.setitem(SHAPES, name, tiny())
    found = step.measure_steps(replace(OPTIONS, shapes=("one", "other"), only=("mamba",)), silent)
    assert done == ["times", "times", "memory", "memory"]
    assert [shape["name"] for shape in found["shapes"]] == ["deep", "deep"]
    assert [row["status"] for row in found["rows"]] == ["measured"] * 2


@pytest.mark.usefixtures("shapes")
def test_only_the_requested_are_measured() -> None:
    assert list(rows(("mamba",))) == ["mamba/5"]
    assert list(rows(("transformers",))) == ["transformers"]
    with pytest.raises(UnknownName, match="did you mean 'mamba'"):
        rows(("mambo",))


def test_a_step_is_that_of_the_training_loop() -> None:
    shape = tiny_shape("train.clip=0.5")
    torch.manual_seed(1)
    one = make_runner(shape.variants["mamba/5"], shape, "cpu")
    before = {name: x.detach().clone() for name, x in one.model.named_parameters()}
    losses = []
    for _ in range(20):
        one.step()
        losses.append(float(one.loss().detach()))
    assert losses[-1] < 0.8 * losses[0]  # 0.62 to 0.68 with other seeds; the dropout's noise is 0.1
    assert all(not torch.equal(x, before[name]) for name, x in one.model.named_parameters())
    norm = torch.nn.utils.get_total_norm([x.grad for x in one.model.parameters() if x.grad is not None])
    assert float(norm) <= 0.5001


def test_gradients_are_repeatable_though_dropout_is_on() -> None:
    shape = tiny_shape("model.dropout=0.5")
    one = make_runner(shape.variants["mamba/5"], shape, "cpu")
    (loss, first), (again, second) = one.gradients(), one.gradients()
    assert loss == again
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_peer_gets_the_batch_that_fits() -> None:
    shape = tiny_shape(b=8)
    variant = shape.variants["mamba/5"]
    for examples in (8, 4, 2):
        assert step.fit_examples(variant, shape, step.estimate_bytes(variant, shape, examples)) == (
            examples,
            "",
        )
    assert step.estimate_bytes(variant, shape, 8, fused=True) < step.estimate_bytes(variant, shape, 8)
    # Batch norm of a single sequence would leave no gradients to compare.
    examples, fault = step.fit_examples(variant, shape, step.estimate_bytes(variant, shape, 1))
    assert examples == 2
    assert "b 2 takes about" in fault


def peers(*only: str) -> list[step.StepEntry]:
    entries = step.list_entries(tiny_shape(), replace(OPTIONS, only=only), silent)
    return [entry for entry in entries if entry.of is not None]


def test_a_peer_that_takes_minutes_is_waited_for_on_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "LONG", 4)
    monkeypatch.setattr(step, "PROBED", 2)
    monkeypatch.setattr(step, "PATIENCE", 0.0)
    loop, parallel, _ = peers()
    assert loop.status == "skipped"
    assert "--only transformers waits for it" in loop.reason
    assert parallel.is_measured
    (loop,) = peers("transformers")
    assert loop.is_measured


def test_a_peer_that_is_not_there_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = replace(contenders.PEERS["mambapy"], missing=lambda _device: "not installed")
    monkeypatch.setitem(contenders.PEERS, "mambapy", absent)
    loop, parallel, _ = peers()
    assert loop.is_measured
    assert (parallel.status, parallel.reason) == ("skipped", "not installed")


def test_agreement_is_judged_on_the_loss_and_on_gradients() -> None:
    assert step.explain_disagreement({"loss": 1e-6, "gradients": 1e-6}) == ""
    assert "its loss is off by" in step.explain_disagreement({"loss": 1e-4, "gradients": 0.0})
    assert "a gradient is off by" in step.explain_disagreement({"loss": 0.0, "gradients": 0.1})
    assert "its loss" in step.explain_disagreement({"loss": float("nan"), "gradients": 0.0})
    one = {"a": torch.tensor([2.0, 1.0])}
    assert step.measure_gradient_error(one, {"a": torch.tensor([[2.0, 0.0]])}) == 0.5
    assert step.measure_gradient_error(one, {"a": torch.tensor([float("nan"), 1.0])}) == float("inf")


def test_runners_start_from_the_same_weights() -> None:
    shape = tiny_shape()
    made: list[StepRunner] = [make_runner(shape.variants["msssm-s6/5"], shape, "cpu") for _ in range(2)]
    for x, y in zip(made[0].model.parameters(), made[1].model.parameters(), strict=True):
        assert torch.equal(x, y)
