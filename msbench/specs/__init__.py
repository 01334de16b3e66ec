"""Frozen, fully resolved descriptions of what a run is: data, model, training. No torch in here."""

from msbench.specs.data import DATASETS, DataConfig, ListOpsConfig
from msbench.specs.images import Cifar10Config, ImageNetConfig, MnistConfig
from msbench.specs.model import ClassifierConfig, ModelEntry
from msbench.specs.models import MODELS
from msbench.specs.ptbxl import PtbXlConfig
from msbench.specs.run import RunSpec
from msbench.specs.selective import MambaConfig, MsSsmConfig
from msbench.specs.texts import AanConfig, ImdbConfig
from msbench.specs.train import TrainConfig

__all__ = [
    "DATASETS",
    "MODELS",
    "AanConfig",
    "Cifar10Config",
    "ClassifierConfig",
    "DataConfig",
    "ImageNetConfig",
    "ImdbConfig",
    "ListOpsConfig",
    "MambaConfig",
    "MnistConfig",
    "ModelEntry",
    "MsSsmConfig",
    "PtbXlConfig",
    "RunSpec",
    "TrainConfig",
]
