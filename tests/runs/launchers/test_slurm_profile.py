"""The profile of a cluster: what it may say, and what becomes of it in a batch script."""

import os
from pathlib import Path

import pytest

from msbench.config.layers import parse_yaml, validate
from msbench.errors import ConfigError
from msbench.runs.launchers.slurm_profile import (
    SlurmProfile,
    check_devices,
    load_profile,
    parse_time,
)


def profile(text: str) -> SlurmProfile:
    return validate(SlurmProfile, parse_yaml(text, "slurm.yaml"), "a Slurm profile")


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (90, 5400),
        ("45:30", 2730),
        ("4:00:00", 14400),
        ("2-12", 216000),
        ("1-00:30", 88200),
        ("0-1:2:3", 3723),
    ],
)
def test_times_are_read_as_slurm_reads_them(time: int | str, expected: int) -> None:
    assert parse_time(time) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("partition: gpu\n", "slurm.yaml: time: required key is missing"),
        ("time: 0\n", "slurm.yaml:1: time: must be more than nothing"),
        ("time: 0:00:00\n", "slurm.yaml:1: time: must be more than nothing"),
        ("time: tomorrow\n", "slurm.yaml:1: time: 'tomorrow' is no time limit"),
        ("time: 3\n", "slurm.yaml:1: time: 3 leaves no time to work: grace_seconds is 120"),
        ("time: 60\npartitoin: gpu\n", "slurm.yaml:2: partitoin: unknown key of a Slurm profile"),
        ("time: 60\nsbatch: {mem: 4G}\n", "slurm.yaml:2: sbatch.mem: mem is the key memory of the profile"),
        ("time: 60\nsbatch: {ntasks: 4}\n", "slurm.yaml:2: sbatch.ntasks: ntasks is set by msbench"),
        # sbatch would no longer say which job it is, after having submitted it.
        ("time: 60\nsbatch: {quiet: true}\n", "slurm.yaml:2: sbatch.quiet: quiet is set by msbench"),
        ("time: 60\nsbatch: {--exclusive: true}\n", "is no long option of sbatch"),
        (
            'time: 60\npartition: "a\\nrm -rf /"\n',
            "slurm.yaml:2: partition: 'a\\nrm -rf /': must be printable",
        ),
        ('time: 60\nsbatch: {comment: "a\\nb"}\n', "slurm.yaml:2: sbatch.comment"),
        ("time: 60\nmemory: lots\n", "slurm.yaml:2: memory"),
        ("time: 60\ngpus: $(id)\n", "slurm.yaml:2: gpus"),
    ],
)
def test_invalid_keys_are_reported_with_their_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        profile(text)
    assert message in str(caught.value)


def test_the_first_profile_that_is_there_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    with pytest.raises(ConfigError, match="no profile, neither"):
        load_profile(None)
    (tmp_path / "settings" / "msbench").mkdir(parents=True)
    (tmp_path / "settings" / "msbench" / "slurm.yaml").write_text("time: 1-00:00:00\n", encoding="utf-8")
    assert load_profile(None).time == "1-00:00:00"
    (tmp_path / "slurm.yaml").write_text("time: 60\n", encoding="utf-8")
    assert load_profile(None).time == 60
    (tmp_path / "other.yaml").write_text("time: 90\n", encoding="utf-8")
    assert load_profile(tmp_path / "other.yaml").time == 90
    with pytest.raises(ConfigError, match=r"absent\.yaml: cannot be read"):
        load_profile(tmp_path / "absent.yaml")


def test_a_pipe_that_is_named_is_read() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"time: 60\n")
    os.close(writing)
    try:
        assert load_profile(Path(f"/dev/fd/{reading}")).time == 60
    finally:
        os.close(reading)


def test_only_what_the_profile_says_is_asked_of_slurm() -> None:
    least = profile("time: 60\n").submitit_parameters()
    assert least["time"] == 60
    assert least["wckey"] is None
    assert not {"partition", "account", "qos", "mem", "cpus_per_task", "gpus_per_node"} & least.keys()
    assert least["additional_parameters"] == {"signal": "B:USR1@120", "requeue": True}
    more = profile(
        "time: 60\ngpus: a100:2\ngrace_seconds: 300\nsbatch: {exclusive: true, hold: false}\n"
    ).submitit_parameters()
    assert more["gpus_per_node"] == "a100:2"
    assert more["additional_parameters"] == {"exclusive": True, "signal": "B:USR1@300", "requeue": True}


@pytest.mark.parametrize(
    ("gpus", "device", "devices", "fits"),
    [
        ("1", "auto", 4, False),
        ("a100:2", "cuda", 3, False),
        ("a100", "auto", 2, False),
        ("a100:4", "auto", 4, True),
        ("4", "auto", 2, True),
        ("1", "cpu", 4, True),
        ("0", "auto", 4, True),
        ("null", "auto", 4, True),
    ],
)
def test_no_more_devices_than_a_run_is_given_gpus(gpus: str, device: str, devices: int, fits: bool) -> None:
    made = profile(f"time: 60\ngpus: {gpus}\n")
    if fits:
        check_devices(made, device, devices)
    else:
        with pytest.raises(ConfigError, match=rf"--devices {devices}: the profile gives a run \d GPUs?; "):
            check_devices(made, device, devices)
