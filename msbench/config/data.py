"""Configs of datasets: one class per dataset, found by name in `DATASETS`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from msbench.config.base import (
    DataConfig,
    DataSeed,
    Fraction,
    NonNegativeInt,
    OpenFraction,
    PositiveInt,
    Seed,
)


class ListOpsConfig(DataConfig):
    """ListOps: nested MIN, MAX, MED and SM over digits. Defaults are Long Range Arena's.

    `source` is ``generated`` (seeded, made here) or ``release`` (the published TSV, imported with
    ``msbench setup listops --from PATH``; the options below then have no effect and must keep
    their defaults). Lengths are counted in tokens without round brackets; both bounds are exclusive.
    """

    dataset: Literal["listops"] = "listops"
    source: Literal["generated", "release"] = "generated"
    train: PositiveInt = 96_000
    validation: PositiveInt = 2_000
    test: PositiveInt = 2_000
    min_length: NonNegativeInt = 500
    max_length: Annotated[PositiveInt, Field(ge=2)] = 2_000
    max_depth: Annotated[int, Field(ge=2, le=20)] = 10
    max_args: Annotated[int, Field(ge=2, le=20)] = 10
    seed: DataSeed = 0

    @model_validator(mode="after")
    def _bounds_leave_room(self) -> Self:
        if self.max_length - self.min_length < 2:
            low, high = f"min_length {self.min_length}", f"max_length {self.max_length}"
            raise ValueError(f"no length lies strictly between {low} and {high}")
        return self


OF_GENERATED = ("images", "seed", "documented_distractors")


class PathfinderConfig(DataConfig):
    """Pathfinder, pixel by pixel: 32 pixels wide it is Long Range Arena's Pathfinder, 128 its Path-X.

    `source` is ``generated`` (drawn here from `seed`, as many as `images`) or ``release`` (read from the
    published archive or a folder in its layout; `images`, `seed` and `documented_distractors` then have no
    effect and must keep their defaults). Images are split as public loaders split the release's.
    """

    dataset: Literal["pathfinder"] = "pathfinder"
    source: Literal["generated", "release"] = "generated"
    size: Literal[32, 64, 128, 256] = 32
    difficulty: Literal["curv_baseline", "curv_contour_length_9", "curv_contour_length_14"] = (
        "curv_contour_length_14"
    )
    """Named as in the release; published results are on the hard one, of 14 paddles."""
    images: Annotated[int, Field(ge=10, le=10_000_000)] = 200_000
    seed: DataSeed = 0
    documented_distractors: bool = False
    """Path-X only: the 8 distractors of the documentation; the released images show about 17."""
    centred: bool = True
    """Brightness from -1 to 1, as in S5 and Mega; else from 0 to 1, as in S4's own settings."""

    @model_validator(mode="after")
    def _every_option_acts(self) -> Self:
        if self.documented_distractors and self.size != 128:
            raise ValueError("documented_distractors needs size: 128; others are as documented")
        if self.source == "release" and (changed := self.changed(OF_GENERATED)):
            raise ValueError(f"source: release takes the images as published; remove {', '.join(changed)}")
        return self


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

    validation: OpenFraction = 0.1
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
    validation: OpenFraction = 0.01
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


class TextConfig(DataConfig):
    """Tokenisation of texts.

    `tokens` are ``characters``: Unicode ones, case kept, as in S4 and S5; or ``bytes``, as in Long Range
    Arena. The first `max_length` tokens of a text are kept, including the ``<eos>`` at its end.
    """

    tokens: Literal["characters", "bytes"] = "characters"
    max_length: PositiveInt = 4096
    eos: bool = True
    """End each text in ``<eos>``. Long Range Arena's bytes have none."""
    min_frequency: PositiveInt = 1
    """Characters with fewer occurrences in training texts share one token: unknown. Bytes are all known."""

    @model_validator(mode="after")
    def _some_text_is_left(self) -> Self:
        if self.eos and self.max_length < 2:
            raise ValueError(f"max_length {self.max_length} has room for <eos> alone; set eos to false")
        return self

    @model_validator(mode="after")
    def _every_option_acts(self) -> Self:
        if self.tokens == "bytes" and self.changed(["min_frequency"]):
            raise ValueError("min_frequency counts characters; with tokens: bytes leave it out")
        return self


class ImdbConfig(TextConfig):
    """Long Range Arena's Text: is a film review positive? Defaults are the set-up of S4 and S5.

    Validation is `validation`, a fraction, of the published training half, the same for a `split_seed`
    on every machine; the published test half is the test split.
    """

    dataset: Literal["imdb"] = "imdb"
    min_frequency: PositiveInt = 15
    validation: OpenFraction = 0.1
    split_seed: DataSeed = 0


class AanConfig(TextConfig):
    """Long Range Arena's Retrieval: does one paper cite the other? Defaults are the set-up of S4 and S5."""

    dataset: Literal["aan"] = "aan"
    max_length: PositiveInt = 4000


class PtbXlConfig(DataConfig):
    """PTB-XL: electrocardiograms of 10 s with 12 leads, at 100 Hz.

    `labels` is one of the six sets of labels of Strodthoff et al. (2020), a task each. `rate` selects the
    published signals that are read: those at 100 Hz, or those at 500 Hz, which are then resampled to 100 Hz.
    `min_likelihood` in percent drops less certain diagnoses; published results drop none. With `standardise`
    signals have mean 0 and deviation 1 over all leads of the train split together, else they are in mV.
    """

    dataset: Literal["ptbxl"] = "ptbxl"
    labels: Literal["all", "diagnostic", "subdiagnostic", "superdiagnostic", "form", "rhythm"] = "all"
    rate: Literal[100, 500] = 100
    min_likelihood: Annotated[float, Field(ge=0, le=100)] = 0.0
    standardise: bool = True


DATASETS: dict[str, type[DataConfig]] = {
    "listops": ListOpsConfig,
    "pathfinder": PathfinderConfig,
    "cifar10": Cifar10Config,
    "mnist": MnistConfig,
    "imagenet": ImageNetConfig,
    "imdb": ImdbConfig,
    "aan": AanConfig,
    "ptbxl": PtbXlConfig,
}
