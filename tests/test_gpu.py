"""What only a CUDA device can show: `make gpu`."""

from pathlib import Path

import pytest
import torch

from msbench import data, models
from msbench.errors import Interrupted
from msbench.progress import Quiet
from msbench.suite import Suite, plan
from msbench.training.loop import Trainer, fabric_for
from msbench.training.signals import SignalFlag

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("model", ["msssm-s6", "mamba"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_run_that_starts_on_the_gpu_goes_on_on_the_cpu(
    tiny: Suite, tmp_path: Path, model: str, precision: str
) -> None:
    spec = plan(tiny, [model], overrides=[f"train.precision={precision}"])[0]
    dataset = data.setup(spec.data, data.data_root())
    losses = []
    for device in ("cuda", "cpu"):
        flag = SignalFlag()
        net = models.build(spec.model_name, spec.model, dataset.info, spec.seed)
        fabric = fabric_for(device, precision)
        trainer = Trainer(spec, net, dataset, tmp_path, "0123456789ab", fabric, Quiet(), flag)

        def stop(step: int, flag: SignalFlag = flag) -> None:
            if step == 12:
                flag.received = 15

        trainer.after_step = stop
        if device == "cuda":
            with pytest.raises(Interrupted):
                trainer.run()
        else:
            trainer.run()
        losses += [row["train_loss"] for row in trainer.progress.rows]
    assert len(losses) == 1 + 3
    assert losses[-1] < losses[0]
