"""``run --container``: what an engine is asked for, by engines that only write down what they are given."""

import csv
import hashlib
import itertools
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from msbench import environment
from msbench.cli import app
from msbench.errors import ConfigError, ExitCode
from msbench.runs.launchers import container
from msbench.runs.launchers.container import ContainerCommand, Image, Mount
from msbench.runs.setup import setup_fetched_data
from msbench.runs.suite import load_suite, resolve_specs

ID = "0123456789abcdef" * 4
FAKE = """\
#!{python}
import json, os, signal, sys, time
if sys.argv[1:3] == ["image", "inspect"]:
    if {answer!r} is None:
        sys.exit("Error: no such image: " + sys.argv[-1])
    print({answer!r})
else:
    if {asleep!r}:
        signal.signal(signal.SIGUSR1, lambda *_: sys.exit(143))
        os.kill(os.getppid(), signal.SIGUSR1)
        time.sleep(60)
    kept = {{name: value for name, value in os.environ.items() if "MSBENCH_" in name}}
    with open({log!r}, "w", encoding="utf-8") as stream:
        json.dump([sys.argv, kept], stream)
    sys.exit(3)
"""


class Engines:
    """Programs called docker, podman and apptainer, first on PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = folder / "log.json"
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.answer(json.dumps([{"Id": f"sha256:{ID}"}]))
        monkeypatch.setenv("PATH", str(self.folder), prepend=os.pathsep)

    def answer(self, text: str | None, *, asleep: bool = False) -> None:
        """What they say of any image; `asleep` run until a signal, which they bring about."""
        script = FAKE.format(python=sys.executable, answer=text, log=str(self.log), asleep=asleep)
        for name in container.ENGINES:
            file = self.folder / name
            file.write_text(script, encoding="utf-8")
            file.chmod(stat.S_IRWXU)

    @property
    def words(self) -> list[str]:
        """What the engine was started with."""
        return [str(word) for word in self._logged[0][1:]]

    @property
    def variables(self) -> dict[str, str]:
        """What of msbench's environment it had."""
        return dict(self._logged[1])

    @property
    def _logged(self) -> Any:
        return json.loads(self.log.read_text(encoding="utf-8"))


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engines:
    return Engines(tmp_path, monkeypatch)


@dataclass
class Done:
    returncode: int
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """``msbench run`` in a folder."""

    def called(*words: str, cwd: Path) -> Done:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["msbench", "run", *words])
        result = CliRunner().invoke(app, sys.argv[1:])
        return Done(result.exit_code, result.stderr)

    return called


def values(words: list[str], option: str) -> list[str]:
    return [value for word, value in itertools.pairwise(words) if word == option]


def mounts(words: list[str]) -> dict[str, tuple[str, bool]]:
    """By target: what is there, and whether it can be written."""
    lines = list(csv.reader(values(words, "--mount")))
    fields = [dict(part.partition("=")[::2] for part in line) for line in lines]
    return {each["destination"]: (each["source"], "ro" not in each) for each in fields}


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_the_same_command_runs_inside(
    engine: str, run: Run, engines: Engines, tiny_file: Path, data_folder: Path
) -> None:
    here = tiny_file.parent
    typed = ["tiny.yaml", "--model", "mamba", "--set", "train.lr=1e-3", "--results", "kept/runs", "--quiet"]
    done = run(*typed[:3], "--container", engine, *typed[3:], "--image=mine:1", cwd=here)
    assert done.returncode == 3, done.stderr  # the engine's exit code, whatever it is
    words = engines.words
    assert words[words.index(f"sha256:{ID}") + 1 :] == ["run", *typed]
    assert mounts(words) == {
        "/work/tiny.yaml": (str(tiny_file), False),
        "/work/kept/runs": (str(here / "kept" / "runs"), True),
        "/data": (str(data_folder), True),
    }
    assert (here / "kept" / "runs").is_dir()
    assert values(words, "--user") == [f"{os.getuid()}:{os.getgid()}"]
    assert values(words, "--network") == ["none"]
    assert values(words, "--workdir") == ["/work"]
    assert values(words, "--cap-drop") == ["all"]
    assert {"--rm", "--read-only"} <= set(words)
    assert "--tty" not in words
    assert engines.variables["MSBENCH_DATA"] == "/data"
    assert engines.variables["MSBENCH_CONTAINER"] == engine
    assert engines.variables["MSBENCH_IMAGE"] == "mine:1"
    assert engines.variables["MSBENCH_IMAGE_DIGEST"] == f"sha256:{ID}"
    assert set(engines.variables) <= set(values(words, "--env"))


