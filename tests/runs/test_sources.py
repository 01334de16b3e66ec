"""The source digest follows imports, and only those that decide a result."""

from msbench import models
from msbench.config import MODELS
from msbench.runs import sources


def files(model: str) -> dict[str, str]:
    return sources.source_files(("msbench.training.loop", MODELS[model].module))


def test_what_decides_a_result_is_in_and_the_rest_is_out() -> None:
    found = files("mamba")
    for name in (
        "training/loop.py",
        "training/optimizer.py",
        "models/mamba.py",
        "models/classifier.py",
        "ops/scan/dispatch.py",
        "datasets/dataset.py",
        "training/evaluate.py",
        "ops/native/scan.cpp",
        "ops/native/backward.inl",
    ):
        assert name in found
    for name in (
        "cli/app.py",
        "results/store.py",
        "results/safe_reads.py",
        "errors.py",
        "datasets/listops/dataset.py",
    ):
        assert name not in found


def test_a_models_entry_names_the_module_that_builds_it() -> None:
    assert {name: entry.module for name, entry in MODELS.items()} == {
        name: models.find_family(name).build.__module__ for name in MODELS
    }


def test_another_family_is_not_part_of_a_models_source() -> None:
    assert not {"models/ms_ssm.py", "models/streams.py"} & set(files("mamba"))
    assert "models/ms_ssm.py" in files("msssm-s6")


def test_the_digest_depends_on_names_and_contents() -> None:
    one = sources.source_digest({"a.py": "1", "b.py": "2"})
    assert one != sources.source_digest({"a.py": "1", "b.py": "3"})
    assert one != sources.source_digest({"a.py": "1", "c.py": "2"})
