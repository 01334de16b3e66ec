"""Wavelet features against PyWavelets, scipy and numpy, and the network on them against its formulas."""

import copy
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import pywt
import scipy.stats
import torch
from kind_cases import INFOS
from model_cases import config_of, groups_of
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from msbench import models
from msbench.analysis.determinism import DeterminismProblem, check_model
from msbench.analysis.mixing.measure import measure_model
from msbench.analysis.mixing.options import MeasureOptions
from msbench.config.layers import LocatedValues
from msbench.config.run import resolve_model
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError
from msbench.models.wavelet_features import (
    FEATURES,
    FeatureScaler,
    compute_entropy,
    compute_features,
    decompose,
    interpolate_percentile,
)
from msbench.runs.suite import load_suite, resolve_specs
from msbench.training.average import WeightAverage

Floats = NDArray[np.float64]
NAME = "wavelet-features"
HEART = TaskInfo("signal", 0, 71, 1000, "macro-auroc", 0.5, {}, channels=12, multi_label=True)


def describe(v: Floats) -> list[float]:
    """A band's numbers, one by one, as the benchmark's code has them."""
    shares = [count / len(v) for count in Counter(v.tolist()).values()]
    crossings = [np.count_nonzero(np.diff(v > bound)) for bound in (0, np.mean(v))]
    percentiles = [np.percentile(v, q) for q in (5, 25, 75, 95, 50)]
    rest = [np.mean(v), np.std(v), np.var(v), np.mean(np.sqrt(v**2))]
    return [scipy.stats.entropy(shares), *crossings, *percentiles, *rest]


def witness(signals: Tensor) -> Floats:
    rows = []
    for signal in signals.double().numpy():
        bands = [band for lead in signal.T for band in pywt.wavedec(lead, "db6", level=5)]
        rows.append(np.concatenate([describe(band) for band in bands]))
    return np.array(rows)


def signals(b: int = 3, length: int = 1000, channels: int = 12, seed: int = 0) -> Tensor:
    x = torch.randn(b, length, channels, generator=torch.Generator().manual_seed(seed)).cumsum(1) / 5
    x[0, :, 0] = 0  # a lead that was not recorded
    x[-1, length // 3 :, -1] = 0  # one that fell off
    return x


def model_for(info: TaskInfo = INFOS["signal"], **options: Any) -> Any:
    return models.build(NAME, config_of(NAME, **{"layers": 1, **options}), info, 0)


def lengths_of(x: Tensor) -> Tensor:
    return torch.full((len(x),), x.shape[1])


@pytest.mark.filterwarnings("ignore:Level value of 5 is too high")
@pytest.mark.parametrize("length", [11, 12, 40, 251, 1000])
def test_features_are_those_of_the_benchmark(length: int) -> None:
    x = signals(length=length)
    found = compute_features(x)
    assert found.shape == (3, 864)
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found.numpy(), witness(x), rtol=1e-11, atol=1e-12)


@pytest.mark.filterwarnings("ignore:Level value of 5 is too high")
@pytest.mark.parametrize("length", [1, 2, 7, 30, 999, 1000])
def test_bands_are_those_of_pywavelets(length: int) -> None:
    x = signals(length=length, channels=2).mT.flatten(0, 1).double()
    bands = decompose(x)
    for row, lead in enumerate(x.numpy()):
        for band, expected in zip(bands, pywt.wavedec(lead, "db6", level=5), strict=True):
            np.testing.assert_allclose(band[row].numpy(), expected, rtol=1e-12, atol=1e-13)
    if length == 1000:
        assert [band.shape[1] for band in bands] == [41, 41, 72, 134, 258, 505]


def test_the_order_is_that_of_leads_then_bands_then_numbers() -> None:
    x = signals()
    found = compute_features(x)[1].view(12, 6, 12)
    details = pywt.wavedec(x[1, :, 7].double().numpy(), "db6", level=5)[2]
    assert float(found[7, 2, 8]) == pytest.approx(np.mean(details), rel=1e-10)
    # Called a root mean square there; it is the mean of absolute values.
    assert float(found[7, 2, 11]) == pytest.approx(np.mean(np.abs(details)), rel=1e-12)
    assert float(found[7, 2, 11]) < 0.95 * np.sqrt(np.mean(details**2))


@pytest.mark.parametrize("n", [1, 2, 9, 64])
def test_entropy_and_percentiles_are_those_of_scipy_and_numpy(n: int) -> None:
    source = np.random.default_rng(n)
    v = np.stack([source.integers(0, 4, n), source.integers(0, 50, n), np.zeros(n)]).astype(float)
    ordered = torch.from_numpy(np.sort(v))
    expected = [scipy.stats.entropy(list(Counter(row.tolist()).values())) for row in v]
    np.testing.assert_allclose(compute_entropy(ordered).numpy(), expected, rtol=1e-12, atol=1e-14)
    for percent in (5, 25, 50, 75, 95):
        found = interpolate_percentile(ordered, percent).numpy()
        np.testing.assert_allclose(found, np.percentile(v, percent, axis=1), rtol=1e-14)


