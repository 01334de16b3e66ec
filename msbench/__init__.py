"""msbench: benchmark suite and reproducibility harness for MS-SSM."""

__version__ = "0.1.0"
