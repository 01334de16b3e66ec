"""Locations of the data files of an installed package: suites, baselines."""

import os
import sysconfig
from pathlib import Path


def folders(name: str) -> list[Path]:
    """Return the folders ``share/msbench/<name>`` where wheels put data files: system, user, target.

    Unreadable folders are left out: the home folder may belong to another user than the current one.
    """
    places = (
        sysconfig.get_path("data"),
        sysconfig.get_path("data", sysconfig.get_preferred_scheme("user")),
        str(Path(__file__).resolve().parents[2]),
    )
    found = [Path(each) / "share" / "msbench" / name for each in places]
    return [folder for folder in found if not _closed(folder)]


def _closed(folder: Path) -> bool:
    try:
        folder.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return not os.access(folder, os.R_OK | os.X_OK)
