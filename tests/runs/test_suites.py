"""The suites that are shipped: each loads, plans, and says what it is."""

from pathlib import Path

import pytest

from msbench.config import MODELS, RunSpec
from msbench.config.base import ClassifierConfig
from msbench.config.differences import compare_settings
from msbench.datasets.ptbxl.labels import SETS
from msbench.runs.suite import list_origins, list_suite_names, list_suites, load_suite, resolve_specs

SHIPPED = Path(__file__).resolve().parents[2] / "suites"


def test_all_are_available() -> None:
    names = [suite.name for suite in list_suites(SHIPPED)]
    assert names == sorted(path.stem for path in SHIPPED.glob("*.yaml"))
    assert {"quick", "listops", "listops-release", "lra"} <= set(names)


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_loads_and_plans(path: Path) -> None:
    suite = load_suite(path.stem, SHIPPED)
    assert len(resolve_specs(suite)) == suite.size
    assert len({spec.digest for spec in resolve_specs(suite)}) == len(resolve_specs(suite))
    # A scaled suite fits a screen; those of the paper have a recipe for each row.
    assert suite.protocol == "paper" or len(path.read_text().splitlines()) <= 60
    assert suite.caption
    assert suite.protocol == "paper" or suite.reported is None
    for name in MODELS:
        assert resolve_specs(suite, models=[name])


@pytest.mark.parametrize("name", list_suite_names(SHIPPED))
def test_no_setting_is_another_familys(name: str) -> None:
    suite = load_suite(name, SHIPPED)
    for spec in resolve_specs(suite, seeds=suite.seeds[:1]):
        entry = MODELS[spec.model_name]
        shared = {"", "all models", f"tasks.{spec.task}"}
        own = (f"families.{entry.family}", f"models.{spec.model_name}")
        for key, origin in list_origins(suite, spec).items():
            section, _, field = key.partition(".")
            is_shared = section != "model" or field in ClassifierConfig.model_fields or not origin.layer
            assert (is_shared and origin.layer in shared) or origin.layer.startswith(own), key
            if not origin.layer and not origin.preset and section == "model":
                assert origin.value == type(spec.model)().model_dump(mode="json")[field], key


def test_listops_is_the_papers_protocol() -> None:
    for spec in resolve_specs(load_suite("listops", SHIPPED)):
        model, train, data = spec.model.model_dump(), spec.train, spec.data.model_dump()
        assert (model["layers"], model["d_model"], model["kernel"], model["state"]) == (20, 128, 4, 128)
        assert (model["norm"], model["dropout"]) == ("batch", 0.1)
        assert (train.lr, train.weight_decay, train.batch_size) == (3e-3, 0.03, 50)
        assert (train.epochs, train.warmup_epochs, train.ssm_lr) == (100, 1.0, None)
        assert (data["train"], data["validation"], data["test"]) == (96_000, 2_000, 2_000)
        assert model.get("levels", 3) == 3


def departures(planned: RunSpec, spec: RunSpec) -> list[str]:
    """The settings in which runs of two suites differ."""
    found = compare_settings(planned.model_dump(mode="json"), spec.model_dump(mode="json"))
    return [change.name for change in found if change.name != "suite"]


def test_the_published_listops_differs_in_its_data_alone() -> None:
    generated, release = load_suite("listops", SHIPPED), load_suite("listops-release", SHIPPED)
    for field in ("protocol", "seeds", "reported", "tasks", "models"):
        assert getattr(generated, field) == getattr(release, field)
    for model in MODELS:
        (spec,) = resolve_specs(release, models=[model])
        (planned,) = resolve_specs(generated, models=[model])
        assert departures(planned, spec) == ["data.source"]


def test_the_published_images_differ_in_their_data_alone() -> None:
    drawn, release = load_suite("lra", SHIPPED), load_suite("lra-release", SHIPPED)
    assert (drawn.protocol, drawn.seeds, drawn.models) == (release.protocol, release.seeds, release.models)
    assert drawn.reported is not None
    assert release.reported is not None
    assert release.reported.columns.items() <= drawn.reported.columns.items()
    for model in MODELS:
        for spec in resolve_specs(release, models=[model]):
            (planned,) = resolve_specs(drawn, [model], [spec.task], [spec.seed])
            assert departures(planned, spec) == ["data.source"]


