"""Two processes with a GPU each train one run, as `--devices 2` starts them, over a stand-in for NCCL."""

from pathlib import Path

from null_gpu import NullGpu

from msbench.results.store import read_records

STEPS = 4
EXCHANGED = ("collectives", "bytes of collectives")


def test_two_devices_train_one_run(null_gpu: NullGpu, tmp_path: Path) -> None:
    options = [
        "--model",
        "msssm-s6",
        "--device",
        "cuda",
        "--devices",
        "2",
        "--set",
        f"train.max_steps={STEPS}",
    ]
    results, reports = tmp_path / "results", tmp_path / "reports"
    found = null_gpu.run_command(
        "run", "quick", *options, "--results", str(results), reports=reports, count=2
    )
    (record,), _ = read_records(results)
    assert record.status == "finished"
    assert found.keys() == {"parent", "0", "1"}
    contexts = {name: [device["context"] for device in each["devices"]] for name, each in found.items()}
    assert contexts == {"parent": [0, 0], "0": [1, 0], "1": [0, 1]}
    for rank in "01":
        assert found[rank]["counters"]["collectives"] > STEPS
        assert found[rank]["devices"][int(rank)]["launches"] > 100 * STEPS
    collectives = [{name: found[rank]["counters"][name] for name in EXCHANGED} for rank in "01"]
    assert collectives[0] == collectives[1]
