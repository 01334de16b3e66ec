"""Frozen, fully resolved configs of a run: data, model, training. Does not import torch."""

from msbench.config.base import ClassifierConfig, DataConfig
from msbench.config.data import DATASETS
from msbench.config.models import MODELS
from msbench.config.run import RunSpec, TrainConfig

__all__ = ["DATASETS", "MODELS", "ClassifierConfig", "DataConfig", "RunSpec", "TrainConfig"]
