"""Plans: which runs a suite stands for, under filters and overrides."""

from pathlib import Path
from typing import Literal

import pytest

from msbench import datasets
from msbench.config import DATASETS, DataConfig, RunSpec
from msbench.config.selective import MsSsmConfig
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError, UnknownName
from msbench.results.store import get_run_folder
from msbench.runs.suite import (
    Suite,
    describe_unlisted_models,
    list_origins,
    load_suite,
    load_suites,
    resolve_all,
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
            ("short", "msssm-s6"): 2e-3,
            ("short", "mamba"): 2e-3,
            ("long", "msssm-s6"): 3e-3,
            ("long", "mamba"): 1e-3,
        }
        assert [spec.train.lr for spec in resolve_specs(tiny, overrides=["train.lr=9"])] == [9.0] * 8
        model = specs["long", "msssm-s6"].model
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
            ("train.min_lr=1", "tiny.yaml:11 and --set train.min_lr: train: min_lr 1.0 is above lr 0.002"),
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


LAYERS = """\
name: tiny
title: A tiny suite
protocol: scaled
data: {dataset: listops, min_length: 5, max_length: 60}
model: {d_model: 32}
train: {epochs: 1, batch_size: 1, weight_decay: 0.1, lr: 1, clip: 1, warmup_epochs: 1}
tasks:
  short: {train: {weight_decay: 0.4, lr: 4, clip: 4}}
  long:
families:
  s4d:
    settings: ours
    model: {state: 8}
    train: {batch_size: 2, weight_decay: 0.2, lr: 2, clip: 2, warmup_epochs: 2}
    tasks: {short: {settings: source, train: {lr: 5, clip: 5}}}
  s5: {model: {state: 16}}
models:
  s4d-lin:
    train: {weight_decay: 0.3, lr: 3, clip: 3, warmup_epochs: 3}
    tasks: {short: {train: {clip: 6}}}
  s4d-inv: {only: [long], settings: source}
  s5:
"""


