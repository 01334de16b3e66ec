import re
from pathlib import Path

import pytest

from msbench import datasets as data
from msbench.config.data import (
    Cifar10Config,
    DataConfig,
    ImageNetConfig,
    ImdbConfig,
    ListOpsConfig,
    PathfinderConfig,
)
from msbench.datasets.about import About
from msbench.errors import DataError
from msbench.runs import setup as provision


def test_it_is_said_in_lines_that_are_aligned() -> None:
    about = About("two files,\none and two", "CC0", "here, then: msbench setup")
    assert str(about).splitlines() == [
        "  what:    two files,",
        "           one and two",
        "  licence: CC0",
        "  where:   here, then: msbench setup",
    ]


@pytest.mark.parametrize(
    ("config", "command"),
    [
        (PathfinderConfig(size=128, images=40), "pathfinder --set data.size=128 --set data.images=40"),
        (PathfinderConfig(source="release", size=128), "pathfinder --from PATH --set data.size=128"),
        (
            PathfinderConfig(size=128, documented_distractors=True, centred=False),
            "pathfinder --set data.size=128 --set data.documented_distractors=true",
        ),
        (Cifar10Config(colour="grey"), "cifar10"),
        (ImdbConfig(tokens="bytes", min_frequency=15), "imdb --set data.tokens=bytes"),
        (ImageNetConfig(unreadable="skip", patch=14), "imagenet --from PATH --set data.unreadable=skip"),
        (ListOpsConfig(train=60), "listops --set data.train=60"),
        (ListOpsConfig(source="release"), "listops --from PATH"),
    ],
)
def test_the_command_that_is_told_sets_up_that_very_data(
    config: DataConfig, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        DataError, match=rf"is not set up in .*: run `msbench setup {re.escape(command)}`$"
    ) as told:
        data.open_dataset(config, tmp_path)
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path))
    name, *words = command.split()
    source = Path("brought") if "--from" in words else None
    sets = [word for word in words if word.startswith("data.")]
    (meant,) = provision.provision([name], source, sets, check_only=True, quiet=True).items
    assert meant.error == str(told.value)  # of the same folder
