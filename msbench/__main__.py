"""Entry point of ``python -m msbench``."""

from msbench.cli import main

main()
