import json
from pathlib import Path

import pytest
from check_runs import SETTLED, msbench, run_all, suite_file

from msbench.config.layers import parse_yaml, validate
from msbench.errors import ExitCode
from msbench.runs.suite_gate import GateSettings

MAMBA, GRIFFIN = SETTLED


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return suite_file(tmp_path)


def test_what_it_prints_can_stand_in_the_suite(path: Path, tmp_path: Path) -> None:
    run_all(tmp_path, path, MAMBA, GRIFFIN)
    before = path.read_bytes()
    done = msbench("check", path, "--calibrate", "--results", tmp_path)
    assert done.exit_code == 0, done.stderr
    assert path.read_bytes() == before
    suggested = done.stdout.split("\n\n", 1)[1]
    gate = validate(GateSettings, parse_yaml(suggested, "suggested").at("gate"))
    layer = gate.of("listops", "mamba")
    assert layer.margin == pytest.approx(0.01)
    assert layer.sd == pytest.approx(0.00227, abs=1e-5)
    assert layer.degrees == 4
    assert "3 against 3 seeds" in str(layer.reason)
    suite_file(tmp_path, suggested)
    assert msbench("check", path, "--calibrate", "--results", tmp_path).exit_code == 0


def test_against_the_paper_only_own_seeds_vary(path: Path, tmp_path: Path) -> None:
    run_all(tmp_path, path, MAMBA, GRIFFIN)
    done = msbench("check", path, "--calibrate", "--against", "paper", "--results", tmp_path, "--json")
    (learned,) = json.loads(done.stdout)
    assert learned["calibration"]["n_expected"] == 0
    assert set(learned["models"]) == {"mamba", "griffin"}


@pytest.mark.parametrize(
    ("mamba", "words"),
    [
        ((0.6,), "at least two seeds of one model are needed"),
        ((0.6, 0.6), "they must differ"),
        ((0.2, 0.9), "not even a margin of 20% passes reliably"),
    ],
)
def test_seeds_that_tell_no_margin(mamba: tuple[float, ...], words: str, path: Path, tmp_path: Path) -> None:
    run_all(tmp_path, path, mamba, ())
    done = msbench("check", path, "--calibrate", "--results", tmp_path)
    assert done.exit_code == 0
    assert words in done.stdout


def test_without_results_there_is_nothing_to_learn(path: Path, tmp_path: Path) -> None:
    done = msbench("check", path, "--calibrate", "--results", tmp_path)
    assert done.exit_code == ExitCode.UNDECIDED


def test_a_misspelt_reference_is_none(path: Path, tmp_path: Path) -> None:
    run_all(tmp_path, path, MAMBA, GRIFFIN)
    done = msbench("check", path, "--calibrate", "--against", "papr", "--results", tmp_path)
    assert done.exit_code == ExitCode.USAGE
    assert "did you mean 'paper'" in done.stderr


def test_it_takes_no_option_of_a_check(path: Path, tmp_path: Path) -> None:
    done = msbench("check", path, "--calibrate", "--strict", "--results", tmp_path)
    assert done.exit_code == ExitCode.USAGE
    assert "--calibrate judges nothing" in done.stderr


def test_the_model_of_fewest_seeds_is_what_a_baseline_bears(path: Path, tmp_path: Path) -> None:
    run_all(tmp_path, path, MAMBA, GRIFFIN[:2])
    done = msbench("check", path, "--calibrate", "--results", tmp_path, "--json")
    (learned,) = json.loads(done.stdout)
    assert learned["calibration"]["n_expected"] == 2
