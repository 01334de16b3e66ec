"""Frozen, fully resolved configs of a run: data, model, training. Does not import torch."""

from msbench.config.base import ClassifierConfig, DataConfig
from msbench.config.data import (
    DATASETS,
    AanConfig,
    Cifar10Config,
    ImageNetConfig,
    ImdbConfig,
    ListOpsConfig,
    MnistConfig,
    PtbXlConfig,
)
from msbench.config.models import MODELS, ModelEntry
from msbench.config.run import RunSpec, TrainConfig
from msbench.config.selective import MambaConfig, MsSsmConfig

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