def test_equal_windows_have_equal_bits() -> None:
    """Else the entropy would count rounding."""
    period = torch.randn(64, generator=torch.Generator().manual_seed(0))
    (approximation, *details) = decompose(period.repeat(8).unsqueeze(0).double())
    first = details[-1][0]
    assert torch.equal(first[32:64], first[64:96])
    assert approximation.shape[1] > 12


def test_the_network_is_its_formula() -> None:
    model, x = model_for(HEART, d_model=16, layers=2, dropout=0.0), signals(8)
    train = compute_features(x).numpy()
    logits = model.train()(x, lengths_of(x))
    scale = train.std(0)
    scale[scale < 1e-12] = 1
    h: Any = torch.from_numpy((train - train.mean(0)) / scale).float()
    first, second = model.hidden
    h = functional.relu(functional.relu(h @ first.weight.T + first.bias) @ second.weight.T + second.bias)
    expected = h @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
    weights = torch.linspace(-1, 1, 71)
    trained = list(model.parameters())
    found, other = (torch.autograd.grad((each * weights).sum(), trained) for each in (logits, expected))
    for one, two in zip(found, other, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_the_scaler_has_the_moments_of_all_examples_so_far() -> None:
    """Whatever the sizes of batches; with a mean a million times the deviation, too."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 1, 5, generator=generator, dtype=torch.float64) * torch.tensor([1, 1e-3, 50, 0, 1e-7])
    x = x + torch.tensor([0, 1e3, -7, 6.2, 0], dtype=torch.float64)
    scaler = FeatureScaler(5)
    torch.testing.assert_close(scaler.eval()(x, torch.ones(60, 1, 1)), x.float())
    scaler.train()
    for _ in range(2):
        for part in torch.split(x, [7, 1, 30, 22]):
            y = scaler(part, torch.ones(len(part), 1, 1))
        torch.testing.assert_close(scaler.running_mean, x.mean((0, 1)), rtol=1e-12, atol=1e-15)
        variance = x.var((0, 1), correction=0)
        torch.testing.assert_close(scaler.running_var, variance, rtol=1e-6, atol=1e-17)
    assert int(scaler.examples) == 120
    assert y.dtype == torch.float32
    y = scaler.eval()(x, torch.ones(60, 1, 1))
    torch.testing.assert_close(
        y.std((0, 1), correction=0), torch.tensor([1.0, 1, 1, 0, 1]), atol=1e-4, rtol=0
    )
    assert not y[..., 3].any()


class Others:
    """Another process, which adds its own sums."""

    def __init__(self, x: Tensor, *, counts: bool = True) -> None:
        self.x, self.counts, self.calls = x[:, 0], counts, 0

    def total(self, x: Tensor) -> Tensor:
        self.calls += 1
        if len(x) > self.x.shape[1]:
            self.sums = x + torch.cat((self.x.sum(0), torch.tensor([float(len(self.x))])))
            return self.sums
        mean = self.sums[:-1] / self.sums[-1]
        return x + (self.x - mean).square().sum(0)


@pytest.mark.parametrize("counts", [True, False])
def test_processes_share_their_statistics(counts: bool) -> None:
    x = torch.randn(9, 1, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 3
    scaler = FeatureScaler(4).train()
    scaler.across = Others(x[5:], counts=counts)
    y = scaler(x[:5], torch.ones(5, 1, 1))
    seen = x if counts else x[5:]
    expected = (x[:5] - seen.mean(0)) / seen.std(0, correction=0)
    torch.testing.assert_close(y, expected.float(), rtol=1e-6, atol=1e-6)
    assert int(scaler.examples) == len(seen)


def test_evaluation_depends_on_nothing_else_and_changes_nothing() -> None:
    model, x = model_for(HEART), signals(6)
    model.train()(x, lengths_of(x))
    state, random = copy.deepcopy(model.eval().state_dict()), torch.get_rng_state()
    together = model(x, lengths_of(x))
    assert torch.equal(model(x, lengths_of(x)), together)
    for row in range(6):
        alone = model(x[row : row + 1], lengths_of(x[:1]))
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


def test_dropout_is_that_of_training_and_of_single_numbers() -> None:
    model, x = model_for(HEART, dropout=0.5), signals(4)
    batch = (x, lengths_of(x))
    one, two = (model.train()(*batch) for _ in range(2))
    assert not torch.allclose(one, two)
    assert model_for(HEART).config.dropout == 0.25


def test_parameters_are_those_of_the_benchmark() -> None:
    model = model_for(HEART, d_model=128)
    assert FEATURES * 12 == 864
    assert models.count_parameters(model) == 119_879 == 864 * 128 + 128 + 128 * 71 + 71
    outline = models.build_outline(NAME, model.config, HEART)
    assert {key: each.shape for key, each in outline.named_parameters()} == {
        key: each.shape for key, each in model.named_parameters()
    }
    first = model.hidden[0]
    bound = (6 / (864 + 128)) ** 0.5
    assert 0.99 * bound < float(first.weight.detach().abs().max()) <= bound
    assert not first.bias.any()
    assert not model.head.bias.any()
    groups = {"hidden.0.weight": "weights", "hidden.0.bias": "plain"}
    assert groups_of(model) == {**groups, "head.weight": "weights", "head.bias": "plain"}


def test_it_learns_what_tells_signals_apart() -> None:
    info = TaskInfo("signal", 0, 3, 200, "accuracy", 1 / 3, {}, channels=2)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (150,), generator=generator)
    time = torch.arange(200).view(1, 200, 1) / 200
    phases = torch.rand(150, 1, 2, generator=generator) * 6
    x = torch.sin(2 * torch.pi * time * (5 + 20 * labels.view(-1, 1, 1)) + phases)
    x = x + torch.randn(x.shape, generator=generator)
    model = model_for(info, d_model=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(40):
        rows = slice(50 * (step % 2), 50 * (step % 2) + 50)
        loss = functional.cross_entropy(model.train()(x[rows], lengths_of(x[rows])), labels[rows])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.3 * losses[0]
    found = model.eval()(x[100:], lengths_of(x[100:])).argmax(1)
    assert float((found == labels[100:]).float().mean()) > 0.8


def test_it_works_in_double_precision_autocast_and_one_graph() -> None:
    info = replace(INFOS["patches"], channels=2)
    model = model_for(info, d_model=8, dropout=0.0)
    x = torch.randn(4, 60, 2, generator=torch.Generator().manual_seed(0))
    batch = (x, lengths_of(x))
    model.train()(*batch)
    expected = model.eval()(*batch)
    assert expected.shape == (4, info.classes)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(*batch)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, expected, rtol=0.1, atol=0.05)
    torch.compiler.reset()
    compiled: Any = torch.compile(copy.deepcopy(model), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*batch), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.double()(*batch).float(), expected, rtol=1e-4, atol=1e-5)


def test_averages_and_kept_states_have_the_scaler() -> None:
    model, x = model_for(HEART), signals(5)
    model.train()(x, lengths_of(x))
    kept = {name for name in model.state_dict() if name.startswith("scaler.")}
    assert {"scaler.running_mean", "scaler.running_var", "scaler.examples"} <= kept
    assert model.has_batch_norm  # statistics over a batch: pieces of it would have others
    average = WeightAverage(model, 0.5)
    average.update_parameters(model)
    torch.testing.assert_close(average.eval()(x, lengths_of(x)), model.eval()(x, lengths_of(x)))


@pytest.mark.parametrize("suite", ["quick", "listops", "laptop-text"])
def test_tokens_are_refused_in_the_plan(suite: str) -> None:
    with pytest.raises(
        ConfigError, match=r"data\.dataset: \w+ has tokens, but wavelet-features reads numbers"
    ):
        resolve_specs(load_suite(suite), models=[NAME])


def test_other_settings_that_would_change_features_are_refused_in_the_plan() -> None:
    suite = load_suite("laptop-ptbxl")
    assert resolve_specs(suite, models=[NAME], overrides=["data.crop=250", "train.micro_batch=auto"])
    for override, words in {
        "train.pad_to=1200": "padding would change what wavelet-features reads",
        "train.micro_batch=8": "would change the statistics by which wavelet-features scales",
    }.items():
        with pytest.raises(ConfigError, match=words):
            resolve_specs(suite, models=[NAME], overrides=[override])
    with pytest.raises(ConfigError, match="cifar10 has tokens"):
        resolve_specs(
            load_suite("laptop-scifar"), models=[NAME], overrides=["data.colour=grey", "data.pixels=tokens"]
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"pooling": "last"},
            "pooling has no effect: wavelet-features has no sequence of states; leave it out",
        ),
        ({"positions": "learned"}, "positions has no effect"),
        ({"final_norm": True}, "final_norm has no effect"),
        ({"embedding_std": 1.0}, "embedding_std has no effect"),
        ({"prenorm": True}, "prenorm: true is not supported"),
        ({"drop_path": 0.1}, "drop_path is not supported"),
    ],
)
def test_options_of_sequences_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_model(NAME, LocatedValues(options, {}, "suite"))


@pytest.mark.parametrize("kind", ["tokens", "pairs"])
def test_tokens_are_refused_when_built(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"a task of {kind}"):
        model_for(INFOS[kind])


def test_nothing_runs_step_by_step_and_nothing_mixes() -> None:
    model, x = model_for(), signals(2, 60)
    with pytest.raises(ConfigError, match="no recurrent inference"):
        model.eval().start(2)
    with pytest.raises(ConfigError, match="FeatureClassifier has no layer from positions to positions"):
        measure_model(model, [(x, lengths_of(x))], MeasureOptions())


def test_training_is_deterministic_on_signals() -> None:
    problem = DeterminismProblem(steps=3, stop=2, threads_steps=1, epoch=2, batch=4, longest=40, width=8)
    found = check_model(NAME, "cpu", problem)
    assert found.failure == ""
    assert found.equal