def test_apptainer_runs_the_file_that_was_hashed(run: Run, engines: Engines, tiny_file: Path) -> None:
    image = tiny_file.with_name("msbench-cpu.sif")
    image.write_bytes(b"an image")
    done = run("tiny.yaml", "--container", "apptainer", "--device", "cpu", cwd=tiny_file.parent)
    assert done.returncode == 3, done.stderr
    words = engines.words
    assert words[0] == "exec"
    assert words[-6:] == [str(image), "msbench", "run", "tiny.yaml", "--device", "cpu"]
    assert "--containall" in words
    assert "--nv" not in words
    assert values(words, "--network") == ["none"]
    assert set(mounts(words)) == {"/work/tiny.yaml", "/work/results", "/data"}
    digest = f"sha256:{hashlib.sha256(b'an image').hexdigest()}"
    assert engines.variables["APPTAINERENV_MSBENCH_IMAGE_DIGEST"] == digest
    assert engines.variables["APPTAINERENV_MSBENCH_DATA"] == "/data"


def test_a_dry_run_makes_no_folder(run: Run, engines: Engines, tiny_file: Path) -> None:
    run("tiny.yaml", "--container", "docker", "--dry-run", cwd=tiny_file.parent)
    assert engines.words[-3:] == ["run", "tiny.yaml", "--dry-run"]
    assert "/work/results" not in mounts(engines.words)
    assert not (tiny_file.parent / "results").exists()


def test_a_suite_by_name_is_the_one_of_here(run: Run, engines: Engines, tiny_file: Path) -> None:
    folder = tiny_file.parent / "suites"
    folder.mkdir()
    tiny_file.rename(folder / "tiny.yaml")
    run("tiny", "--container", "docker", "--dry-run", cwd=tiny_file.parent)
    assert mounts(engines.words)["/work/suites/tiny.yaml"] == (str(folder / "tiny.yaml"), False)


def test_a_suite_among_the_results_is_mounted_above_them(run: Run, engines: Engines, tiny_file: Path) -> None:
    folder = tiny_file.parent / "results" / ".slurm" / "msbench-tiny-1"
    folder.mkdir(parents=True)
    tiny_file.rename(folder / "suite.yaml")
    run(str(folder / "suite.yaml"), "--container", "apptainer", "--image", __file__, cwd=tiny_file.parent)
    assert list(mounts(engines.words).items())[-1] == (
        str(folder / "suite.yaml"),
        (str(folder / "suite.yaml"), False),
    )


def test_names_reach_the_engine_and_no_shell(run: Run, engines: Engines, tiny_file: Path) -> None:
    hostile = """r $(touch owned);`touch owned`,ro,"x"\\ü"""
    run("tiny.yaml", "--container", "docker", "--results", hostile, cwd=tiny_file.parent)
    found = mounts(engines.words)
    assert found[f"/work/{hostile}"] == (str(tiny_file.parent / hostile), True)
    assert not list(tiny_file.parent.rglob("owned"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--container", "dokcer"], "did you mean 'docker'"),
        (["--image", "x"], "--image goes with --container"),
        (["--container", "apptainer", "--image", "none.sif"], "--image none.sif: there is no such file"),
        (["--container", "docker", "--set", "train.lrr=1"], "train.lr"),
    ],
)
def test_invalid_options_start_no_engine(
    words: list[str], message: str, run: Run, engines: Engines, tiny_file: Path
) -> None:
    done = run("tiny.yaml", *words, cwd=tiny_file.parent)
    assert done.returncode == ExitCode.USAGE
    assert message in done.stderr
    assert not engines.log.exists()


