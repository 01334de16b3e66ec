"""`docs/gate.md`, `docs/ci.md` and the workflows: commands can be given, tables are what the code has."""

import re
from pathlib import Path
from typing import Any

import pytest
from documents import options, rows

from msbench.config.layers import load_yaml, parse_yaml, validate
from msbench.errors import ExitCode
from msbench.gate.calibration import RELIABLY, STEP
from msbench.gate.verdicts import MEANINGS, PRECEDENCE
from msbench.runs.suite import list_suites
from msbench.runs.suite_file import DEFAULT_MARGIN, WIDEST_MARGIN, GateSettings

REPOSITORY = Path(__file__).resolve().parents[2]
GATE, CI = ((REPOSITORY / "docs" / name).read_text(encoding="utf-8") for name in ("gate.md", "ci.md"))
WORKFLOW, TESTS = (
    load_yaml(REPOSITORY / ".github" / "workflows" / name).values for name in ("gate.yml", "tests.yml")
)
JOBS: list[dict[str, Any]] = [*WORKFLOW["jobs"].values(), *TESTS["jobs"].values()]
STEPS: list[dict[str, Any]] = WORKFLOW["jobs"]["quick"]["steps"]
RUN = [step["run"] for step in STEPS if "run" in step]
SUITES = {suite.name for suite in list_suites(REPOSITORY / "suites")}
FLAT = re.sub(r"\s+", " ", GATE + CI)
SHOWN = re.findall(r"(?:`|\$ |\")msbench ([a-z][^`$\"|]*?)(?=`|\"| \$| ```| \|| suite )", FLAT)
COMMANDS = sorted({*SHOWN, *(line.removeprefix("msbench ") for line in RUN if line.startswith("msbench "))})


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_given(command: str) -> None:
    verb, *words = command.split()
    assert {word for word in words if word.startswith("--")} <= options(verb)
    if words and not words[0].startswith("--"):
        assert words[0] in SUITES


def test_commands_are_found() -> None:
    assert {command.split()[0] for command in COMMANDS} == {"run", "check", "baseline", "report"}


def test_verdicts_are_those_of_the_code() -> None:
    table = {cells[0].strip("`"): cells[2:] for cells in rows(GATE, "verdict")}
    assert table == {verdict: [str(int(code)), outcome] for verdict, (outcome, code) in MEANINGS.items()}


def test_exit_codes_are_those_of_the_code() -> None:
    table = {int(cells[0]): set(re.findall(r"`([a-z-]+)`", cells[1])) for cells in rows(CI, "code")}
    verdicts: dict[int, set[str]] = {}
    for verdict, (_, code) in MEANINGS.items():
        verdicts.setdefault(code, set()).add(verdict)
    assert table == {ExitCode.USAGE: set(), ExitCode.RUN_FAILED: set(), **verdicts}
    assert ", ".join(map(str, map(int, PRECEDENCE))).replace(", 3", ", then 3") in CI


def test_the_key_of_a_suite_is_one() -> None:
    (block,) = re.findall(r"```yaml\n(gate:.*?)```", GATE, re.DOTALL)
    gate = validate(
        GateSettings, parse_yaml(block.replace("https://...", "https://a.b"), "gate.md").at("gate")
    )
    assert gate.for_cell("image", "mamba").margin == 0.01
    assert gate.for_cell("image", "griffin").margin == 0.02


def test_figures_are_those_of_the_code() -> None:
    assert (DEFAULT_MARGIN, WIDEST_MARGIN, STEP, RELIABLY) == (0.01, 0.2, 0.005, 0.95)
    for words in ("the margin is one point", "at most 0.2", "rounded up to half a point", "19 times in 20"):
        assert words in re.sub(r"\s+", " ", GATE)


class TestWorkflows:
    def test_actions_are_pinned_and_leave_no_credentials(self) -> None:
        uses = [step for job in JOBS for step in job["steps"] if "uses" in step]
        assert len(uses) == 9
        assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"]) for step in uses)
        checkouts = [step for step in uses if "checkout@" in step["uses"]]
        assert [step["with"] for step in checkouts] == [{"persist-credentials": False}] * 3

    def test_what_tells_of_a_failure_runs_after_one(self) -> None:
        after = [step for step in STEPS if step.get("if") == "always()"]
        assert ["check" in step.get("run", "") for step in after] == [True, False, False]
        assert after[-1]["uses"].startswith("actions/upload-artifact")
        assert {"gate.xml", "reports/"} <= set(after[-1]["with"]["path"].split())

    def test_data_and_runs_are_kept_where_they_are_looked_for(self) -> None:
        data, runs = [step["with"] for step in STEPS if "cache@" in step.get("uses", "")]
        assert WORKFLOW["jobs"]["quick"]["env"]["MSBENCH_DATA"].endswith(f"/{data['path']}")
        globs = re.findall(r"'([^']+)'", data["key"])
        assert len(globs) == 2
        assert all(list(REPOSITORY.glob(each)) for each in globs)
        assert runs["path"] == "results/quick"
        assert runs["key"].startswith(runs["restore-keys"])

    def test_they_may_only_read(self) -> None:
        assert WORKFLOW["permissions"] == TESTS["permissions"] == {}
        assert all(job["permissions"] == {"contents": "read"} for job in JOBS)

    def test_every_python_is_tested(self) -> None:
        text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
        named = re.findall(r"Python :: (3\.\d+)", text)
        assert TESTS["jobs"]["test"]["strategy"]["matrix"]["python"] == named

    def test_targets_of_make_exist(self) -> None:
        targets = re.findall(
            r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
        )
        run = [step["run"] for job in TESTS["jobs"].values() for step in job["steps"] if "run" in step]
        assert {each.removeprefix("make ") for each in run} == {"lint", "test"} <= set(targets)
