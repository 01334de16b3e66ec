"""The paper's suites have the recipes of their rows' sources, which are in recipes.yaml as facts."""

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from msbench.config import MODELS, RunSpec
from msbench.config.base import Config, freeze
from msbench.config.differences import compare_settings
from msbench.config.layers import load_yaml
from msbench.config.run import SECTIONS
from msbench.reporting.tables.definitions import PAPER_SUITES
from msbench.runs.suite import Suite, list_suite_names, load_suite, resolve_all, resolve_specs

SHIPPED = Path(__file__).resolve().parents[2] / "suites"
TABLE: Mapping[str, Any] = load_yaml(Path(__file__).with_name("recipes.yaml")).values
REASONS: dict[str, str] = TABLE["reasons"]
RECIPES: list[dict[str, Any]] = TABLE["recipes"]
SUITES = {name: load_suite(name, SHIPPED) for name in PAPER_SUITES}
CELLS = [f"{name}/{task}/{model}" for name, suite in SUITES.items() for task, model in sorted(suite.cells)]
SOFTMAX_ALONE = ("dss-exp", "dss-exp-no-scale")
"""Rows whose repository publishes settings, though not for them."""
BASE = "msssm-s6"
ABLATIONS = [
    name for name, entry in MODELS.items() if entry.family == "ms-ssm" and entry.preset and entry.rows
]


def find_recipes(cell: str) -> list[dict[str, Any]]:
    return [recipe for recipe in RECIPES if any(fnmatch(cell, each) for each in recipe["cells"])]


def find_spec(cell: str) -> RunSpec:
    name, task, model = cell.split("/")
    return SUITES[name].planned[task, model]


def changed(config: Config, but: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that do not have their defaults, but for those that make the model what it is."""
    values = config.model_dump()
    return {key: values[key] for key in config.changed(values) if key not in but and key != "dataset"}


def test_every_cell_has_one_recipe_and_no_recipe_is_left() -> None:
    assert {cell: len(find_recipes(cell)) for cell in CELLS} == dict.fromkeys(CELLS, 1)
    named = [each for recipe in RECIPES for each in recipe["cells"]]
    assert [each for each in named if not any(fnmatch(cell, each) for cell in CELLS)] == []


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_has_the_settings_of_its_source(cell: str) -> None:
    spec, (recipe,) = find_spec(cell), find_recipes(cell)
    task_only = {"labels": spec.task, "size": 32}
    for section in SECTIONS:
        config, expected = getattr(spec, section), recipe.get(section, {})
        values, labels = config.model_dump(), task_only if section == "data" else {}
        preset = MODELS[spec.model_name].preset if section == "model" else {}
        assert {key: values[key] for key in expected} == {k: freeze(v) for k, v in expected.items()}
        # What the table does not name is at its default: nothing comes from another row by accident.
        assert changed(config, {**preset, **labels}).keys() <= expected.keys(), section


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: str(recipe["cells"][0]))
def test_what_differs_from_a_source_has_a_reason(recipe: dict[str, Any]) -> None:
    for setting, (value, reason) in recipe.get("differs", {}).items():
        section, _, key = setting.partition(".")
        assert reason in REASONS
        for cell in (each for each in CELLS if any(fnmatch(each, name) for name in recipe["cells"])):
            assert getattr(getattr(find_spec(cell), section), key) != freeze(value), "a difference no more"
    assert set(recipe.get("lacks", ())) <= set(REASONS)


def test_every_reason_is_that_of_a_difference() -> None:
    used = {reason for recipe in RECIPES for reason in recipe.get("lacks", ())}
    used |= {reason for recipe in RECIPES for _, reason in recipe.get("differs", {}).values()}
    assert used == set(REASONS)
    assert all(len(text) > 30 for text in REASONS.values())


def test_rows_without_published_settings_are_marked() -> None:
    for cell in CELLS:
        name, task, model = cell.split("/")
        (recipe,) = find_recipes(cell)
        published = not recipe["source"].startswith("ours") and model not in SOFTMAX_ALONE
        assert ((task, model) not in SUITES[name].own_settings) == published, cell


def test_the_papers_suites_plan_each_of_their_cells() -> None:
    counts = {name: suite.size for name, suite in SUITES.items()}
    assert counts == {"scifar": 16, "imagenet": 8, "listops": 33, "ptbxl": 67, "lra": 76}
    assert len(resolve_all(list(SUITES.values()))) == sum(counts.values())


@pytest.mark.parametrize("name", list_suite_names(SHIPPED))
def test_an_ablation_differs_from_its_base_in_what_it_ablates_alone(name: str) -> None:
    suite = load_suite(name, SHIPPED)
    small = suite.protocol != "paper"
    # The rates of small suites are chosen for each model in the same way (docs/results.md).
    chosen = {"train.lr"} if small else set()
    for model in (each for each in ABLATIONS if each in suite.models or not small):
        for task in suite.tasks:
            base, spec = (find_in(suite, task, each) for each in (BASE, model))
            found = compare_settings(base.model_dump(mode="json"), spec.model_dump(mode="json"))
            names = {change.name for change in found} - {"model_name", "model"} - chosen
            assert names == {f"model.{key}" for key in MODELS[model].preset}, (task, model)


def find_in(suite: Suite, task: str, model: str) -> RunSpec:
    (spec,) = resolve_specs(suite, [model], [task], suite.seeds[:1])
    return spec


def test_an_ablation_changes_one_option() -> None:
    """Row 7 has two keys, as it is row 6 with another input of the scan."""
    sizes = {name: len(MODELS[name].preset) for name in ABLATIONS}
    two = sizes.pop("msssm-gate-original-self")
    assert set(sizes.values()) == {1}
    assert two == 2
    seventh, sixth = (MODELS[f"msssm-gate-{name}"].preset for name in ("original-self", "self-self"))
    assert seventh.items() - sixth.items() == {("ssm_input", "raw")}


@pytest.mark.parametrize("name", list_suite_names(SHIPPED))
def test_batches_are_random_under_batch_norm(name: str) -> None:
    suite = load_suite(name, SHIPPED)
    for spec in suite.planned.values():
        assert spec.model.norm != "batch" or not spec.train.bucketing, (spec.task, spec.model_name)
