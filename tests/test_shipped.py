import sysconfig
from pathlib import Path

import pytest

from msbench import shipped


def test_the_system_comes_before_the_user_and_a_target_folder_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _, scheme="system": f"/{scheme.split('_')[-1]}")
    monkeypatch.setattr(shipped, "__file__", str(tmp_path / "msbench" / "shipped.py"))
    assert shipped.folders("suites") == [
        Path("/system/share/msbench/suites"),
        Path("/user/share/msbench/suites"),
        tmp_path / "share" / "msbench" / "suites",
    ]
