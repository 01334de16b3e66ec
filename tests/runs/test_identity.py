"""A run's id covers the source that decides its result, and only that."""

import ast
import re
import shutil
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from msbench import models
from msbench.config import MODELS, RunSpec
from msbench.config.definition import SourceTree
from msbench.datasets import DATASETS
from msbench.runs import identity
from msbench.runs.suite import load_suite, resolve_specs

PACKAGE = Path(identity.__file__).parents[1]


@cache
def spec(model: str, suite: str = "quick") -> RunSpec:
    return resolve_specs(load_suite(suite), [model])[0]


def files(model: str, suite: str = "quick") -> dict[str, str]:
    return identity.identify(spec(model, suite), "").files


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
    assert rooms == {"training", "models", "ops", "datasets", "config", "runs"}
    assert {name for name in found if name.startswith("runs/")} == {"runs/execution.py"}


@pytest.mark.parametrize("model", MODELS)
def test_a_models_entry_names_the_module_that_builds_it(model: str) -> None:
    assert models.find_family(model).build is import_module(MODELS[model].module).build


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_splits_of_every_dataset_are_made_by_a_function_that_is_followed(dataset: str) -> None:
    view = DATASETS[dataset].view
    assert getattr(import_module(view.__module__), view.__qualname__) is view


def test_another_family_is_not_in_the_source_of_a_model() -> None:
    assert not {"models/ms_ssm.py", "models/streams.py", "models/s4d.py"} & set(files("mamba"))
    assert {"models/ms_ssm.py", "models/streams.py"} <= set(files("msssm-s6"))
    modules = {each.module for each in MODELS.values()}
    assert len({identity.define((f"{module}:build",)).digest for module in modules}) == len(modules)


def test_the_data_of_another_task_are_not_in_the_source_of_a_run() -> None:
    assert "datasets/pixels.py" in files("mamba", "smnist")
    assert "datasets/imagenet/split.py" in files("mamba", "imagenet")
    assert not {"datasets/pixels.py", "datasets/imagenet/split.py"} & set(files("mamba"))


@pytest.mark.parametrize("name", [name for pair in identity.KERNELS.items() for name in (pair[0], *pair[1])])
def test_every_kernel_and_what_counts_in_its_place_exists(name: str) -> None:
    module, _, attribute = name.partition(":")
    assert hasattr(import_module(module), attribute)


@pytest.mark.parametrize("module", identity.WITHOUT)
def test_every_module_that_is_left_out_exists(module: str) -> None:
    assert identity.TREE.has_module(module)


@pytest.mark.parametrize("model", MODELS)
def test_no_kernel_is_in_the_source_of_a_model(model: str) -> None:
    kernels = re.compile(r"\b(ctypes|CDLL|triton|tl|uses_native)\b")
    suite = "smnist" if MODELS[model].numbers_only else "quick"
    found = [
        (module, ast.unparse(identity.TREE.read_module(module).statements[number]))
        for module, number in identity.TREE.walk(identity.list_roots(spec(model, suite)))
    ]
    assert len(found) > 100
    assert [module for module, text in found if kernels.search(text)] == []


COUNTED = {
    "mamba": (
        "config.selective:MambaConfig",
        "datasets.dataset:RaggedTokens.batch",
        "datasets.listops.dataset:view",
        "models:build_registered",
        "models.mamba:build",
        "ops.batch_norm:frozen_batch_norm",
        "ops.batch_norm:masked_batch_norm",
        "ops.batch_norm:masked_batch_norm_reference",
        "ops.filters:TorchBankEngine.backward",
        "ops.filters:causal_conv",
        "ops.filters:convolve_silu",
        "ops.filters:filter_bank_backward",
        "ops.operators:register_differentiable",
        "ops.scan.dispatch:selective_scan",
        "ops.scan.fused:low_rank_scan",
        "ops.scan.fused:run_fused",
        "ops.scan.reference:promote",
        "ops.scan.reference:selective_scan_reference",
        "ops.scan.reference:step_sizes",
        "ops.scan.torch_engine:TorchScanEngine.backward",
        "runs.execution:compute_metrics",
        "training.evaluation:predict",
        "training.loop:Trainer.run",
        "training.loop:make_fabric",
        "training.optimizer:build_optimizer",
        "training.process_group:ProcessGroup",
    ),
    "griffin": ("config.baselines:GriffinConfig.lru_width", "ops.linear_scan:TorchLinearEngine.backward"),
    "msssm-s4": ("ops.lti_scan:TorchLtiEngine.backward", "ops.filters:decompose"),
    "s4": ("ops.convolution:long_convolution", "models.s4:build"),
}
NOT_COUNTED = (
    "config.base:SteppedConfig._step_sizes_are_an_interval",
    "config.messages:describe_error",
    "errors:suggest_name",
    "ops.batch_norm:call_native",
    "ops.filters:NativeBankEngine.forward",
    "ops.filters:check_native_bank",
    "ops.filters:is_bank_native",
    "ops.filters:is_bank_on_gpu",
    "ops.filters:silu_conv",
    "ops.gpu.bank:TritonBankEngine.forward",
    "ops.gpu.bank_kernels:bank_forward",
    "ops.native_library:call",
    "ops.scan.dispatch:check_kernel",
    "ops.scan.dispatch:choose_kernel",
    "ops.scan.fused:fused_scan",
    "ops.scan.native_engine:run_forward",
    "ops.scan.triton_engine:TritonScanEngine.forward",
    "ops.scan.triton_forward_kernels:scan_forward",
    "results.record:write_record",
    "runs.plan:plan_runs",
    "models.transformer:build",
)


def digest_with_another(place: str, copy: Path, model: str) -> str:
    """The digest of a model's definition after an edit of a function, of the form ``module:class.method``."""
    module, _, name = place.partition(":")
    path = copy / identity.TREE.find_file(f"msbench.{module}").relative_to(PACKAGE)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node: ast.AST = tree
    for part in name.split("."):
        (node,) = (each for each in ast.iter_child_nodes(node) if getattr(each, "name", "") == part)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    node.body.append(ast.parse("assert True").body[0])
    path.write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")
    return digest(copy, model)


def digest(package: Path, model: str) -> str:
    tree = SourceTree(package, without=identity.WITHOUT, instead=identity.KERNELS)
    return tree.digest_definition(identity.list_roots(spec(model))).digest


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(
        shutil.copytree(PACKAGE, tmp_path / "msbench", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    )


@pytest.mark.parametrize(
    ("model", "place"), [(model, place) for model, places in COUNTED.items() for place in places]
)
def test_an_edit_of_what_decides_a_result_changes_the_id(model: str, place: str, copy: Path) -> None:
    assert digest_with_another(place, copy, model) != digest(PACKAGE, model)


@pytest.mark.parametrize("place", NOT_COUNTED)
def test_an_edit_of_anything_else_changes_no_id(place: str, copy: Path) -> None:
    assert digest_with_another(place, copy, "mamba") == digest(PACKAGE, "mamba")


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
