"""The reference of every key of a suite, made from the classes that read them.

python tests/suite_keys.py > docs/suite-keys.md
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from msbench.config import DATASETS, MODELS
from msbench.config.base import LARGEST_COUNT, ClassifierConfig
from msbench.config.differences import format_yaml
from msbench.config.run import TrainConfig
from msbench.runs.suite_file import (
    Claim,
    ExpectedFailure,
    GateSettings,
    ModelLayer,
    PaperColumns,
    SuiteFile,
)

INTRODUCTION = """\
# Every key of a suite

Made from the code by `python tests/suite_keys.py > docs/suite-keys.md`. [suites.md](suites.md) explains how
suites are written and where a run's settings come from. `msbench run SUITE --dry-run` checks a file: it reads
every key, builds every model without training it, and reports its faults with file, line and key.
"""
MEANINGS: Mapping[str, str] = {
    "SuiteFile.name": "As the file is named; results are stored under it.",
    "SuiteFile.title": "Heading of its table.",
    "SuiteFile.protocol": "`paper`: its numbers may stand next to the paper's; or `scaled`, `own`.",
    "SuiteFile.caption": "Text under the heading of its table.",
    "SuiteFile.seeds": "Each model is trained on each task from each of them.",
    "SuiteFile.reported": "The paper's table that has the numbers of this suite.",
    "SuiteFile.claims": "Rows of the paper whose order is compared.",
    "SuiteFile.gate": "What `msbench check` expects.",
    "SuiteFile.tasks": "Tasks by name, each with settings of its own or none.",
    "SuiteFile.families": "Settings of all models of a family, by its name.",
    "SuiteFile.models": "The models that are trained, each with settings of its own or none.",
    "SettingsLayer.data": "Settings of the dataset.",
    "SettingsLayer.model": "Settings of the model.",
    "SettingsLayer.train": "Settings of training.",
    "ModelLayer.tasks": "Settings on single tasks, by their names.",
    "GateSettings.tasks": "Settings of the gate for a task, with the keys above.",
    "GateSettings.models": "Settings of the gate for a model, with the keys above.",
    "GateSettings.xfail": "Cells that are known to fail.",
    "GateSettings.margin": "How far below the expected a result may be, as a fraction.",
    "GateSettings.sd": "Spread of seeds that is known from earlier runs, as a fraction.",
    "GateSettings.degrees": "Degrees of freedom of `sd`.",
    "GateSettings.other_data": "Why a result on other data than the expected one's may count.",
    "ModelLayer.settings": "`ours`: not those of the source of its number, which publishes none.",
    "ModelLayer.use": "Place of a model of one's own, such as `./my_model.py:build`.",
    "ModelLayer.only": "The tasks that it is listed for; all if unset.",
    "GateSettings.reason": "Where the margin comes from.",
    "ClassifierConfig.d_model": "Width.",
    "ClassifierConfig.layers": "Number of layers.",
    "ClassifierConfig.norm": "Kind of the norms.",
    "ClassifierConfig.prenorm": "Norms before the blocks, not after them.",
    "ClassifierConfig.dropout": "Chance of dropping a number in training.",
    "ClassifierConfig.pooling": "How the positions of a sequence become one vector.",
    "ClassifierConfig.positions": "Learned vectors added for each position, or none.",
    "TrainConfig.epochs": "Passes over the training split.",
    "TrainConfig.max_steps": "Stop after so many steps.",
    "TrainConfig.batch_size": "Examples of a step.",
    "TrainConfig.lr": "Largest learning rate.",
    "TrainConfig.weight_decay": "Decoupled, as in AdamW.",
    "TrainConfig.beta1": "Of AdamW.",
    "TrainConfig.beta2": "Of AdamW.",
    "TrainConfig.precision": "Of the forward and backward; states and decays are float32 in any case.",
}
"""Meanings of keys that have no docstring of their own, where the name does not say it."""
NAMES = {"integer": "whole number", "number": "number", "boolean": "`true`, `false`", "string": "text"}


def read_docstrings(cls: type[BaseModel]) -> dict[str, str]:
    """The text below each field in the source of a class and of those that it is derived from."""
    found = {}
    for each in reversed(cls.__mro__):
        if each.__module__.startswith("msbench."):
            [tree] = ast.parse(textwrap.dedent(inspect.getsource(each))).body
            assert isinstance(tree, ast.ClassDef)
            for field, text in zip(tree.body, tree.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    assert isinstance(field.target, ast.Name)
                    found[field.target.id] = inspect.cleandoc(ast.literal_eval(text.value))
    return found


def describe_values(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """What a field takes, from its part of a JSON schema."""
    if "anyOf" in schema:
        return ", ".join(dict.fromkeys(describe_values(each, whole) for each in schema["anyOf"]))
    if "$ref" in schema:
        return "mapping"
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items") or next(iter(schema.get("prefixItems", [{}])))
        return f"list of {describe_values(items, whole)}".replace("list of text", "list of texts").replace(
            "of whole number", "of whole numbers"
        )
    if kind in ("null", "object"):
        return {"null": "`null`", "object": "mapping"}[kind]
    bounds = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
    limits = [
        f"{sign} {schema[key]:g}" for key, sign in bounds if abs(schema.get(key, LARGEST_COUNT)) < 2**31
    ]
    return " ".join([NAMES.get(str(kind), "any value"), " and ".join(limits)]).strip()


def list_fields(cls: type[BaseModel], without: Iterable[str] = ()) -> Iterator[str]:
    """The rows of a table: key, values, default, meaning."""
    whole, texts = cls.model_json_schema(), read_docstrings(cls)
    for name, field in cls.model_fields.items():
        if name in without:
            continue
        value = field.get_default(call_default_factory=True) if not field.is_required() else None
        plain = list(value) if isinstance(value, tuple) else value
        shown = (
            "required"
            if field.is_required()
            else f"`{str(plain).lower() if plain is None or isinstance(plain, bool) else plain}`"
        )
        shown = shown.replace("`none`", "`null`").replace("``", "empty")
        meaning = texts.get(name, "").replace("None", "`null`") or next(
            (
                MEANINGS[f"{each.__name__}.{name}"]
                for each in cls.__mro__
                if f"{each.__name__}.{name}" in MEANINGS
            ),
            "",
        )
        cells = (f"`{name}`", describe_values(whole["properties"][name], whole), shown, meaning)
        yield (
            "| "
            + " | ".join(re.sub(r"\s+", " ", cell.replace("``", "`").replace("|", "\\|")) for cell in cells)
            + " |"
        )


def write_section(
    title: str, cls: type[BaseModel], text: str = "", without: Iterable[str] = ()
) -> Iterator[str]:
    """A heading, what the class says of all of its keys, and their table."""
    said = inspect.cleandoc(text or cls.__doc__ or "").replace("``", "`")
    yield from ("", title, "", re.sub(r"(?<=\S)\n *(?=[^\n -])", " ", said), "")
    rows = list(list_fields(cls, without))
    if rows:
        yield from ("| key | values | default | meaning |", "|---|---|---|---|", *rows)
    else:
        yield "It has no key of its own."


def make_page() -> str:
    """The whole page."""
    lines = [INTRODUCTION.rstrip()]
    lines += write_section("## The file", SuiteFile)
    lines += write_section(
        "## `models` and `families`: an entry", ModelLayer, without=("data", "model", "train")
    )
    lines += write_section("## `reported`", PaperColumns)
    lines += write_section("## `claims`: an entry", Claim)
    lines += write_section("## `gate`", GateSettings)
    lines += write_section("### `gate.xfail`: an entry", ExpectedFailure)
    lines += write_section("## `train`", TrainConfig)
    for name, cls in DATASETS.items():
        lines += write_section(f"## `data` of `{name}`", cls)
    lines += write_section("## `model`: keys of every model", ClassifierConfig)
    own: dict[type[BaseModel], list[str]] = {}
    for name, entry in MODELS.items():
        fixed = ", ".join(f"{key}: {format_yaml(value)}" for key, value in entry.preset.items())
        own.setdefault(entry.config, []).append(f"`{name}`" + (f" ({fixed})" if fixed else ""))
    for config, names in own.items():
        title = ", ".join(each.partition(" ")[0] for each in names)
        named = [each for each in names if " (" in each]
        text = inspect.cleandoc(config.__doc__ or "")
        text += f"\n\nFixed by the name: {'; '.join(named)}." if named else ""
        lines += write_section(f"## `model` of {title}", config, text, ClassifierConfig.model_fields)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


if __name__ == "__main__":
    print(make_page(), end="")
