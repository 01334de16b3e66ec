"""The base of all dataset configs."""

from msbench.config.layers import Config


class DataConfig(Config):
    """Base of the datasets' configs, which are in modules next to this one."""

    dataset: str
