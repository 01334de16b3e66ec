"""The record of a machine, and the report of doctor."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
import typer

from msbench import environment
from msbench.cli import app
from msbench.cli.measure import describe_machine
from msbench.datasets.download import is_offline
from msbench.environment import (
    choose_accelerator,
    count_cores,
    describe_environment,
    limit_threads,
    measure_free_memory,
    read_git_state,
    read_switch,
    use_threads,
)
from msbench.errors import ConfigError


def test_the_record_is_plain_json_and_names_versions() -> None:
    found = json.loads(json.dumps(describe_environment(), allow_nan=False))
    assert {"python", "platform", "cpu", "threads", "gpus", "packages", "git"} <= set(found)
    assert {"torch", "lightning-fabric", "numpy"} <= set(found["packages"])


def test_the_state_of_the_checkout_is_known_or_absent() -> None:
    state = read_git_state()
    assert state is None or (len(state["commit"]) == 40 and isinstance(state["dirty"], bool))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of somebody's, below which the package lies untracked."""
    run_git(tmp_path, "init", "-q")
    package = tmp_path / "lib" / "msbench"
    package.mkdir(parents=True)
    (package / "environment.py").touch()
    (tmp_path / "notes").touch()
    run_git(tmp_path, "add", "notes")
    run_git(tmp_path, "commit", "-qm", "notes")
    monkeypatch.setattr(environment, "__file__", str(package / "environment.py"))
    return tmp_path


def run_git(folder: Path, *words: str) -> str:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(folder), *names, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=own).stdout.strip()


def test_a_repository_around_the_package_is_not_its_own(repository: Path) -> None:
    assert read_git_state() is None
    run_git(repository, "add", "lib")
    run_git(repository, "commit", "-qm", "package")
    assert read_git_state() == {"commit": run_git(repository, "rev-parse", "HEAD"), "dirty": False}
    (repository / "lib" / "msbench" / "environment.py").write_text("changed")
    assert read_git_state() == {"commit": run_git(repository, "rev-parse", "HEAD"), "dirty": True}


def test_variables_of_git_name_no_other_repository(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_git(repository, "add", "lib")
    run_git(repository, "commit", "-qm", "package")
    expected = read_git_state()
    other = tmp_path_factory.mktemp("other")
    run_git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / "index"))
    assert expected is not None
    assert read_git_state() == expected


def test_doctor_says_which_kernel_runs() -> None:
    found = dict(describe_machine())
    assert found["scan on cpu"]
    assert " thread" in found["cpu"]
    assert found["data"].endswith("free")


@pytest.mark.parametrize(("count", "text"), [(1, ", 1 thread"), (2, ", 2 threads")])
def test_one_thread_is_no_plural(count: int, text: str) -> None:
    with use_threads(count):
        assert dict(describe_machine())["cpu"].endswith(text)


SWITCHES = {
    True: ("1", "true", "True", "yes", "on", " 1 "),
    False: ("", "0", "false", "FALSE", "no", "off"),
}


