"""`docs/determinism.md`: what it names is there, and its output is that of all models."""

import re
from pathlib import Path

from documents import VERBS, options

from msbench.analysis.determinism import DeterminismProblem
from msbench.config import MODELS
from msbench.environment import DETERMINISTIC, WORKSPACE, WORKSPACES
from msbench.models import NO_FIXED_ORDER

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "determinism.md").read_text(encoding="utf-8")
FLAT = re.sub(r"\s+", " ", TEXT)


def test_commands_can_be_given() -> None:
    for verb, words in re.findall(r"(?:`|\$ )msbench ([a-z]+)([^`\n]*)", TEXT):
        assert verb in VERBS
        assert set(re.findall(r"--[a-z]+", words)) <= options(verb)


def test_what_is_set_and_refused_is_named() -> None:
    assert all(name in TEXT for name in (DETERMINISTIC, WORKSPACE, *WORKSPACES))
    assert all(f"--scan {kernel}" in TEXT for kernel in NO_FIXED_ORDER)


def test_sizes_are_those_of_the_command() -> None:
    problem = DeterminismProblem()
    assert f"for {problem.steps} steps" in FLAT
    assert f"step {problem.stop} and a resume" in FLAT
    assert f"the CPU {problem.threads_steps} steps" in FLAT


def test_the_output_has_every_model() -> None:
    (output,) = re.findall(r"```console\n\$ msbench doctor --determinism\n(.*?)```", TEXT, re.DOTALL)
    assert re.findall(r"^(\S+)  ", output, re.MULTILINE)[1:] == list(MODELS)
