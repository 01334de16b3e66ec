"""Every number of every config: a record can hold all that the config accepts, and all else is refused."""

import math
import types
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from msbench.analysis.mixing.options import MeasureOptions
from msbench.config import DATASETS, MODELS, RunSpec, TrainConfig
from msbench.config.layers import LocatedValues, validate
from msbench.errors import ConfigError
from msbench.results.record import check_plain
from msbench.runs.launchers.slurm_profile import SlurmProfile
from msbench.runs.suite import Suite, load_suite, resolve_specs
from msbench.runs.suite_file import GateLayer, SuiteFile

CONFIGS: list[type[BaseModel]] = [
    *DATASETS.values(),
    *dict.fromkeys(entry.config for entry in MODELS.values()),
    *(TrainConfig, RunSpec, SuiteFile, GateLayer, SlurmProfile, MeasureOptions),
]
WHOLE = [0, 1, 2, 100, 10**6, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64, 10**30, 10**299]
WHOLE += [-number for number in WHOLE[1:]]
REAL = [0.0, 5e-324, 0.5, 1.5, 1e6, 1e9, 1e100, 1e101, 1e200, 1.7e308, math.inf, -math.inf, math.nan, -1e300]
SECTIONS: list[tuple[str, str, type[BaseModel]]] = [
    ("data", "mamba", DATASETS["listops"]),
    ("train", "mamba", TrainConfig),
    *(("model", name, entry.config) for name, entry in MODELS.items()),
]


def kinds(annotation: Any) -> set[type]:
    """The plain types that a value may have, within lists too."""
    if get_origin(annotation) is Annotated:
        return kinds(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType, tuple, list, dict):
        return set[type]().union(*(kinds(each) for each in get_args(annotation)))
    return {annotation} if isinstance(annotation, type) else set()


def fields(config: type[BaseModel], *wanted: type) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in config.model_fields.items():
        if kinds(field.annotation) & set(wanted):
            yield name, field


def numbers() -> list[Any]:
    return [
        pytest.param(name, field, id=f"{config.__name__}.{name}")
        for config in CONFIGS
        for name, field in fields(config, int, float)
    ]


def kinds_of_lists(field: FieldInfo) -> set[Any]:
    return {get_origin(each) for each in (field.annotation, *get_args(field.annotation))}


def shapes(field: FieldInfo, value: Any) -> Iterator[Any]:
    """The number, or what holds it in a field that takes several."""
    yield value
    if tuple in kinds_of_lists(field):
        yield (value,)
    if dict in kinds_of_lists(field):
        yield {"nice": value}


def taken(field: FieldInfo, value: Any) -> Iterator[Any]:
    """What becomes of a value that the field takes; nothing where it does not."""
    kind: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    strict = ConfigDict(strict=True, allow_inf_nan=False)
    for shape in shapes(field, value):
        with suppress(ValidationError):
            yield TypeAdapter(kind, config=strict).validate_python(shape)


def test_all_kinds_of_numbers_are_found() -> None:
    found = {f"{config.__name__}.{name}" for config in CONFIGS for name, _ in fields(config, int, float)}
    assert {
        *("ListOpsConfig.seed", "TrainConfig.micro_batch", "TrainConfig.pad_to", "TrainConfig.clip"),
        *("InceptionTimeConfig.kernels", "SuiteFile.seeds", "RunSpec.seed", "SlurmProfile.sbatch"),
        *(
            "SlurmProfile.time",
            "MsSsmConfig.d_model",
            "MsSsmConfig.expand",
            "MambaConfig.layers_factor",
            "GateLayer.degrees",
        ),
        *("MeasureOptions.position", "ImdbConfig.split_seed", "DssConfig.horizon", "LiquidS4Config.degree"),
    } <= found
    assert len(found) > 150


@pytest.mark.parametrize(("name", "field"), numbers())
def test_what_a_config_takes_a_record_takes(name: str, field: FieldInfo) -> None:
    values = [each for value in (*WHOLE, *REAL) for each in taken(field, value)]
    assert values, "no value was taken"
    for value in values:
        check_plain({"model": {name: list(value) if isinstance(value, tuple) else value}})
        if isinstance(value, float):
            assert abs(value) <= 1e100


@pytest.mark.parametrize(("section", "model", "config"), SECTIONS)
def test_a_number_that_no_record_holds_is_refused_by_its_key(
    tiny: Suite, section: str, model: str, config: type[BaseModel]
) -> None:
    for name, field in fields(config, int, float):
        number = 2**63 if int in kinds(field.annotation) else 1e300
        shape = [number] if tuple in kinds_of_lists(field) else number
        with pytest.raises(ConfigError) as caught:
            resolve_specs(tiny, [model], overrides=[f"{section}.{name}={shape}"])
        assert f"--set {section}.{name}: " in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("seeds: [0]", "seeds: [9223372036854775808]"),
        ("seeds: [0]", "seeds: [0]\ndata: {seed: 9223372036854775808}"),
        ("  mamba: {}", "  mamba: {train: {batch_size: 9223372036854775808}}"),
        ("  mamba: {}", "  mamba: {train: {pad_to: 9223372036854775808}}"),
        ("  mamba: {}", "  mamba: {model: {expand: 1e300}}"),
        ("  mamba: {}", "  mamba: {train: {warmup_epochs: 1e300}}"),
    ],
)
def test_a_suite_names_file_line_and_key(tiny_file: Path, line: str, words: str) -> None:
    text = tiny_file.read_text(encoding="utf-8")
    tiny_file.write_text(text.replace(line, words), encoding="utf-8")
    number = text[: text.index(line)].count("\n") + 1 + words.count("\n")
    with pytest.raises(ConfigError, match=rf"{tiny_file}:{number}: .*must be less than"):
        load_suite(tiny_file)


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (SlurmProfile, {"time": 2**63}),
        (SlurmProfile, {"time": 60, "max_requeues": 2**63}),
        (SlurmProfile, {"time": 60, "sbatch": {"nice": -(2**63)}}),
        (GateLayer, {"sd": 0.1, "degrees": 2**63}),
        (MeasureOptions, {"position": 2**63}),
    ],
)
def test_other_files_and_options_are_bounded_too(config: type[BaseModel], values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"must be (less|greater) than"):
        validate(config, LocatedValues(values, {}, "x"))


def test_a_seed_of_the_command_line_is_named(tiny: Suite) -> None:
    with pytest.raises(ConfigError, match="--seed: must be less than 4294967296"):
        resolve_specs(tiny, seeds=[2**63])
