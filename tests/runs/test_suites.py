"""The suites that are shipped: each loads, plans, and says what it is."""

from pathlib import Path

import pytest

from msbench.config import MODELS, RunSpec
from msbench.config.base import ClassifierConfig
from msbench.config.differences import compare_settings
from msbench.datasets.ptbxl.labels import SETS
from msbench.reporting.tables.definitions import PAPER_SUITES
from msbench.runs.suite import list_origins, list_suite_names, list_suites, load_suite, resolve_specs

SHIPPED = Path(__file__).resolve().parents[2] / "suites"
TOKEN_MODELS = [name for name, entry in MODELS.items() if not entry.numbers_only]


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
    tokens = any(spec.data.ragged for spec in resolve_specs(suite))
    for name in (each for each, entry in MODELS.items() if not (tokens and entry.numbers_only)):
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


def departures(planned: RunSpec, spec: RunSpec) -> list[str]:
    """The settings in which runs of two suites differ."""
    found = compare_settings(planned.model_dump(mode="json"), spec.model_dump(mode="json"))
    return [change.name for change in found if change.name != "suite"]


def test_the_published_listops_differs_in_its_data_alone() -> None:
    generated, release = load_suite("listops", SHIPPED), load_suite("listops-release", SHIPPED)
    for field in ("protocol", "seeds", "reported", "tasks", "models"):
        assert getattr(generated, field) == getattr(release, field)
    for model in TOKEN_MODELS:
        (spec,) = resolve_specs(release, models=[model])
        (planned,) = resolve_specs(generated, models=[model])
        assert departures(planned, spec) == ["data.source"]


def test_the_published_images_differ_in_their_data_alone() -> None:
    drawn, release = load_suite("lra", SHIPPED), load_suite("lra-release", SHIPPED)
    assert (drawn.protocol, drawn.seeds, drawn.models) == (release.protocol, release.seeds, release.models)
    assert drawn.reported is not None
    assert release.reported is not None
    assert release.reported.columns.items() <= drawn.reported.columns.items()
    for model in TOKEN_MODELS:
        for spec in resolve_specs(release, models=[model]):
            (planned,) = resolve_specs(drawn, [model], [spec.task], [spec.seed])
            assert departures(planned, spec) == ["data.source"]


@pytest.mark.parametrize("name", PAPER_SUITES)
def test_a_suite_has_the_tasks_of_its_columns(name: str) -> None:
    suite = load_suite(name, SHIPPED)
    assert suite.reported is not None
    assert set(suite.reported.columns) == set(suite.tasks)


def test_data_are_those_of_published_results() -> None:
    published: dict[str, dict[str, object]] = {
        "listops": {"source": "generated", "train": 96_000, "validation": 2_000, "test": 2_000},
        "scifar": {"colour": "rgb", "pixels": "values", "validation": 0.1, "split_seed": 42},
        "imagenet": {"image_size": 224, "patch": 16, "validation": 0.01},
        "ptbxl": {"rate": 100, "standardise": True},
    }
    for name, expected in published.items():
        for spec in resolve_specs(load_suite(name, SHIPPED)):
            data = spec.data.model_dump()
            assert expected.items() <= data.items()
            assert data.get("labels", spec.task) == spec.task
    assert set(load_suite("ptbxl", SHIPPED).tasks) == set(SETS)


def test_lra_has_the_data_of_published_results() -> None:
    suite = load_suite("lra", SHIPPED)
    found = {spec.task: spec.data.model_dump() for spec in resolve_specs(suite, ["msssm-s6"])}
    assert [found[task]["dataset"] for task in ("text", "retrieval")] == ["imdb", "aan"]
    assert (found["image"]["dataset"], found["image"]["colour"]) == ("cifar10", "grey")
    for task, size in {"pathfinder": 32, "pathx": 128}.items():
        assert (found[task]["size"], found[task]["difficulty"]) == (size, "curv_contour_length_14")
        assert (found[task]["source"], found[task]["images"]) == ("generated", 200_000)
