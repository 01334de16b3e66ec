"""`submission.json`: read as every file of results is, which somebody else may have written."""

import os
from pathlib import Path

import pytest

from msbench.errors import ConfigError
from msbench.launch import submission


def test_what_is_no_ordinary_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / submission.FILE)
    with pytest.raises(ConfigError, match=r"submission\.json: cannot be read: no ordinary file"):
        submission.read(tmp_path / submission.FILE)
