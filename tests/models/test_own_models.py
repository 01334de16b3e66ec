"""A user's own module trains as msbench's do, or is refused before it trains."""

from pathlib import Path

import numpy as np
import pytest
import torch

from msbench import models
from msbench.config import ClassifierConfig
from msbench.config.layers import LocatedValues
from msbench.config.run import resolve_model
from msbench.datasets.dataset import RaggedTokens, Samples, TaskInfo
from msbench.errors import ConfigError
from msbench.models.own import ModuleClassifier, check_own

INFO = TaskInfo("tokens", 9, 3, 12, "accuracy", 1 / 3, {})
SPLIT = RaggedTokens(
    np.arange(1, 16, dtype=np.uint8) % 9, np.array([0, 4, 15]), np.array([0, 1], dtype=np.uint8)
)

MODEL = """
import torch
from torch import nn
from msbench.config import ClassifierConfig
from msbench.datasets.dataset import TaskInfo

class Net(nn.Module):
    def __init__(self, info, width, mode):
        super().__init__()
        self.embed = nn.Embedding(max(1, info.vocabulary), width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, info.classes)
        self.mode = mode
        self.mixing_layers = [self.gru]

    def forward(self, inputs, lengths):
        y, _ = self.gru(self.embed(inputs))
        last = y[:, -1] if self.mode == "leaks" else y[torch.arange(len(y)), lengths - 1]
        logits = self.head(self.norm(last))
        if self.mode == "fails":
            raise IndexError("out of range")
        return {"wide": logits.repeat(1, 2), "tuple": (logits,)}.get(self.mode, logits)

def build(config: ClassifierConfig, info: TaskInfo): return Net(info, config.d_model, "")
def leaks(config: ClassifierConfig, info: TaskInfo): return Net(info, config.d_model, "leaks")
def wide(config: ClassifierConfig, info: TaskInfo): return Net(info, config.d_model, "wide")
def fails(config: ClassifierConfig, info: TaskInfo): return Net(info, config.d_model, "fails")
def tuple_(config: ClassifierConfig, info: TaskInfo): return Net(info, config.d_model, "tuple")
def nothing(config: ClassifierConfig, info: TaskInfo): return None
def frozen(config: ClassifierConfig, info: TaskInfo): return nn.Identity()
def broken(config: ClassifierConfig, info: TaskInfo): return nn.Linear(2, "a")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


def options(file: Path, name: str, **values: object) -> ClassifierConfig:
    part = LocatedValues(
        {"use": f"{file}:{name}", "d_model": 8, **values}, {("use",): "suite.yaml:7"}, "suite.yaml"
    )
    return resolve_model("mine", part)


def test_a_module_is_built_from_the_seed_alone(file: Path) -> None:
    config, state = options(file, "build"), torch.get_rng_state()
    first, again, other = (models.build("mine", config, INFO, seed) for seed in (0, 0, 1))
    assert isinstance(first, ModuleClassifier)
    assert torch.equal(torch.get_rng_state(), state)
    weights = [model.state_dict()["module.head.weight"] for model in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert first.has_batch_norm
    assert first.take_auxiliary_loss() is None
    first.recompute_layers(3)
    batch = SPLIT.batch(np.arange(2))
    inputs, lengths = torch.from_numpy(batch.inputs), torch.from_numpy(batch.lengths)
    assert first.eval()(inputs, lengths).shape == (2, 3)


def test_a_bare_function_claims_nothing_of_its_model(file: Path) -> None:
    config = options(file, "build")
    family = models.find_family("mine", config)
    assert not family.is_causal(config)
    assert models.count_states_per_channel("mine", config) == 0
    assert models.find_config_family(config).count_scanned(config) == 0


def check(file: Path, name: str, **values: object) -> None:
    config = options(file, name, **values)
    check_own(config, models.build("mine", config, INFO, 0), INFO, SPLIT, None)


def test_a_sound_module_passes(file: Path) -> None:
    check(file, "build")
    check(file, "leaks", padding="paper")  # where padding is meant to flow


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("leaks", "its logits depend on padding: those of an example of 4 positions change by"),
        ("wide", r"must give logits \(b, 3\), and gives torch.float32 \(1, 6\)"),
        ("tuple_", "its forward must return logits, not tuple"),
        ("fails", r"its forward failed: IndexError: out of range \(.*net.py, line 22\)"),
        ("nothing", "must return a torch.nn.Module, not NoneType"),
        ("frozen", "has no parameters to train"),
        ("broken", r"building it failed: TypeError: .*\(.*net.py, line 32\)"),
    ],
)
def test_a_faulty_module_is_refused_with_the_line_of_the_suite(file: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^suite.yaml:7: model.use: .*net.py:{name}: .*{message}"):
        check(file, name)


def test_a_module_for_one_length_is_not_tried_with_others(file: Path) -> None:
    file.write_text(MODEL.replace("y, _ = ", "assert inputs.shape[1] == 5; y, _ = "), encoding="utf-8")
    config = options(file, "build")
    split = RaggedTokens(np.ones(10, np.uint8), np.array([0, 5, 10]), np.zeros(2, np.uint8))
    model = models.build("mine", config, INFO, 0)
    check_own(config, model, INFO, split, None)
    with pytest.raises(ConfigError, match="its forward failed: AssertionError"):
        check_own(config, model, INFO, split, 8)


def test_nothing_is_tried_of_msbenchs_own_models() -> None:
    config = resolve_model("lstm", LocatedValues({"d_model": 4, "layers": 1}, {}, "suite.yaml"))
    numbers = Samples(np.zeros((2, 4, 1)), np.zeros(2, np.uint8))  # of another kind: it would fail
    check_own(config, models.build("lstm", config, INFO, 0), INFO, numbers, 9)
