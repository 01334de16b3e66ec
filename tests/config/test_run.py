"""Specs: equal specs have one digest, records restore them, and presets cannot be overridden."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from msbench.config import MODELS, RunSpec, TrainConfig
from msbench.config.data import ListOpsConfig
from msbench.config.layers import LocatedValues, parse_yaml
from msbench.config.models import ModelEntry
from msbench.config.run import EXECUTION_OPTIONS, Label, format_canonical_json, resolve_data, resolve_model
from msbench.config.selective import MambaConfig, MsSsmConfig
from msbench.errors import ConfigError, UnknownName

VALUES: dict[str, Any] = {
    "suite": "s",
    "task": "t",
    "model_name": "msssm-s6",
    "seed": 0,
    "data": {"dataset": "listops", "train": 100, "min_length": 5, "max_length": 20},
    "model": {"d_model": 16, "expand": 2.0, "dropout": 0.5, "dt_min": 0.002},
    "train": {"lr": 0.001, "weight_decay": 0.0, "warmup_epochs": 1.0, "epochs": 3},
}


def resolve(values: Any, name: str = "x") -> RunSpec:
    return RunSpec.resolve(LocatedValues(values, {}, name))


def changed(section: str, **values: Any) -> dict[str, Any]:
    return {**VALUES, section: {**VALUES[section], **values}}


def test_resolves_each_section_to_its_class() -> None:
    spec = resolve(VALUES)
    assert type(spec.data) is ListOpsConfig
    assert type(spec.model) is MsSsmConfig
    assert spec.train.epochs == 3
    assert spec.model.layers == 4


def spellings(value: float) -> list[str]:
    """Ways to write one number in YAML."""
    found = [repr(value), f"{value:.17e}", f"{value:.17E}", f"{value:.40f}"]
    if float(value).is_integer():
        found += [str(int(value)), f"{int(value)}.", f"0{int(value)}"]
    return found


@st.composite
def written(draw: st.DrawFn) -> str:
    """`VALUES` as YAML, with keys in any order and floats in any spelling."""

    def mapping(values: dict[str, Any], indent: str) -> list[str]:
        lines = []
        for key in draw(st.permutations(sorted(values))):
            value = values[key]
            if isinstance(value, dict):
                lines += [f"{indent}{key}:", *mapping(value, indent + "  ")]
            else:
                text = draw(st.sampled_from(spellings(value))) if isinstance(value, float) else str(value)
                lines.append(f"{indent}{key}: {text}")
        return lines

    return "\n".join(mapping(VALUES, "")) + "\n"


@given(written())
def test_key_order_and_number_spelling_never_change_the_digest(text: str) -> None:
    spec = RunSpec.resolve(parse_yaml(text, "x.yaml"))
    assert spec.digest == resolve(VALUES).digest


def test_a_default_that_is_written_out_changes_nothing() -> None:
    assert resolve(changed("model", state=128, expand=2, skip=True)).digest == resolve(VALUES).digest
    assert resolve(changed("train", ssm_lr=None, min_lr=-0.0)).digest == resolve(VALUES).digest


def test_labels_take_no_part_in_the_digest_and_everything_else_does() -> None:
    digest = resolve(VALUES).digest
    assert resolve({**VALUES, "suite": "other", "task": "another"}).digest == digest
    others = [
        {**VALUES, "seed": 1},
        {**VALUES, "model_name": "mamba"},
        changed("data", train=101),
        changed("model", d_model=17),
        changed("train", epochs=4),
        changed("train", ssm_lr=0.001),
    ]
    assert len({digest, *(resolve(values).digest for values in others)}) == 1 + len(others)


def test_every_key_of_every_section_is_in_the_canonical_text() -> None:
    spec = resolve(VALUES)
    text = format_canonical_json(spec.model_dump(mode="json"))
    canonical = json.loads(text)
    assert text == json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    assert canonical.keys() == {"data", "model", "model_name", "seed", "train"}
    for section in ("data", "model", "train"):
        fields = type(getattr(spec, section)).model_fields
        assert canonical[section].keys() == {name for name, field in fields.items() if not field.exclude}
    assert EXECUTION_OPTIONS == ("micro_batch", "log_every")  # how a run is executed, not what it is


@pytest.mark.parametrize("name", sorted(MODELS))
def test_reads_back_from_json(name: str) -> None:
    spec = resolve({**VALUES, "model_name": name, "model": {"d_model": 16, "dropout": 0.5}})
    stored = json.loads(json.dumps(spec.model_dump(mode="json"), sort_keys=True))
    again = resolve(stored, "run.json")
    assert again == spec
    assert again.digest == spec.digest


def test_a_record_without_its_nulls_reads_back_the_same() -> None:
    spec = resolve(VALUES)
    assert resolve(spec.model_dump(mode="json", exclude_none=True)) == spec


def test_faults_of_all_sections_are_reported_together() -> None:
    text = (
        "model_name: mamba\ndata:\n  dataset: listops\n  trian: 1\nmodel:\n  levels: 3\ntrain:\n  lr: '3'\n"
    )
    with pytest.raises(ConfigError) as caught:
        RunSpec.resolve(parse_yaml(text, "x.yaml"))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(
        "x.yaml:4: data.trian: unknown key of dataset 'listops'; did you mean 'train'? "
    )
    assert lines[1].startswith("x.yaml:6: model.levels: unknown key of model 'mamba'; ")
    assert lines[2:] == ["x.yaml:8: train.lr: must be a number, not '3'"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1], "x: must be a mapping, not a list"),
        (
            {**VALUES, "data": None},
            "x: data.dataset: required key is missing; "
            "known: aan, cifar10, imagenet, imdb, listops, mnist, pathfinder, ptbxl, recall",
        ),
        (
            changed("data", dataset="listop"),
            "x: data.dataset: unknown dataset 'listop'; did you mean 'listops'?",
        ),
        (changed("data", dataset=3), "x: data.dataset: unknown dataset '3'"),
        (changed("data", dataset=[3]), "x: data.dataset: unknown dataset"),
        ({**VALUES, "model_name": ["mamba"]}, "x: unknown model"),
        ({**VALUES, "model_name": "mmba"}, "x: unknown model 'mmba'; did you mean 'mamba'?"),
        ({**VALUES, "model_name": None}, "x: unknown model 'None'"),
        ({**VALUES, "model": 3}, "x: model: must be a mapping, not 3"),
        ({**VALUES, "seed": "0"}, "x: seed: must be a whole number, not '0'"),
        ({**VALUES, "seed": None}, "x: seed: must be a whole number, not null"),
        ({**VALUES, "seed": -1}, "x: seed: must be greater than or equal to 0, not -1"),
        ({**VALUES, "seed": 2**32}, "x: seed: must be less than 4294967296, not 4294967296"),
        ({**VALUES, "seeds": 1}, "x: seeds: unknown key; did you mean 'seed'?"),
        ({**VALUES, "task": "../up"}, "x: task: '../up' is not a valid name: "),
    ],
)
def test_refused(values: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(values)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "label",
    [
        "",
        ".",
        "..",
        ".hidden",
        "a/b",
        "a\\b",
        "a:b",
        "a b",
        "a ",
        " a",
        "a\n",
        "A",
        "é",
        "-a",
        "_a",
        "a" * 65,
        "a\0",
    ],
)
def test_no_label_escapes_its_folder(label: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid name"):
        resolve({**VALUES, "suite": label})


@pytest.mark.parametrize("label", ["a", "0", "listops-short", "path-x.v2_b", "a" * 64, "no", "10"])
def test_labels(label: Label) -> None:
    assert resolve({**VALUES, "suite": label}).suite == label


class TestPreset:
    @pytest.fixture(autouse=True)
    def _model(self, monkeypatch: pytest.MonkeyPatch) -> None:
        preset = {"conv_bias": False, "expand": 2}
        monkeypatch.setitem(MODELS, "biasless", ModelEntry(MambaConfig, "no bias", "mamba", preset))

    def test_beats_the_defaults(self) -> None:
        model = resolve_model("biasless", LocatedValues({}, {}, "x"))
        assert isinstance(model, MambaConfig)
        assert model.conv_bias is False

    def test_may_be_repeated(self) -> None:
        part = LocatedValues({"conv_bias": False, "expand": 2.0, "state": 3}, {}, "x")
        assert resolve_model("biasless", part) == MambaConfig(conv_bias=False, state=3)

    def test_may_not_be_contradicted(self) -> None:
        part = parse_yaml("model:\n  conv_bias: true\n", "x.yaml").at("model")
        message = "^x.yaml:2: model.conv_bias: true contradicts model 'biasless', which is conv_bias false$"
        with pytest.raises(ConfigError, match=message):
            resolve_model("biasless", part)


def test_unknown_names_keep_their_type() -> None:
    with pytest.raises(UnknownName):
        resolve({**VALUES, "model_name": "mmba"})
    with pytest.raises(UnknownName):
        resolve_data(LocatedValues({"dataset": "x"}, {}, "x"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"plateau_patience": 5}, "schedule: cosine does not use plateau_patience, which belongs to plateau"),
        ({"schedule": "one-cycle", "plateau_factor": 0.5}, "does not use plateau_factor"),
        ({"one_cycle_div_factor": 10.0}, "does not use one_cycle_div_factor, which belongs to one-cycle"),
        ({"schedule": "plateau", "one_cycle_beta1": 0.8}, "does not use one_cycle_beta1"),
        (
            {"schedule": "constant", "min_lr": 1e-5},
            "min_lr, which belongs to cosine and plateau and one-cycle",
        ),
        ({"schedule": "rsqrt", "min_lr": 1e-5}, "schedule: rsqrt does not use min_lr"),
        ({"schedule": "rsqrt", "warmup_epochs": 0.0}, "rsqrt begins with a warm-up; raise warmup_epochs"),
        ({"schedule": "one-cycle", "warmup_epochs": 0.0}, "one-cycle begins with a warm-up"),
        ({"schedule": "one-cycle", "warmup_epochs": 10.0}, "no epoch to fall in, of epochs 10; lower it"),
        ({"label_smoothing": 0.1, "loss": "double-softmax"}, "not supported with loss: double-softmax"),
        ({"mixup": 0.8, "loss": "double-softmax"}, "mixup is not supported with loss: double-softmax"),
        ({"cutmix": 1, "loss": "double-softmax"}, "cutmix is not supported with loss: double-softmax"),
        (
            {"schedule": "one-cycle", "one_cycle_beta1": 0.95},
            "one_cycle_beta1 0.95 is above beta1 0.9, from which it falls",
        ),
    ],
)
def test_options_that_cannot_act_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainConfig(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "plateau", "plateau_factor": 0.5, "plateau_patience": 0, "min_lr": 1e-6},
        {
            "schedule": "one-cycle",
            "one_cycle_div_factor": 10.0,
            "one_cycle_beta1": 0.85,
            "warmup_epochs": 3.0,
        },
        {"schedule": "rsqrt", "warmup_epochs": 0.1},
        {"schedule": "constant", "warmup_epochs": 0.0},
    ],
)
def test_options_that_the_schedule_uses_are_kept(options: dict[str, Any]) -> None:
    train = TrainConfig(**options)
    assert {key: getattr(train, key) for key in options} == options


@pytest.mark.parametrize(
    ("model", "option", "problem"),
    [
        ("transformer", {"dt_lr": 1e-3}, "train.dt_lr: acts on step sizes, and the model has none"),
        ("msssm-no-ssm", {"dt_decay": True}, "train.dt_decay: acts on step sizes, and the model has none"),
        ("s4", {"kernel_lr": 1e-3}, "train.kernel_lr: acts on the kernels of sgconv"),
    ],
)
def test_rates_of_what_the_model_does_not_have_are_refused(
    model: str, option: dict[str, Any], problem: str
) -> None:
    values = {**VALUES, "model_name": model, "model": {}, "train": option}
    with pytest.raises(ConfigError, match=f"^x: {problem}"):
        resolve(values)


def test_smoothing_needs_one_label_an_example() -> None:
    values = {**VALUES, "data": {"dataset": "ptbxl"}, "train": {"label_smoothing": 0.1}}
    with pytest.raises(ConfigError, match=r"^x: train.label_smoothing: needs one label .* ptbxl has several"):
        resolve(values)


def test_rates_of_what_the_model_has_are_kept() -> None:
    for model, option in (("s4", "dt_lr"), ("msssm-s6", "dt_lr"), ("sgconv", "kernel_lr")):
        spec = resolve({**VALUES, "model_name": model, "model": {}, "train": {option: 2e-2}})
        assert getattr(spec.train, option) == 2e-2
