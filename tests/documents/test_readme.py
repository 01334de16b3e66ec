"""`README.md`: the commands that it shows can be given, and its tables are what the code has."""

import re
from pathlib import Path

import pytest
from documents import VERBS, options, rows

from msbench import datasets as data
from msbench.cli.listings import KINDS
from msbench.config import DATASETS, MODELS
from msbench.datasets.archive_dataset import ArchiveDataset
from msbench.errors import ExitCode
from msbench.runs.suite import list_suites, resolve_specs

REPOSITORY = Path(__file__).resolve().parents[2]
TEXT = (REPOSITORY / "README.md").read_text(encoding="utf-8")
FLAT = re.sub(r"\s+", " ", TEXT)
SUITES = {suite.name: suite for suite in list_suites(REPOSITORY / "suites")}
COMMANDS = sorted(set(re.findall(r"(?:`|\$ )msbench ([a-z][^`$]*?)(?=`| \$| ```)", FLAT)))
KNOWN = {
    "list": KINDS,
    "setup": (*DATASETS, *SUITES, "NAME"),
    "bench": ("scan", "step", "data"),
    "report": (*SUITES, "paper", *map(str, range(1, 8))),
    **dict.fromkeys(("run", "explain", "check", "baseline", "mixing"), tuple(SUITES)),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_given(command: str) -> None:
    verb, *words = command.split()
    assert {word for word in words if word.startswith("--")} <= options(verb)
    if words and not words[0].startswith("--") and verb in KNOWN:
        assert words[0] in KNOWN[verb]


def test_commands_are_found() -> None:
    assert {command.split()[0] for command in COMMANDS} == set(VERBS)


def test_models_are_counted() -> None:
    assert re.findall(r"\| (\d+) models:", TEXT) == [str(len(MODELS))]


def test_systems_of_the_paper_are_counted_as_their_document_counts_them() -> None:
    text = (REPOSITORY / "docs" / "models.md").read_text(encoding="utf-8")
    said = re.findall(r"those of all (\d+) systems in the paper's tables", FLAT)
    assert said == re.findall(r"name (\d+) systems", text)


def test_every_dataset_has_its_row() -> None:
    assert [row[0] for row in rows(TEXT, "dataset")] == [f"`{name}`" for name in DATASETS]


@pytest.mark.parametrize("row", rows(TEXT, "dataset"), ids=lambda row: row[0].strip("`"))
def test_suites_of_a_dataset_are_those_that_plan_it(row: list[str]) -> None:
    name = row[0].strip("`")
    using = {
        key
        for key, suite in SUITES.items()
        if any(spec.data.dataset == name for spec in resolve_specs(suite))
    }
    assert set(re.findall(r"`([a-z-]+)`", row[1])) == using


@pytest.mark.parametrize("row", rows(TEXT, "dataset"), ids=lambda row: row[0].strip("`"))
def test_source_of_a_dataset_matches_its_class(row: list[str]) -> None:
    name = row[0].strip("`")
    source = DATASETS[name].model_fields.get("source")
    module = data.DATASETS[name]
    if source is not None:
        assert source.default == "generated"
        assert row[2] == "generated; or imported, as published"
    else:
        assert isinstance(module, ArchiveDataset)
        generated = module.is_generated(DATASETS[name](dataset=name))
        assert row[2].split(",")[0] == (
            "generated" if generated else "downloaded" if module.remotes else "imported"
        )


def test_exit_codes_are_those_of_the_program() -> None:
    listed = [code for row in rows(TEXT, "code") for code in re.findall(r"\d+", row[0])]
    assert listed == [str(code.value) for code in ExitCode]


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\((?!http)([^)#]+)\)", TEXT))))
def test_what_is_linked_is_there(path: str) -> None:
    assert (REPOSITORY / path).exists()


def test_nobody_is_told_to_install_a_package_of_the_index() -> None:
    """The name msbench on the index is not ours."""
    paths = [
        path
        for kind in ("*.md", "*.py")
        for folder in ("docs", "msbench", "containers")
        for path in (REPOSITORY / folder).rglob(kind)
    ]
    named = re.compile(r"(pip|uv|pipx) [a-z ]*install(?: -\S+)* ['\"]?msbench\b")
    assert [
        str(path) for path in (REPOSITORY / "README.md", *paths) if named.search(path.read_text("utf-8"))
    ] == []
