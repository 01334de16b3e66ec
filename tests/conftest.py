"""Fixtures that many tests share: one small suite, one data folder a session, one thread a worker.

With ``OMP_NUM_THREADS`` a worker has as many threads as that: the tests hold with any number.
"""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from filelock import FileLock

from msbench.errors import CAUGHT
from msbench.runs.suite import Suite, load_suite
from msbench.training.signals import is_ignored

if TYPE_CHECKING:
    from campaign_home import Home
    from null_gpu import NullGpu

# Whoever starts the tests may have signals ignored (nohup, a job in the background); the tests send them.
for _number in filter(is_ignored, CAUGHT):
    signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)
# The children that command-line tests start inherit these too.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
# Without a GPU the Triton kernels are interpreted: decided when they are imported, so this comes first.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

Sample = Callable[..., Path]
SAMPLES = Path(os.environ.get("MSBENCH_TEST_DATA", Path(__file__).parents[2] / "shared" / "data"))

TINY_SUITE = """\
name: tiny
title: Tiny ListOps
protocol: scaled
caption: For tests.
seeds: [0]
tasks:
  listops-tiny:
    data: {dataset: listops, train: 60, validation: 20, test: 20, min_length: 3, max_length: 20,
           max_depth: 4, max_args: 3}
model: {d_model: 8, layers: 1, dropout: 0.1}
families:
  ms-ssm: {model: {state: 5}}
  mamba: {model: {state: 5}}
train: {epochs: 3, batch_size: 8, lr: 1e-2, warmup_epochs: 0.5}
models:
  msssm-s6: {model: {levels: 2, norm: batch}, train: {bucketing: false}}
  mamba: {}
"""


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of real samples; tests that need one of its files skip where it is absent."""
    return SAMPLES


@pytest.fixture(scope="session")
def sample(samples: Path) -> Sample:
    """Path of a sample by its parts; a test that asks for one that is absent is skipped."""

    def found(*parts: str) -> Path:
        path = samples.joinpath(*parts)
        if not path.exists():
            pytest.skip(f"no samples in {path}; set MSBENCH_TEST_DATA")
        return path

    return found


@pytest.fixture(scope="session")
def shared_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that the tests of one session share, since set-up is verified on each use."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(autouse=True)
def data_folder(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test touches the user's own data folder."""
    monkeypatch.setenv("MSBENCH_DATA", str(shared_data))
    return shared_data


@pytest.fixture
def handmade_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let records that a test made by hand have any id and digest; real ones must agree with themselves."""
    monkeypatch.setattr("msbench.results.record._find_contradiction", lambda _record: "")


@pytest.fixture
def tiny_file(tmp_path: Path) -> Path:
    """The YAML file of a suite that trains in a second."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY_SUITE, encoding="utf-8")
    return path


@pytest.fixture
def tiny(tiny_file: Path) -> Suite:
    """The same suite, loaded."""
    return load_suite(str(tiny_file))


@pytest.fixture(scope="session")
def null_gpu(tmp_path_factory: pytest.TempPathFactory) -> "NullGpu":
    """The null GPU, built once for all workers; tests that need it are skipped where it cannot be."""
    from null_gpu import LIBRARY, NullGpu, build_library, find_missing

    if missing := find_missing():
        pytest.skip(missing)
    root = tmp_path_factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "null-gpu"
    folder.mkdir(exist_ok=True)
    library = folder / "library"
    with FileLock(folder / "lock"):
        if not (library / LIBRARY).exists():
            build_library(library)
    return NullGpu(library / LIBRARY, folder)


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> "Home":
    """What commands have made that nobody stopped: data, runs, a baseline, measures and a report."""
    from campaign_home import make  # it starts a process, which few sessions need

    return make(tmp_path_factory.mktemp("unbroken"))


@pytest.fixture
def home(unbroken: "Home", tmp_path: Path) -> "Home":
    """A copy of that to break."""
    shutil.copytree(unbroken.root, tmp_path / "home")
    return type(unbroken)(tmp_path / "home")