@pytest.mark.parametrize("answer", [None, "", "[]", '[{"Id": "latest"}]', "{}"])
def test_an_image_that_is_not_there_or_not_known_is_refused(
    answer: str | None, run: Run, engines: Engines, tiny_file: Path
) -> None:
    engines.answer(answer)
    done = run("tiny.yaml", "--container", "podman", "--image", "mine:1", cwd=tiny_file.parent)
    assert done.returncode == ExitCode.USAGE
    assert "--image mine:1: podman" in done.stderr
    assert not engines.log.exists()


def test_an_engine_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no program docker here"):
        container.find_image("docker", "msbench:cpu")


def test_a_gpu_is_asked_for_where_a_driver_is_loaded(tmp_path: Path) -> None:
    driver = tmp_path / "nvidiactl"
    assert not container.wants_gpu("auto", driver)
    with pytest.raises(ConfigError, match=r"--device cuda: no NVIDIA driver is loaded here .*nvidiactl"):
        container.wants_gpu("cuda", driver)
    driver.touch()
    assert [container.wants_gpu(device, driver) for device in ("auto", "cuda", "cpu")] == [True, True, False]
    assert container.name_default_image("docker", gpu=True) == "msbench:cuda"
    assert container.name_default_image("apptainer", gpu=False) == "msbench-cpu.sif"


@pytest.mark.parametrize(
    ("engine", "asked"),
    [
        ("docker", ["--gpus", "all"]),
        ("podman", ["--device", "nvidia.com/gpu=all"]),
        ("apptainer", ["--nv"]),
    ],
)
def test_each_engine_is_asked_for_gpus_in_its_words(engine: str, asked: list[str]) -> None:
    inside = ContainerCommand(
        Image(engine, "image", f"sha256:{ID}"), ["run", "x"], [], {}, user=(12345, 12345)
    )
    with_gpu = replace(inside, gpu=True).command
    start = with_gpu.index(asked[0])
    assert with_gpu[start : start + len(asked)] == asked
    assert with_gpu[:start] + with_gpu[start + len(asked) :] == inside.command
    assert ("keep-id" in with_gpu) == (engine == "podman")


def test_a_terminal_is_handed_on() -> None:
    inside = ContainerCommand(
        Image("docker", "image", f"sha256:{ID}"), ["run"], [], {}, user=(1, 1), terminal=True
    )
    assert {"--interactive", "--tty"} <= set(inside.command)


def test_paths_inside_are_those_typed() -> None:
    assert container.resolve_inside("results") == "/work/results"
    assert container.resolve_inside("../runs") == "/runs"
    assert container.resolve_inside("/scratch/me/") == "/scratch/me"


def test_the_users_own_variables_are_passed_on_and_no_others() -> None:
    given = {"MSBENCH_SCAN": "torch", "MSBENCH_DATA": "/home/me", "OMP_NUM_THREADS": "2", "SECRET": "x"}
    given |= {"NCCL_P2P_DISABLE": "1"}
    found = container.select_variables(given, Image("docker", "mine:1", "sha256:1"))
    assert found["MSBENCH_SCAN"] == "torch"
    assert found["OMP_NUM_THREADS"] == "2"
    assert found["NCCL_P2P_DISABLE"] == "1"
    assert found["MSBENCH_DATA"] == "/data"
    assert "SECRET" not in found
    assert not any(
        "=" in word for word in ContainerCommand(Image("docker", "", ""), [], [], found, (1, 1)).command[20:]
    )


def test_the_record_has_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment.CONTAINER.values():
        monkeypatch.delenv(name, raising=False)
    assert environment.describe_container() is None
    monkeypatch.setenv("MSBENCH_IMAGE_REVISION", "abc")
    assert environment.describe_container() == {"revision": "abc"}
    for name, value in container.select_variables({}, Image("docker", "mine:1", f"sha256:{ID}")).items():
        monkeypatch.setenv(name, value)
    found = environment.describe_container()
    assert found == {"engine": "docker", "image": "mine:1", "digest": f"sha256:{ID}", "revision": "abc"}


def test_a_mount_of_a_comma_stays_one_field() -> None:
    _, line = Mount(Path('/a,b"c'), "/data").words
    assert next(csv.reader([line])) == ["type=bind", 'source=/a,b"c', "destination=/data"]


