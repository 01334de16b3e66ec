"""Plans: which runs a suite stands for, under filters and overrides."""

from pathlib import Path
from typing import Literal

import pytest

from msbench import datasets
from msbench.config import DATASETS, MODELS, DataConfig, RunSpec
from msbench.config.models import ModelEntry
from msbench.config.selective import MsSsmConfig
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError, UnknownName
from msbench.results.store import get_run_folder
from msbench.runs.suite import (
    Suite,
    describe_unlisted_models,
    list_inapplicable_keys,
    load_suite,
    resolve_specs,
)

TEXT = """\
name: tiny
title: A tiny suite
protocol: scaled
seeds: [0, 1]
data: {dataset: listops, min_length: 5, max_length: 60}
model: {d_model: 32, layers: 2}
train:
  lr: 1e-3
  epochs: 2
tasks:
  short: {data: {max_length: 30}, train: {lr: 2e-3}}
  long:
models:
  msssm-s6: {model: {levels: 2}, train: {lr: 3e-3}}
  mamba:
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def tiny(tmp_path: Path) -> Suite:
    return load_suite(write(tmp_path, TEXT))


def labels(specs: list[RunSpec]) -> list[tuple[str, str, int]]:
    return [(spec.task, spec.model_name, spec.seed) for spec in specs]


class TestPlan:
    def test_tasks_by_models_by_seeds_in_the_suites_order(self, tiny: Suite) -> None:
        assert labels(resolve_specs(tiny)) == [
            (task, model, seed)
            for task in ("short", "long")
            for model in ("msssm-s6", "mamba")
            for seed in (0, 1)
        ]
        assert {spec.suite for spec in resolve_specs(tiny)} == {"tiny"}

    def test_later_layers_win(self, tiny: Suite) -> None:
        specs = {(spec.task, spec.model_name): spec for spec in resolve_specs(tiny)}
        assert {key: spec.train.lr for key, spec in specs.items()} == {
            ("short", "msssm-s6"): 3e-3,
            ("short", "mamba"): 2e-3,
            ("long", "msssm-s6"): 3e-3,
            ("long", "mamba"): 1e-3,
        }
        assert [spec.train.lr for spec in resolve_specs(tiny, overrides=["train.lr=9"])] == [9.0] * 8
        model = specs["short", "msssm-s6"].model
        assert isinstance(model, MsSsmConfig)
        assert (model.levels, model.d_model) == (2, 32)
        assert specs["short", "mamba"].data.model_dump()["max_length"] == 30
        assert specs["long", "mamba"].data.model_dump()["max_length"] == 60

    def test_filters_collapse_repeats_and_ignore_order(self, tiny: Suite) -> None:
        first = resolve_specs(tiny, models=["mamba", "msssm-s6"], tasks=["long", "short"], seeds=[1, 0])
        assert first == resolve_specs(tiny)
        assert labels(resolve_specs(tiny, ["mamba", "mamba"], ["long"], [1, 1])) == [("long", "mamba", 1)]

    def test_unknown_names(self, tiny: Suite) -> None:
        with pytest.raises(UnknownName, match="unknown task 'shrt'; did you mean 'short'"):
            resolve_specs(tiny, tasks=["shrt"])
        with pytest.raises(UnknownName, match="unknown model 'mmba'; did you mean 'mamba'"):
            resolve_specs(tiny, models=["mmba"])

    def test_a_known_model_that_the_suite_lacks_runs_at_the_suites_defaults(self, tmp_path: Path) -> None:
        suite = load_suite(write(tmp_path, TEXT.replace("  mamba:\n", "")))
        assert {spec.model_name for spec in resolve_specs(suite)} == {"msssm-s6"}
        (spec,) = resolve_specs(suite, models=["mamba"], tasks=["short"], seeds=[0])
        assert (spec.train.lr, spec.model.d_model) == (2e-3, 32)
        both = resolve_specs(suite, models=["mamba", "msssm-s6"], tasks=["short"], seeds=[0])
        assert [each.model_name for each in both] == ["msssm-s6", "mamba"]

    def test_such_a_model_is_spared_the_settings_that_it_lacks(self, tmp_path: Path) -> None:
        text = TEXT.replace("  mamba:\n", "").replace("layers: 2", "layers: 2, levels: 1, state: 9")
        suite = load_suite(
            write(tmp_path, text.replace("{max_length: 30}", "{max_length: 30}, model: {ssm: s6}"))
        )
        assert list_inapplicable_keys(suite, "short", "mamba") == ["levels", "ssm"]
        assert list_inapplicable_keys(suite, "long", "mamba") == ["levels"]
        assert list_inapplicable_keys(suite, "short", "msssm-s6") == []
        specs = resolve_specs(suite, models=["mamba"], seeds=[0])
        assert [(spec.model.d_model, spec.model.model_dump()["state"]) for spec in specs] == [(32, 9)] * 2
        assert describe_unlisted_models(suite, specs) == [
            "tiny does not list mamba: on short it runs with the suite's common settings and its own"
            " defaults; it has no model.levels, model.ssm",
            "tiny does not list mamba: on long it runs with the suite's common settings and its own"
            " defaults; it has no model.levels",
        ]
        assert describe_unlisted_models(suite, resolve_specs(suite)) == []
        with pytest.raises(ConfigError, match=r"--set model\.levels: unknown key of model 'mamba'"):
            resolve_specs(suite, models=["mamba"], overrides=["model.levels=2"])

    def test_nor_does_a_common_setting_beat_what_makes_such_a_model_itself(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        entry = ModelEntry(MsSsmConfig, "", "ms-ssm", {"mixer": "static"})
        monkeypatch.setitem(MODELS, "fixed", entry)
        suite = load_suite(
            write(tmp_path, TEXT.replace("  mamba:\n", "").replace("layers: 2", "mixer: softmax"))
        )
        (spec,) = resolve_specs(suite, ["fixed"], ["long"], [0])
        assert spec.model.model_dump()["mixer"] == "static"
        listed = load_suite(write(tmp_path, TEXT.replace("  mamba:\n", "  fixed:\n")))
        with pytest.raises(ConfigError, match="contradicts model 'fixed', which is mixer 'static'"):
            resolve_specs(listed, overrides=["model.mixer=linear"])

    def test_seed_zero_is_a_seed_and_more_seeds_may_be_asked_for(self, tiny: Suite) -> None:
        assert {spec.seed for spec in resolve_specs(tiny, seeds=[0])} == {0}
        assert [spec.seed for spec in resolve_specs(tiny, ["mamba"], ["long"], [7, 1, 5])] == [1, 5, 7]

    def test_a_typed_seed_that_is_refused_is_not_blamed_on_the_file(self, tiny: Suite) -> None:
        with pytest.raises(ConfigError) as error:
            resolve_specs(tiny, seeds=[-1, 2**32])
        assert str(error.value).splitlines() == [
            "--seed: must be greater than or equal to 0, not -1",
            f"--seed: must be less than {2**32}, not {2**32}",
        ]

    def test_seeds_keep_the_suites_order_before_any_more(self, tmp_path: Path) -> None:
        suite = load_suite(write(tmp_path, TEXT.replace("[0, 1]", "[5, 1]")))
        assert [spec.seed for spec in resolve_specs(suite, ["mamba"], ["long"], [1, 0, 5])] == [5, 1, 0]

    def test_a_section_that_is_null_says_nothing(self, tiny: Suite, tmp_path: Path) -> None:
        nulls = TEXT.replace("  mamba:\n", "  mamba: {model: null, train:}\n")
        assert resolve_specs(load_suite(write(tmp_path, nulls))) == resolve_specs(tiny)

    def test_spelling_order_and_place_do_not_change_the_run(self, tiny: Suite, tmp_path: Path) -> None:
        digests = {spec.digest for spec in resolve_specs(tiny)}
        reordered = "\n".join(reversed(TEXT.split("\n")[:4])) + "\n" + "\n".join(TEXT.split("\n")[4:])
        respelled = reordered.replace("1e-3", "0.001").replace("3e-3", "3.0E-3")
        assert {spec.digest for spec in resolve_specs(load_suite(write(tmp_path, respelled)))} == digests
        assert {spec.digest for spec in resolve_specs(tiny, ["mamba"])} <= digests
        assert not {spec.digest for spec in resolve_specs(tiny, overrides=["train.epochs=3"])} & digests

    @pytest.mark.parametrize("text", ["1e-5", "1E-5", "1.0e-5", "0.00001"])
    def test_a_value_in_the_file_and_typed_is_one_value(self, tiny: Suite, tmp_path: Path, text: str) -> None:
        in_file = load_suite(write(tmp_path, TEXT.replace("  epochs: 2", f"  epochs: 2\n  min_lr: {text}")))
        typed = resolve_specs(tiny, overrides=[f"train.min_lr={text}"])
        assert [spec.digest for spec in resolve_specs(in_file)] == [spec.digest for spec in typed]
        assert [spec.digest for spec in resolve_specs(tiny)] != [spec.digest for spec in typed]

    def test_false_in_the_file_holds_until_something_is_typed(self, tmp_path: Path) -> None:
        suite = load_suite(write(tmp_path, TEXT.replace("  epochs: 2", "  epochs: 2\n  bucketing: false")))
        assert {spec.train.bucketing for spec in resolve_specs(suite)} == {False}
        assert {spec.train.bucketing for spec in resolve_specs(suite, overrides=["train.epochs=9"])} == {
            False
        }
        assert {
            spec.train.bucketing for spec in resolve_specs(suite, overrides=["train.bucketing=true"])
        } == {True}

    def test_null_typed_beats_a_number_in_the_file(self, tmp_path: Path) -> None:
        suite = load_suite(write(tmp_path, TEXT.replace("  epochs: 2", "  epochs: 2\n  ssm_lr: 1e-4")))
        assert {spec.train.ssm_lr for spec in resolve_specs(suite)} == {1e-4}
        assert {spec.train.ssm_lr for spec in resolve_specs(suite, overrides=["train.ssm_lr=null"])} == {None}

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("lr=1", "--set lr: a key begins with data., model. or train.; did you mean 'train.lr'?"),
            (
                "levels=1",
                "--set levels: a key begins with data., model. or train.; did you mean 'model.levels'?",
            ),
            (
                "trian.lr=1",
                "--set trian.lr: a key begins with data., model. or train.; did you mean 'train'?",
            ),
            ("train=1", "--set train: a key begins with data., model. or train."),
            ("seed=1", "--set seed: a key begins with data., model. or train."),
            ("train.lr", "--set train.lr: must have the form KEY=VALUE, such as train.lr=1e-3"),
            ("train.lrr=1", "--set train.lrr: unknown key; did you mean 'lr'? known: "),
            ("train.lr=abc", "--set train.lr: must be a number, not 'abc'"),
            ("train.lr.x=1", "--set train.lr.x: train.lr: must be a number, not a mapping"),
            (
                "train.precision=bf61",
                "--set train.precision: must be 'float32' or 'bf16', not 'bf61'; did you mean",
            ),
            ("model.levels=1", "--set model.levels: unknown key of model 'mamba'; known: "),
            ("data.trian=1", "--set data.trian: unknown key of dataset 'listops'; did you mean 'train'? "),
            ("train.min_lr=1", "tiny.yaml:14 and --set train.min_lr: train: min_lr 1.0 is above lr 0.003"),
        ],
    )
    def test_a_wrong_override(self, tiny: Suite, tmp_path: Path, override: str, message: str) -> None:
        with pytest.raises(ConfigError) as caught:
            resolve_specs(tiny, overrides=[override])
        assert str(caught.value).replace(f"{tmp_path}/", "").startswith(message)

    def test_a_models_own_key_may_be_set_once_only_that_model_is_chosen(self, tiny: Suite) -> None:
        specs = resolve_specs(tiny, models=["msssm-s6"], overrides=["model.levels=1"])
        assert {spec.model.model_dump()["levels"] for spec in specs} == {1}

    def test_a_value_typed_that_is_the_suites_own_is_no_change(self, tiny: Suite) -> None:
        chosen = (tiny, ["mamba"], ["long"], [0])
        (planned,), (typed,) = (
            resolve_specs(*chosen),
            resolve_specs(*chosen, ["train.lr=0.001", "model.expand=2"]),
        )
        assert typed.digest == planned.digest
        assert resolve_specs(*chosen, ["train.lr=0.002"])[0].digest != planned.digest

    def test_another_dataset_takes_the_keys_that_are_its_own(
        self, tiny: Suite, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Other(DataConfig):
            dataset: Literal["other"]
            min_length: int
            max_length: int
            size: int = 3

        monkeypatch.setitem(DATASETS, "other", Other)
        monkeypatch.setattr(datasets, "outline", lambda _: TaskInfo("tokens", 9, 2, 60, "accuracy", 0.5, {}))
        (spec,) = resolve_specs(tiny, ["mamba"], ["long"], [0], ["data.dataset=other"])
        assert spec.data == Other(dataset="other", min_length=5, max_length=60, size=3)

    def test_all_wrong_overrides_are_reported_at_once(self, tiny: Suite) -> None:
        with pytest.raises(ConfigError) as caught:
            resolve_specs(tiny, overrides=["lr=1", "epochs=2"])
        assert len(str(caught.value).splitlines()) == 2

    def test_forty_overrides_still_make_short_paths_inside_the_results(
        self, tiny: Suite, tmp_path: Path
    ) -> None:
        spec = resolve_specs(tiny, overrides=[f"train.lr={number}e-3" for number in range(1, 41)])[0]
        path = get_run_folder(tmp_path, spec, "0" * 12)
        assert path.resolve().is_relative_to(tmp_path.resolve())
        assert all(len(part) <= 64 for part in path.relative_to(tmp_path).parts)