@pytest.mark.parametrize(("on", "value"), [(on, text) for on, texts in SWITCHES.items() for text in texts])
def test_a_switch_is_read_the_same_way_everywhere(
    on: bool, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSBENCH_OFFLINE", value)
    assert read_switch("MSBENCH_OFFLINE") is is_offline() is on
    monkeypatch.setenv("MSBENCH_DETERMINISTIC", value)
    command = typer.main.get_command(app)
    with command.make_context("msbench", ["run", "quick"]) as outer:
        run = command.commands["run"]  # type: ignore[attr-defined]
        with run.make_context("run", ["quick"], parent=outer) as context:
            assert bool(context.params["deterministic"]) is on


def test_a_switch_that_is_neither_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_OFFLINE", "maybe")
    with pytest.raises(ConfigError, match="MSBENCH_OFFLINE=maybe: is neither on nor off; write 1 or 0"):
        is_offline()
    monkeypatch.delenv("MSBENCH_OFFLINE")
    assert not is_offline()


def test_an_impossible_device_is_refused() -> None:
    assert choose_accelerator("cpu") == "cpu"
    with pytest.raises(ConfigError, match="did you mean 'cuda'"):
        choose_accelerator("cudo")
    if not torch.cuda.is_available():
        assert choose_accelerator("auto") == "cpu"
        with pytest.raises(ConfigError, match="no CUDA device"):
            choose_accelerator("cuda")


def test_free_memory_is_a_plausible_number_of_bytes() -> None:
    assert 2**20 < measure_free_memory("cpu") < 2**50


GIB = 2**30
JOB = "slurm/job_1/step_0"


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty tree of control groups, on a machine with 64 GiB."""
    monkeypatch.setattr(environment, "CGROUPS", tmp_path)
    monkeypatch.setattr(environment, "PROCESS_CGROUPS", tmp_path / "self")
    monkeypatch.setattr(environment, "_read_available_memory", lambda: 64 * GIB)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    return tmp_path


def write_group(folder: Path, **values: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / name.replace("__", ".")).write_text(f"{value}\n", encoding="ascii")


def write_memory_group(folder: Path, version: int, limit: object, used: int, cached: int = 0) -> None:
    if version == 1:
        stat = f"inactive_file 1\ntotal_inactive_file {cached - 5}\ntotal_active_file 5\ntotal_rss 7"
        write_group(folder, memory__limit_in_bytes=limit, memory__usage_in_bytes=used, memory__stat=stat)
    else:
        stat = f"anon 7\ninactive_file {cached - 5}\nactive_file 5"
        write_group(folder, memory__max=limit, memory__current=used, memory__stat=stat)


def enter(groups: Path, version: int, path: str = JOB) -> Path:
    """Put this process into a group; returns the top of its hierarchy."""
    lines = f"4:memory:/{path}\n1:cpu,cpuacct:/{path}\n0::/\n" if version == 1 else f"0::/{path}\n"
    (groups / "self").write_text(lines, encoding="utf-8")
    return groups / "memory" if version == 1 else groups


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_a_group_above_counts(groups: Path, version: int) -> None:
    top = enter(groups, version)
    unlimited = 9223372036854771712 if version == 1 else "max"
    write_memory_group(top / JOB, version, unlimited, GIB)
    assert measure_free_memory("cpu") == 64 * GIB
    write_memory_group(top / "slurm" / "job_1", version, 4 * GIB, GIB)
    assert measure_free_memory("cpu") == 3 * GIB
    write_memory_group(top / "slurm", version, 2 * GIB, GIB)
    assert measure_free_memory("cpu") == GIB


@pytest.mark.parametrize("version", [1, 2])
def test_cached_pages_are_free(groups: Path, version: int) -> None:
    write_memory_group(enter(groups, version) / JOB, version, 4 * GIB, int(3.8 * GIB), int(3.5 * GIB))
    assert measure_free_memory("cpu") == pytest.approx(3.7 * GIB, abs=10)


@pytest.mark.parametrize("version", [1, 2])
def test_a_group_by_its_path_on_the_host_is_the_top_in_a_container(groups: Path, version: int) -> None:
    top = enter(groups, version, "docker/0123")
    write_memory_group(top, version, 4 * GIB, GIB)
    assert measure_free_memory("cpu") == 3 * GIB


@pytest.mark.parametrize("version", [1, 2])
def test_more_used_than_allowed_leaves_nothing(groups: Path, version: int) -> None:
    write_memory_group(enter(groups, version) / JOB, version, GIB, 2 * GIB)
    assert measure_free_memory("cpu") == 0


@pytest.mark.parametrize("text", ["", "nonsense", "0::", "1:memory:/\xff"])
def test_without_groups_the_memory_of_the_machine_counts(groups: Path, text: str) -> None:
    (groups / "self").write_text(text, encoding="latin-1")
    assert (measure_free_memory("cpu"), count_cores()) == (64 * GIB, 64)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("cores", "counted"), [(2, 2), (1.5, 2), (0.5, 1), (128, 64), (None, 64)])
def test_the_time_that_a_group_may_use_limits_cores_and_threads(
    groups: Path, version: int, cores: float | None, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter(groups, version)
    if version == 1:
        quota = -1 if cores is None else int(cores * 100_000)
        write_group(groups / "cpu" / "slurm", cpu__cfs_quota_us=quota, cpu__cfs_period_us=100_000)
    else:
        quota_text = "max" if cores is None else f"{cores * 100_000:.0f}"
        write_group(groups / "slurm", cpu__max=f"{quota_text} 100000")
    assert count_cores() == counted
    for name in environment.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    assert limit_threads() == (None if counted == 64 else counted)
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    assert limit_threads() is None