def test_scifar_is_the_papers_protocol() -> None:
    for spec in resolve_specs(load_suite("scifar", SHIPPED)):
        model, train, data = spec.model.model_dump(), spec.train, spec.data.model_dump()
        assert (model["layers"], model["d_model"], model["state"], model["norm"]) == (10, 256, 128, "batch")
        assert (train.lr, train.weight_decay, train.batch_size) == (4.5e-3, 0.01, 50)
        assert (train.epochs, train.warmup_epochs, train.ssm_lr) == (250, 1.0, None)
        assert (train.beta1, train.beta2) == (0.9, 0.999)
        assert (data["colour"], data["pixels"], data["validation"], data["split_seed"]) == (
            "rgb",
            "values",
            0.1,
            42,
        )
        if spec.model_name.startswith("msssm"):
            assert (model["levels"], model["kernel"]) == (3, 2)


def test_imagenet_is_the_papers_protocol() -> None:
    for spec in resolve_specs(load_suite("imagenet", SHIPPED)):
        model, train, data = spec.model.model_dump(), spec.train, spec.data.model_dump()
        assert (model["layers"], model["d_model"], model["state"], model["kernel"]) == (24, 256, 128, 4)
        assert (train.lr, train.batch_size, train.epochs, train.warmup_epochs) == (1e-3, 1024, 300, 10.0)
        assert (train.beta1, train.beta2) == (0.9, 0.999)
        assert (data["image_size"], data["patch"], data["validation"]) == (224, 16, 0.01)


def test_ptbxl_is_the_papers_protocol() -> None:
    suite = load_suite("ptbxl", SHIPPED)
    assert suite.reported is not None
    assert set(suite.reported.columns) == set(suite.tasks) == set(SETS)
    for spec in resolve_specs(suite):
        model, train, data = spec.model.model_dump(), spec.train, spec.data.model_dump()
        assert (model["layers"], model["d_model"], model["state"], model["norm"]) == (10, 256, 128, "layer")
        assert model["dropout"] == 0.2
        assert (train.lr, train.weight_decay, train.batch_size) == (4.5e-3, 0.06, 50)
        assert (train.epochs, train.warmup_epochs) == (100, 5.0)
        assert (data["labels"], data["rate"], data["standardise"]) == (spec.task, 100, True)
        if spec.model_name.startswith("msssm"):
            assert (model["levels"], model["kernel"]) == (3, 2)


def test_lra_doubles_the_layers_and_trains_as_s5_does() -> None:
    expected = {
        "text": (8, 256, 0.1, 35, 50, 4e-3, 1e-3, 0.07, 0),
        "retrieval": (8, 128, 0.0, 20, 32, 2e-3, 1e-3, 0.05, 1),
        "image": (6, 512, 0.1, 250, 50, 4.5e-3, 1e-3, 0.07, 1),
        "pathfinder": (6, 192, 0.05, 200, 64, 4.5e-3, 9e-4, 0.03, 1),
        "pathx": (6, 128, 0.0, 75, 32, 1.8e-3, 6e-4, 0.06, 1),
    }
    suite = load_suite("lra", SHIPPED)
    assert suite.reported is not None
    assert set(suite.reported.columns) == set(suite.tasks) == set(expected)
    for spec in resolve_specs(suite):
        model, train = spec.model.model_dump(), spec.train
        assert (model["layers"], model["d_model"], model["dropout"]) == expected[spec.task][:3]
        rates = (train.lr, train.ssm_lr, train.weight_decay, train.warmup_epochs)
        assert (train.epochs, train.batch_size, *rates) == expected[spec.task][3:]
        assert (model["state"], model["kernel"], model["expand"], model["norm"]) == (128, 4, 2, "batch")
        assert model.get("levels", 3) == 3


def test_lra_has_the_data_of_published_results() -> None:
    found = {spec.task: spec.data.model_dump() for spec in resolve_specs(load_suite("lra", SHIPPED))}
    assert [found[task]["dataset"] for task in ("text", "retrieval")] == ["imdb", "aan"]
    assert (found["image"]["dataset"], found["image"]["colour"]) == ("cifar10", "grey")
    for task, size in {"pathfinder": 32, "pathx": 128}.items():
        assert (found[task]["size"], found[task]["difficulty"]) == (size, "curv_contour_length_14")
        assert (found[task]["source"], found[task]["images"]) == ("generated", 200_000)
