"""What the config of every dataset has."""

from msbench.config.layers import Config


class DataConfig(Config):
    """Base of the datasets' configs; the others stand in modules beside this one."""

    dataset: str
