"""The Mamba of transformers with our weights computes what ours does."""

import pytest
import torch

from msbench import models
from msbench.analysis.benchmarks import mixer_peer
from msbench.config import MambaConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.mamba import MambaBlock

INFO = TaskInfo("tokens", 11, 4, 40, "accuracy", 0.25, {})


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("options", [{}, {"expand": 1.5, "dt_rank": 3}, {"conv_bias": False, "kernel": 3}])
def test_a_block_equals_ours(parallel: bool, options: dict[str, float | bool]) -> None:
    torch.manual_seed(0)
    config = MambaConfig.model_validate({"d_model": 8, "layers": 1, "state": 4, **options})
    ours, theirs = MambaBlock(config), mixer_peer.MixerPeer(config, parallel=parallel)
    with torch.no_grad():
        ours.D.uniform_()  # type: ignore[union-attr]
    mixer_peer.copy_weights(ours, theirs.mixer)
    x, lengths = torch.randn(2, 13, 8), torch.tensor([13, 13])
    torch.testing.assert_close(theirs(x, lengths), ours(x, lengths), rtol=1e-5, atol=1e-6)


def test_every_parameter_of_a_model_has_a_counterpart() -> None:
    config = MambaConfig(d_model=8, layers=2, state=4, norm="batch")
    model = models.build("mamba", config, INFO, seed=0)
    before = [name for name, _ in model.named_parameters()]
    names = mixer_peer.install(model, parallel=False)
    assert sorted(names) == sorted(before)
    assert sorted(names.values()) == sorted(name for name, _ in model.named_parameters())


def test_a_parameter_without_a_counterpart_is_an_error() -> None:
    config = MambaConfig(d_model=8, layers=1, state=4)
    ours, theirs = MambaBlock(config), mixer_peer.MixerPeer(config, parallel=False)
    theirs.mixer.register_parameter("extra", torch.nn.Parameter(torch.zeros(1)))
    with pytest.raises(RuntimeError, match="without a counterpart: extra"):
        mixer_peer.copy_weights(ours, theirs.mixer)