class TestLayers:
    @pytest.fixture
    def suite(self, tmp_path: Path) -> Suite:
        return load_suite(write(tmp_path, LAYERS))

    def test_each_layer_beats_those_before_it(self, suite: Suite) -> None:
        specs = {(spec.task, spec.model_name): spec for spec in resolve_specs(suite)}
        train = specs["short", "s4d-lin"].train
        given = (
            train.epochs,
            train.batch_size,
            train.warmup_epochs,
            train.weight_decay,
            train.lr,
            train.clip,
        )
        assert given == (1, 2, 3, 0.4, 5, 6)
        train = specs["long", "s4d-inv"].train
        assert (train.batch_size, train.warmup_epochs, train.clip) == (2, 2, 2)
        (typed,) = resolve_specs(suite, ["s4d-lin"], ["short"], overrides=["train.clip=7"])
        assert typed.train.clip == 7

    def test_settings_of_a_family_reach_no_other(self, suite: Suite) -> None:
        specs = {(spec.task, spec.model_name): spec for spec in resolve_specs(suite)}
        assert [specs["long", name].model.model_dump()["state"] for name in ("s4d-lin", "s5")] == [8, 16]
        assert specs["long", "s5"].train.batch_size == 1
        (unlisted,) = resolve_specs(suite, ["s4d-real"], ["long"])
        assert unlisted.model.model_dump()["state"] == 8

    @pytest.mark.parametrize("key", ["state", "kernel", "levels", "gate"])
    @pytest.mark.parametrize("place", ["model: {d_model: 32", "{train: {weight_decay: 0.4, lr: 4, clip: 4}"])
    def test_what_not_every_model_has_is_refused_where_it_would_be_for_all(
        self, tmp_path: Path, key: str, place: str
    ) -> None:
        setting = f"{key}: 4" if place.startswith("model") else f"model: {{{key}: 4}}"
        with pytest.raises(ConfigError) as caught:
            load_suite(write(tmp_path, LAYERS.replace(place, f"{place}, {setting}")))
        line, under = (5, "") if place.startswith("model") else (8, "tasks.short.")
        assert str(caught.value).endswith(
            f"tiny.yaml:{line}: {under}model.{key}: is not a setting of every model; put it under"
            " families.<family>.model or models.<model>.model"
        )

    def test_a_model_of_some_tasks(self, suite: Suite) -> None:
        cells = {(spec.task, spec.model_name) for spec in resolve_specs(suite)}
        assert suite.cells == cells
        assert ("short", "s4d-inv") not in cells
        assert suite.size == len(cells) == 5
        assert labels(resolve_specs(suite, models=["s4d-inv"])) == [("long", "s4d-inv", 0)]
        assert {spec.model_name for spec in resolve_specs(suite, tasks=["short"])} == {"s4d-lin", "s5"}
        specs = resolve_specs(suite, ["s4d-inv"], ["short"])
        assert labels(specs) == [("short", "s4d-inv", 0)]
        assert describe_unlisted_models(suite, specs) == [
            "tiny does not list s4d-inv for short: it runs with the suite's settings for s4d"
        ]
        specs = resolve_specs(suite, ["s5", "lstm", "s4d-real"], ["long"])
        assert describe_unlisted_models(suite, specs) == [
            "tiny does not list lstm: on long it runs with the suite's common settings and its own defaults",
            "tiny does not list s4d-real: on long it runs with the suite's settings for s4d",
        ]

    def test_no_run_is_left_where_no_model_is_listed(self, tmp_path: Path) -> None:
        text = LAYERS.replace("  s5:\n", "  s5: {only: [long]}\n").replace(
            "3}\n    tasks: {short: {train: {clip: 6}}}", "3}\n    only: [long]"
        )
        suite = load_suite(write(tmp_path, text))
        with pytest.raises(ConfigError, match="lists no model for short; name one with --model"):
            resolve_specs(suite, tasks=["short"])
        assert resolve_specs(suite)

    def test_settings_of_ones_own_are_marked(self, suite: Suite) -> None:
        assert suite.own_settings == {("long", "s4d-lin")}

    @pytest.mark.parametrize(
        ("before", "after", "message"),
        [
            ("  s5: {model", "  s55: {model", r"tiny.yaml:\d+: unknown family 's55'; did you mean 's5'"),
            ("only: [long]", "only: [lang]", "models.s4d-inv.only: no task 'lang'; did you mean 'long'"),
            ("tasks: {short: {settings", "tasks: {shrt: {settings", "families.s4d.tasks: no task 'shrt'"),
            ("tasks: {short: {train: {clip", "tasks: {shrt: {train: {clip", "models.s4d-lin.tasks: no task"),
            ("settings: ours", "settings: mine", "must be 'source' or 'ours', not 'mine'"),
        ],
    )
    def test_a_name_that_is_none(self, tmp_path: Path, before: str, after: str, message: str) -> None:
        assert before in LAYERS
        with pytest.raises(ConfigError, match=message):
            load_suite(write(tmp_path, LAYERS.replace(before, after)))

    def test_every_value_has_its_origin(self, suite: Suite) -> None:
        (spec,) = resolve_specs(suite, ["s4d-lin"], ["short"], overrides=["train.lr=7"])
        found = list_origins(suite, spec, ["train.lr=7"])
        file = suite.source.name
        assert {key: found[key].name for key in found if found[key].layer or found[key].preset} == {
            "data.dataset": f"all models, {file}:4",
            "data.min_length": f"all models, {file}:4",
            "data.max_length": f"all models, {file}:4",
            "model.d_model": f"all models, {file}:5",
            "model.state": f"families.s4d, {file}:13",
            "model.spectrum": "the model's name",
            "train.epochs": f"all models, {file}:6",
            "train.batch_size": f"families.s4d, {file}:14",
            "train.warmup_epochs": f"models.s4d-lin, {file}:19",
            "train.weight_decay": f"tasks.short, {file}:8",
            "train.lr": "--set",
            "train.clip": f"models.s4d-lin.tasks.short, {file}:20",
        }
        assert {key: found[key].value for key in ("train.lr", "train.clip", "model.norm")} == {
            "train.lr": 7.0,
            "train.clip": 6.0,
            "model.norm": "layer",
        }
        assert found["model.norm"].name == "default"


class TestSeveralSuites:
    @pytest.fixture
    def suites(self, tmp_path: Path) -> list[Suite]:
        (tmp_path / "other").mkdir()
        other = write(
            tmp_path / "other", TEXT.replace("name: tiny", "name: other").replace("  short:", "  third:")
        )
        return [load_suite(write(tmp_path, LAYERS)), load_suite(other)]

    def test_each_is_planned_once_and_no_two_have_one_name(self, tmp_path: Path, suites: list[Suite]) -> None:
        files = [each.source.name for each in suites]
        assert load_suites([*files, files[0]]) == suites
        (tmp_path / "again").mkdir()
        again = write(tmp_path / "again", LAYERS.replace("lr: 1", "lr: 2"))
        with pytest.raises(
            ConfigError, match=r"two suites are called tiny, .*tiny.yaml and .*again.*one by one"
        ):
            load_suites([*files, str(again)])

    def test_all_of_them_in_their_order(self, suites: list[Suite]) -> None:
        assert resolve_all(suites) == [*resolve_specs(suites[0]), *resolve_specs(suites[1])]

    def test_names_select_where_they_are_known(self, suites: list[Suite]) -> None:
        chosen = {(spec.suite, spec.task) for spec in resolve_all(suites, tasks=["third"])}
        assert chosen == {("other", "third")}
        assert {spec.suite for spec in resolve_all(suites, models=["mamba"])} == {"other"}
        assert {spec.suite for spec in resolve_all(suites, models=["lstm"])} == {"tiny", "other"}
        with pytest.raises(UnknownName, match="unknown task 'thrd'; did you mean 'third'"):
            resolve_all(suites, tasks=["thrd", "long"])
        with pytest.raises(ConfigError, match="tiny, other: none lists mamba for short"):
            resolve_all(suites, models=["mamba"], tasks=["short"])
