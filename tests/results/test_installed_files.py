import errno
import os
import sysconfig
from pathlib import Path

import pytest

from msbench.results import installed_files as shipped


def test_the_system_comes_before_the_user_and_a_target_folder_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _, scheme="system": f"/{scheme.split('_')[-1]}")
    monkeypatch.setattr(shipped, "__file__", str(tmp_path / "msbench" / "results" / "installed_files.py"))
    assert shipped.folders("suites") == [
        Path("/system/share/msbench/suites"),
        Path("/user/share/msbench/suites"),
        tmp_path / "share" / "msbench" / "suites",
    ]


def test_a_home_of_somebody_else_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _, scheme="system": f"/{scheme.split('_')[-1]}")
    plain = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        if path.is_relative_to("/user"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return plain(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    assert Path("/user/share/msbench/suites") not in shipped.folders("suites")
    assert Path("/system/share/msbench/suites") in shipped.folders("suites")
