"""A run's id covers the source that decides its result, and only that."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from msbench import models
from msbench.config import MODELS
from msbench.runs import identity

PACKAGE = Path(identity.__file__).parents[1]


def roots(model: str, *more: str) -> tuple[str, ...]:
    return f"{MODELS[model].module}:build", *identity.TRAINING, *more


def files(model: str, *more: str) -> dict[str, str]:
    return identity.define(roots(model, *more)).files


def test_what_decides_a_result_is_in_and_the_rest_is_out() -> None:
    found = files("mamba")
    for name in (
        "training/loop.py",
        "training/optimizer.py",
        "training/evaluation.py",
        "training/auroc.py",
        "training/step.py",
        "ops/scan/reference.py",
        "models/mamba.py",
        "models/classifier.py",
        "datasets/dataset.py",
    ):
        assert name in found
    rooms = {name.partition("/")[0] for name in found}
    assert rooms == {"training", "models", "ops", "datasets"}
    assert {name for name in found if name.startswith("datasets/")} == {"datasets/dataset.py"}


@pytest.mark.parametrize("model", MODELS)
def test_a_models_entry_names_the_module_that_builds_it(model: str) -> None:
    assert models.find_family(model).build.__module__ == MODELS[model].module


def test_another_family_is_not_in_the_source_of_a_model() -> None:
    assert not {"models/ms_ssm.py", "models/streams.py", "models/s4d.py"} & set(files("mamba"))
    assert {"models/ms_ssm.py", "models/streams.py"} <= set(files("msssm-s6"))
    assert len({identity.define((f"{each.module}:build",)).digest for each in MODELS.values()}) == len(
        {each.module for each in MODELS.values()}
    )


@pytest.mark.parametrize("operation", identity.REFERENCES)
def test_an_operation_with_kernels_exists_and_counts_by_its_reference(operation: str) -> None:
    module, _, name = operation.partition(":")
    function = getattr(import_module(module), name)
    assert function.__module__ == module
    names = {f"{key[0]}:{key[1]}" for key in identity.TREE.find(module, name)}
    references = identity.REFERENCES[operation]
    assert names == {
        f"{key[0]}:{key[1]}" for root in references for key in identity.TREE.find(*root.split(":"))
    }


@pytest.mark.parametrize("model", MODELS)
def test_no_kernel_is_in_the_source_of_a_model(model: str) -> None:
    kernels = re.compile(r"\b(ctypes|CDLL|triton|native_library|uses_native)\b")
    found = [
        (module, ast.unparse(identity.TREE.read_module(module).statements[number]))
        for module, number in identity.TREE.walk(roots(model))
    ]
    assert len(found) > 100
    assert [module for module, text in found if kernels.search(text)] == []


@pytest.mark.parametrize("dataset", identity.BATCHES)
def test_batches_that_are_made_while_training_are_in(dataset: str) -> None:
    roots = identity.BATCHES[dataset]
    paths = {identity.TREE.find_file(root.partition(":")[0]) for root in roots}
    assert {path.relative_to(PACKAGE).as_posix() for path in paths} <= set(files("mamba", *roots))


def test_kernels_in_every_language_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suffixes = {path.suffix for pattern in identity.OPERATIONS for path in PACKAGE.glob(pattern)}
    assert suffixes >= {".py", ".cpp", ".inl", ".h"}
    (tmp_path / "ops" / "native").mkdir(parents=True)
    (tmp_path / "ops" / "native" / "kernel.cpp").write_text("int one;", encoding="utf-8")
    before = identity.digest_kernels()
    monkeypatch.setattr(identity.TREE, "folder", tmp_path)
    identity.digest_kernels.cache_clear()
    assert identity.digest_kernels() != before
    identity.digest_kernels.cache_clear()
