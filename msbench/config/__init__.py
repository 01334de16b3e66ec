"""Frozen, fully resolved configs of a run: data, model, training. Does not import torch."""

from msbench.config.data import DATASETS, DataConfig, ListOpsConfig
from msbench.config.images import Cifar10Config, ImageNetConfig, MnistConfig
from msbench.config.model import ClassifierConfig, ModelEntry
from msbench.config.models import MODELS
from msbench.config.ptbxl import PtbXlConfig
from msbench.config.run import RunSpec
from msbench.config.selective import MambaConfig, MsSsmConfig
from msbench.config.texts import AanConfig, ImdbConfig
from msbench.config.train import TrainConfig

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
