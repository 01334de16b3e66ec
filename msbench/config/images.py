"""Images as sequences: CIFAR-10 and MNIST pixel by pixel, ImageNet patch by patch."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from msbench.config.dataset import DataConfig
from msbench.config.numbers import Fraction, Part, Seed

Pixels = Annotated[int, Field(ge=1, le=1024)]

Moments = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and deviation per channel, of values from 0 to 1."""

STANDARDISATIONS: dict[str, dict[str, Moments]] = {
    "rgb": {
        "multires": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        "s4": ((0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)),
    },
    "grey": {
        "s4": ((122.6 / 255,), (61 / 255,)),
        "mega": ((0.48,), (0.24,)),
    },
}
"""Moments by which public code standardises CIFAR-10, by colour; the first is the default."""


class PixelConfig(DataConfig):
    """Small images, one pixel per position in reading order, and the share held out from training.

    `validation` is a share of the published train split, drawn with `split_seed` as torch's ``random_split``
    draws it: the defaults give exactly the images of S4, S5, MEGA and MultiResNet.
    """

    validation: Part = 0.1
    split_seed: Seed = 42


class Cifar10Config(PixelConfig):
    """CIFAR-10, 1024 positions: ``rgb`` is the paper's sCIFAR, ``grey`` Long Range Arena's Image.

    ``grey`` is Pillow's ``L``. `pixels` are ``values``, standardised, or ``tokens``, as the original Long
    Range Arena has them: grey levels as ids, one higher, since id 0 is padding.
    """

    dataset: Literal["cifar10"] = "cifar10"
    colour: Literal["rgb", "grey"] = "rgb"
    pixels: Literal["values", "tokens"] = "values"
    standardisation: Literal["multires", "s4", "mega"] | None = None
    """Source of mean and deviation; None means MultiResNet for ``rgb`` and S4 for ``grey``."""

    @model_validator(mode="after")
    def _every_option_acts(self) -> Self:
        if self.pixels == "tokens" and self.colour != "grey":
            raise ValueError("pixels: tokens needs colour: grey, which has one level a pixel")
        if self.standardisation is None:
            return self
        if self.pixels == "tokens":
            raise ValueError("standardisation needs pixels: values; tokens are not standardised")
        known = STANDARDISATIONS[self.colour]
        if self.standardisation not in known:
            raise ValueError(f"standardisation of colour: {self.colour} is one of {', '.join(known)}")
        return self

    @property
    def moments(self) -> Moments:
        """Mean and deviation that values are standardised by."""
        known = STANDARDISATIONS[self.colour]
        return known[self.standardisation] if self.standardisation else next(iter(known.values()))


class MnistConfig(PixelConfig):
    """MNIST, 784 positions; if `permuted`, in another order that is the same for all images."""

    dataset: Literal["mnist"] = "mnist"
    permuted: bool = False


class ImageNetConfig(DataConfig):
    """ImageNet-1K (ILSVRC 2012) in square patches, read in place from the user's files.

    The published val split is the test split; `validation` is a share of train that is held out, drawn with
    `split_seed`. Evaluation scales the shorter side to image_size / `crop` and cuts out the centre.

    `augmentation` of train images: ``crop-flip`` cuts out 8 to 100 % of the area and flips every other one;
    ``rand-m9-mstd0.5-inc1`` is that, followed by timm's RandAugment of this name. `erasing` is the
    probability that a rectangle is replaced by noise. Mixup, cutmix and label smoothing act on batches and
    losses, not on images: they are not supported.
    """

    dataset: Literal["imagenet"] = "imagenet"
    image_size: Pixels = 224
    patch: Pixels = 16
    crop: Annotated[float, Field(gt=0, le=1)] = 0.9
    augmentation: Literal["none", "crop-flip", "rand-m9-mstd0.5-inc1"] = "crop-flip"
    erasing: Fraction = 0.0
    validation: Part = 0.01
    split_seed: Seed = 42
    verify: Literal["ends", "full"] = "ends"
    """Extent of the check of every file in set-up: its size and both ends, or all of it, decoded. Reading a
    file later compares as much with the findings of set-up."""
    unreadable: Literal["refuse", "skip"] = "refuse"
    """Handling of files that cannot be decoded in set-up: name them and stop, or leave them out of train
    (never out of test) and count them."""

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        if self.image_size % self.patch:
            raise ValueError(f"image_size {self.image_size} is no multiple of patch {self.patch}")
        if self.erasing and self.augmentation == "none":
            raise ValueError("erasing needs an augmentation; with augmentation: none nothing is random")
        return self

    @property
    def positions(self) -> int:
        """Number of patches of an image."""
        return (self.image_size // self.patch) ** 2

    @property
    def channels(self) -> int:
        """Number of values of a patch."""
        return 3 * self.patch**2
