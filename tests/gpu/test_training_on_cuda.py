"""Every model trains on CUDA as far as a GPU that computes nothing shows it: all but numbers."""

import pytest
from null_gpu import NullGpu
from train_models import PROBLEM

from msbench.config import MODELS
from msbench.models import find_family


@pytest.mark.parametrize("flags", [[], ["--bf16", "--deterministic"]], ids=["plain", "bf16-deterministic"])
def test_every_model_trains_stops_resumes_and_is_tested(null_gpu: NullGpu, flags: list[str]) -> None:
    trained = null_gpu.run("train_models.py", *flags)
    assert {each["model"]: each["error"] for each in trained if "error" in each} == {}
    assert [each["model"] for each in trained] == list(MODELS)
    for each in trained:
        assert each["stopped"] == PROBLEM.stop
        assert each["steps"] == PROBLEM.steps
        assert each["resumes"] == 1
        assert each["tested"] == [PROBLEM.batch, 4]
        assert each["devices"] == ["cuda:0"]
    scanning = [name for name in MODELS if find_family(name).count_scanned(PROBLEM.spec(name).model)]
    assert {"msssm-s6", "mamba"} < set(scanning)
    kernels = {each["model"]: each["kernel"] for each in trained}
    assert {kernels[name] for name in scanning} == {"triton"}
