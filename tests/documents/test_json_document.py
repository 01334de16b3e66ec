"""`docs/json.md`: what the verbs print has the fields that it says, and numbers where it should."""

import json
import re
from pathlib import Path
from typing import Any

from documents import VERBS, options
from typer.testing import CliRunner

from msbench.cli import app
from msbench.console import JSON_VERSION

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", TEXT, re.MULTILINE))
FORMATTED = re.compile(r"\d+(\.\d+)?( ?%| [kMGT]?B| h| min| s)?")


def fields(section: str) -> set[str]:
    """The fields of a section, with the version that all have."""
    cells = re.findall(r"^\| (`.*?) \|", SECTIONS[section], re.MULTILINE)
    return {"schema_version", *(name for cell in cells for name in re.findall(r"`([^`]+)`", cell))}


def call(*words: object, codes: tuple[int, ...] = (0,)) -> Any:
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code in codes, done.stderr
    return json.loads(done.stdout)


def find_formatted(value: Any, key: str = "") -> list[str]:
    """Texts that should be numbers."""
    if isinstance(value, dict):
        return [text for name, each in value.items() for text in find_formatted(each, name)]
    if isinstance(value, list):
        return [text for each in value for text in find_formatted(each, key)]
    digits = (
        isinstance(value, str) and FORMATTED.fullmatch(value) and not re.fullmatch(r"[0-9a-f]{12,}", value)
    )
    return [f"{key}: {value}"] if digits else []


def test_fields_are_those_of_the_page(tiny_file: Path, tmp_path: Path) -> None:
    where = ("--results", tmp_path / "results")
    records = call("run", tiny_file, *where)
    first, second = (record["run_id"] for record in records)
    found = {
        "`list suites`": call("list", "suites"),
        "`list models`": call("list", "models"),
        "`list datasets`": call("list", "datasets"),
        "`list runs`": call("list", "runs", *where),
        "`setup`": call("setup", tiny_file),
        "`run`, `show`": [*records, call("show", first, *where)],
        "`run --dry-run`": call("run", tiny_file, "--dry-run", *where),
        "`explain`": call("explain", tiny_file, *where),
        "`report`": [*call("report", tiny_file, *where), *call("report", "5", *where, codes=(5,))],
        "`baseline`": call("baseline", tiny_file, *where),
        "`check`": call("check", tiny_file, *where, codes=(0, 4, 5)),
        "`check --calibrate`": call("check", tiny_file, "--calibrate", *where),
        "`diff`": call("diff", first, second, *where),
        "`trace`": [call("trace", "ablation", "1 MS-SSM (S6)", "ListOps", *where)],
    }
    for section, document in found.items():
        for each in document if isinstance(document, list) else [document]:
            assert set(each) == fields(section), section
            assert each["schema_version"] == JSON_VERSION
            if section not in ("`run`, `show`", "`setup`", "`baseline`"):  # files, some from other programs
                assert find_formatted(each) == [], section
    assert set(SECTIONS) - set(found) == {"`mixing`", "`bench`", "`doctor`"}
    cell = found["`report`"][-1]["rows"][0]["cells"][0]
    assert isinstance(cell["reported"], float)
    assert (
        found["`list runs`"][0]["test"]
        == {r["run_id"]: r["metrics"]["test_accuracy"] for r in records}[found["`list runs`"][0]["run"]]
    )


def test_the_machine_has_its_numbers() -> None:
    assert isinstance(call("doctor")["environment"]["cores"], int)


def test_every_verb_with_the_option_has_a_section() -> None:
    sections = {word for title in SECTIONS for word in re.findall(r"`([a-z]+)", title)}
    assert sections == {verb for verb in VERBS if "--json" in options(verb)}
