"""Completion in the shell: what the tab key offers, through the program that the shell calls."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from least_record import LEAST
from typer.testing import CliRunner

from msbench.cli import app

HEAVY = ("torch", "pandas", "numpy", "rich.table", "lightning_fabric", "msbench.config")


def complete(line: str, folder: Path) -> list[str]:
    """What bash would offer for a line whose last word is not complete, in a folder."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_MSBENCH_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    code = (
        "import sys; sys.argv[0] = 'msbench'\n"
        "from msbench.cli import app\n"
        "try:\n    app(prog_name='msbench')\n"
        f"finally:\n    print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    assert done.stderr.strip() == "[]", "nothing heavy is imported"
    return done.stdout.split()


def test_names_of_suites_are_offered(tmp_path: Path, tiny_file: Path) -> None:
    (tmp_path / "suites").mkdir()
    tiny_file.rename(tmp_path / "suites" / "query.yaml")
    assert complete("msbench run qu", tmp_path) == ["query", "quick"]
    assert "paper" in complete("msbench report ", tmp_path)


def test_models_and_tasks_of_the_suite_are_offered(tmp_path: Path, tiny_file: Path) -> None:
    assert complete("msbench run quick --model m", tmp_path) == ["mamba", "msssm-s6"]
    assert complete("msbench run quick --model mamba,m", tmp_path) == ["mamba,msssm-s6"]
    assert complete(f"msbench explain {tiny_file} --task ", tmp_path) == ["listops-tiny"]
    assert complete("msbench mixing quick --model ms", tmp_path) == ["msssm-s6"]
    (tmp_path / "broken.yaml").write_text("models: [", encoding="utf-8")
    assert complete("msbench run broken.yaml --model ", tmp_path) == []
    assert complete("msbench run nowhere --model ", tmp_path) == []


def test_ids_of_runs_are_offered(tmp_path: Path) -> None:
    run_id = str(LEAST["run_id"])
    (tmp_path / "results" / "quick" / "listops-short" / "mamba" / run_id).mkdir(parents=True)
    (tmp_path / "results" / "quick" / "listops-short" / "mamba" / f"{run_id}.old-1").mkdir()
    assert complete(f"msbench show {run_id[:3]}", tmp_path) == [run_id]
    assert complete("msbench show x", tmp_path) == []


@pytest.mark.parametrize("option", ["--install-completion", "--show-completion"])
def test_the_options_of_typer_are_there(option: str) -> None:
    assert option in CliRunner().invoke(app, ["--help"]).stdout