def test_data_that_must_be_fetched_are_set_up_before(
    monkeypatch: pytest.MonkeyPatch, tiny_file: Path
) -> None:
    monkeypatch.setenv("MSBENCH_OFFLINE", "1")
    assert (
        setup_fetched_data(resolve_specs(load_suite(tiny_file)), quiet=True) == ExitCode.OK
    )  # generated inside
    assert not (Path(os.environ["MSBENCH_DATA"]) / "cifar10").exists()
    path = tiny_file.with_name("image.yaml")
    path.write_text(
        tiny_file.read_text(encoding="utf-8")
        .replace("name: tiny", "name: image")
        .replace(
            "data: {dataset: listops, train: 60, validation: 20, test: 20, min_length: 3, max_length: 20,", ""
        )
        .replace("           max_depth: 4, max_args: 3}", "    data: {dataset: cifar10}"),
        encoding="utf-8",
    )
    assert setup_fetched_data(resolve_specs(load_suite(path)), quiet=True) == ExitCode.DATA


def test_help_names_the_engines() -> None:
    text = CliRunner().invoke(app, ["run", "--help"]).output
    assert all(engine in text for engine in container.ENGINES)


def test_the_plain_command_starts_the_engine_and_ends_as_it_does(engines: Engines, tiny_file: Path) -> None:
    command = [sys.executable, "-m", "msbench", "run", "tiny.yaml", "--container", "docker", "--dry-run"]
    # The package of this checkout, wherever the command is given.
    known = {**os.environ, "PYTHONPATH": str(Path(container.__file__).parents[3])}
    done = subprocess.run(
        command, cwd=tiny_file.parent, env=known, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr  # the engine's exit code, whatever it is
    assert done.stderr.startswith("msbench: planning tiny.yaml\n")
    assert "\nmsbench: docker run --rm --read-only" in done.stderr
    assert engines.words[-3:] == ["run", "tiny.yaml", "--dry-run"]


def test_a_signal_reaches_the_command_inside(run: Run, engines: Engines, tiny_file: Path) -> None:
    engines.answer(json.dumps([{"Id": f"sha256:{ID}"}]), asleep=True)
    done = run("tiny.yaml", "--container", "docker", cwd=tiny_file.parent)
    assert done.returncode == 143, done.stderr


def test_an_engine_that_a_signal_ends_says_which(engines: Engines) -> None:
    (engines.folder / "docker").write_text("#!/bin/sh\nkill -TERM $$\n", encoding="utf-8")
    inside = ContainerCommand(Image("docker", "mine:1", f"sha256:{ID}"), (), (), {}, (1, 1))
    assert container.run_command(inside) == 143


def test_an_image_needs_an_engine_for_jobs_too(tiny_file: Path) -> None:
    words = ["run", str(tiny_file), "--launcher", "slurm", "--image", "mine:1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == ExitCode.USAGE
    assert "--image goes with --container" in done.stderr


@pytest.mark.parametrize(
    ("engine", "said", "message"),
    [
        ("docker", "Error response from daemon: No such image: x:1", "--image x:1: docker has no such image"),
        ("docker", "Error: No such image: x:1", "--image x:1: docker has no such image"),
        ("podman", "Error: x:1: image not known", "--image x:1: podman has no such image"),
        (
            "docker",
            "Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?",
            "--container docker: docker does not answer: Cannot connect to the Docker daemon",
        ),
        (
            "docker",
            "permission denied while trying to connect to the Docker daemon socket",
            "--container docker: docker does not answer: permission denied",
        ),
        ("podman", "", "--container podman: podman does not answer: it did not say why"),
    ],
)
def test_an_engine_that_does_not_answer_is_no_missing_image(
    engine: str, said: str, message: str, run: Run, engines: Engines, tiny_file: Path
) -> None:
    (engines.folder / engine).write_text(f"#!{sys.executable}\nimport sys; sys.exit({said!r} or 1)\n")
    done = run("tiny.yaml", "--container", engine, "--image", "x:1", cwd=tiny_file.parent)
    assert done.returncode == ExitCode.USAGE
    assert message in done.stderr
