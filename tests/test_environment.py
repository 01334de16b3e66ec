"""The record of a machine, and the report of doctor."""

import json

import pytest
import torch

from msbench.cli.measure import describe_machine
from msbench.environment import choose_accelerator, describe_environment, measure_free_memory, read_git_state
from msbench.errors import ConfigError


def test_the_record_is_plain_json_and_names_versions() -> None:
    found = json.loads(json.dumps(describe_environment(), allow_nan=False))
    assert {"python", "platform", "cpu", "threads", "gpus", "packages", "git"} <= set(found)
    assert {"torch", "lightning-fabric", "numpy"} <= set(found["packages"])


def test_the_state_of_the_checkout_is_known_or_absent() -> None:
    state = read_git_state()
    assert state is None or (len(state["commit"]) == 40 and isinstance(state["dirty"], bool))


def test_doctor_says_which_kernel_runs() -> None:
    found = dict(describe_machine())
    assert found["scan on cpu"]
    assert "threads" in found["cpu"]
    assert found["data"].endswith("free")


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
