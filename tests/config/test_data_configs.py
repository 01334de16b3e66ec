from typing import Any

import pytest
from pydantic import ValidationError

from msbench import datasets
from msbench.config.data import DATASETS, STANDARDISATIONS, Cifar10Config, ImageNetConfig, PtbXlConfig


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"pixels": "tokens"}, "pixels: tokens needs colour: grey"),
        ({"colour": "grey", "pixels": "tokens", "standardisation": "s4"}, "tokens are not standardised"),
        (
            {"colour": "grey", "standardisation": "multires"},
            "standardisation of colour: grey is one of s4, mega",
        ),
        ({"standardisation": "mega"}, "standardisation of colour: rgb is one of multires, s4"),
        ({"validation": 0.0}, "greater than 0"),
        ({"split_seed": 2**32}, "less than 4294967296"),
    ],
)
def test_options_of_cifar10_that_contradict_each_other_are_refused(
    values: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ValidationError, match=fault):
        Cifar10Config(**values)


def test_the_default_is_what_the_paper_follows() -> None:
    assert Cifar10Config().moments == STANDARDISATIONS["rgb"]["multires"]
    assert Cifar10Config(colour="grey").moments == ((122.6 / 255,), (61 / 255,))


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"patch": 15}, "image_size 224 is not a multiple of patch 15"),
        ({"augmentation": "none", "erasing": 0.25}, "erasing needs an augmentation"),
        ({"augmentation": "none", "repeats": 3}, "repeats needs an augmentation"),
        ({"repeats": 1}, "greater than or equal to 2"),
        ({"crop": 0.0}, "greater than 0"),
    ],
)
def test_options_of_imagenet_that_contradict_each_other_are_refused(
    values: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ValidationError, match=fault):
        ImageNetConfig(**values)


def test_positions_and_channels_of_patches() -> None:
    config = ImageNetConfig(image_size=32, patch=8)
    assert (config.positions, config.channels) == (16, 192)


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"crop_step": 125}, "crop_step needs crop"),
        ({"crop": 250, "crop_step": 251}, "crop_step 251 leaves out positions between crops of 250"),
        ({"crop": 1001}, "less than or equal to 1000"),
        ({"crop": 0}, "greater than or equal to 1"),
    ],
)
def test_crops_of_ptbxl_that_cannot_be_are_refused(values: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        PtbXlConfig(**values)


@pytest.mark.parametrize("name", DATASETS)
def test_configs_know_whether_examples_have_several_labels(name: str) -> None:
    config = DATASETS[name](dataset=name)
    assert config.several_labels == datasets.outline(config).multi_label


def test_configs_know_whether_lengths_differ() -> None:
    ragged = {name for name, config in DATASETS.items() if config.ragged}
    assert ragged == {"listops", "recall", "imdb", "aan"}
