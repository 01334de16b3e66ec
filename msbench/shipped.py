"""Where an installed package has its data files: suites, baselines."""

import sysconfig
from pathlib import Path


def folders(name: str) -> list[Path]:
    """The folders ``share/msbench/<name>`` where wheels put data files: system, user, target."""
    places = (
        sysconfig.get_path("data"),
        sysconfig.get_path("data", sysconfig.get_preferred_scheme("user")),
        str(Path(__file__).resolve().parents[1]),
    )
    return [Path(each) / "share" / "msbench" / name for each in places]
