"""``python -m msbench.cli``."""

from msbench.cli import main

main()
