"""Settings that do not go with a task or a kernel are refused before any data is read."""

from dataclasses import replace
from pathlib import Path

import pytest

from msbench import models
from msbench.config import RunSpec
from msbench.config.selective import MambaConfig, MsSsmConfig
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError
from msbench.ops.scan.dispatch import KERNELS
from msbench.ops.scan.mamba_ssm import MOST_STATES
from msbench.runs.execution import RunContext, execute
from msbench.runs.suite import Suite, find_faults, load_suite, resolve_specs
from msbench.training.metrics import ProgressCallback
from msbench.training.signals import SignalFlag

TOKENS = TaskInfo("tokens", 9, 2, 20, "accuracy", 0.5, {})
SIGNAL = TaskInfo("signal", 0, 2, 20, "macro-auroc", 0.5, {}, channels=12, multi_label=True)
PAIRS = TaskInfo("pairs", 9, 2, 20, "accuracy", 0.5, {})


def spec_of(suite: Suite, *overrides: str) -> RunSpec:
    return resolve_specs(suite, ["mamba"], overrides=overrides)[0]


@pytest.mark.parametrize(
    ("override", "info", "key", "words"),
    [
        ("model.encoder=scalar", SIGNAL, "model.encoder", "listops-tiny is a task of signal without tokens"),
        ("train.loss=double-softmax", SIGNAL, "train.loss", "listops-tiny has several; use 'cross-entropy'"),
    ],
)
def test_what_a_task_cannot_have(tiny: Suite, override: str, info: TaskInfo, key: str, words: str) -> None:
    spec = spec_of(tiny, override)
    ((path, problem),) = find_faults(spec, info)
    assert ".".join(map(str, path)) == key
    assert words in problem
    assert not [*find_faults(spec, TOKENS), *find_faults(spec, PAIRS), *find_faults(spec_of(tiny), info)]


@pytest.mark.parametrize("key", ["mixup", "cutmix"])
def test_what_mixes_examples_needs_numbers_and_images(tiny: Suite, key: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"^--set train\.{key}: mixes numbers .* listops-tiny is a task of tokens;"
    ):
        spec_of(tiny, f"train.{key}=1.0")
    train = spec_of(tiny).train.model_copy(update={key: 1.0})
    spec = spec_of(tiny).model_copy(update={"train": train})
    pixels = TaskInfo("signal", 0, 2, 20, "accuracy", 0.5, {}, channels=3)
    images = TaskInfo("patches", 0, 2, 25, "accuracy", 0.5, {}, channels=48, patch=4)
    assert not list(find_faults(spec, images))
    ((_, problem),) = find_faults(spec, SIGNAL)
    assert "is a task of signal with several labels an example; leave it out" in problem
    found = [f"{'.'.join(map(str, path))}: {problem}" for path, problem in find_faults(spec, pixels)]
    assert [each.partition(", and")[0] for each in found] == (
        ["train.cutmix: cuts rectangles out of images"] if key == "cutmix" else []
    )


def test_padding_beyond_learned_positions_is_refused_where_it_is_written(
    tiny_file: Path, tiny: Suite
) -> None:
    assert spec_of(tiny, "train.pad_to=300", "model.positions=none")
    with pytest.raises(ConfigError) as caught:
        spec_of(tiny, "train.pad_to=300", "model.positions=learned")
    assert str(caught.value).startswith("--set train.pad_to: 300 is beyond model.positions 'learned'")
    assert "the longest of listops-tiny, 20;" in str(caught.value)
    text = (
        tiny_file.read_text()
        .replace("layers: 1", "layers: 1, positions: learned")
        .replace("epochs: 3", "pad_to: 99")
    )
    tiny_file.write_text(text)
    with pytest.raises(ConfigError, match=r"tiny\.yaml:14: train\.pad_to: 99 is beyond"):
        load_suite(str(tiny_file))


def test_pieces_of_a_batch_are_refused_where_batch_norm_needs_it_whole(tiny: Suite) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_specs(tiny, ["msssm-s6"], overrides=["train.micro_batch=4"])
    assert str(caught.value).startswith(
        "--set train.micro_batch: 4 would change the statistics of model.norm"
    )
    assert resolve_specs(tiny, ["msssm-s6"], overrides=["train.micro_batch=8"])
    assert resolve_specs(tiny, ["msssm-s6"], overrides=["train.micro_batch=4", "model.norm=layer"])
    for value in ("0", "-1", "1.5", "always"):
        with pytest.raises(ConfigError, match=r"train\.micro_batch"):
            spec_of(tiny, f"train.micro_batch={value}")


def test_what_only_the_data_shows_is_refused_before_training(
    tiny: Suite, tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tiny, "model.positions=learned", "train.pad_to=20")
    place = RunContext(tmp_path / "results", data_folder, "cpu", SignalFlag())
    monkeypatch.setattr("msbench.runs.execution._set_up_dataset", lambda *_: Shorter())
    with pytest.raises(ConfigError, match=r"train\.pad_to: 20 is beyond .* 19;"):
        execute(spec, place, ProgressCallback())


class Shorter:
    """A dataset whose longest sequence is below what its settings allow."""

    info = replace(TOKENS, longest=19)


def test_more_states_than_the_kernel_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert KERNELS["mamba-ssm"].most_states == MOST_STATES == 256
    for name, kernel in KERNELS.items():
        assert name == "mamba-ssm" or kernel.most_states is None
    monkeypatch.setenv("MSBENCH_SCAN", "torch")
    models.check_kernel("mamba", MambaConfig(state=512))
    monkeypatch.setitem(KERNELS, "torch", replace(KERNELS["torch"], most_states=256))
    for bidirectional in (False, True):
        models.check_kernel("mamba", MambaConfig(state=256, bidirectional=bidirectional))
    for state in (257, 512):
        with pytest.raises(
            ConfigError, match=f"mamba has {state} states per stream.* scan torch supports at most 256"
        ):
            models.check_kernel("mamba", MambaConfig(state=state))


def test_only_the_largest_stream_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_SCAN", "torch")
    monkeypatch.setitem(KERNELS, "torch", replace(KERNELS["torch"], most_states=256))
    models.check_kernel("msssm-s6", MsSsmConfig(state=1280))
    models.check_kernel("msssm-s6", MsSsmConfig(state=9999, ssm="none"))
    for config in (MsSsmConfig(state=1281), MsSsmConfig(state=257, state_per_stream=True)):
        with pytest.raises(ConfigError, match="msssm-s6 has 257 states per stream"):
            models.check_kernel("msssm-s6", config)
