"""The command that makes a run again, as a shell would read it."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from msbench.report.collect import flat
from msbench.specs.run import SECTIONS
from msbench.store import RunRecord

WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
RESERVED = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})


def overrides(spec: Mapping[str, Any], planned: Mapping[str, Any]) -> list[str]:
    """What ``--set`` must say for the spec `planned` to become `spec`; both are plain values."""
    asked, done = _settings(planned), _settings(spec)
    return [f"{key}={_yaml(value)}" for key, value in done.items() if key not in asked or asked[key] != value]


def command(record: RunRecord, suite: str, sets: Sequence[str]) -> str:
    """``msbench run ...`` on one line, quoted for a POSIX shell; `suite` is a name or the path of a file."""
    words = ["msbench", "run", suite, "--model", record.model, "--task", record.task]
    words += ["--seed", str(record.seed)]
    for each in sets:
        words += ["--set", each]
    return shlex.join(words)


def _settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    return flat({section: spec.get(section) or {} for section in SECTIONS})


def _yaml(value: Any) -> str:
    """A value as YAML 1.2 reads it back; JSON is YAML, and a plain word needs no quotes."""
    if isinstance(value, str) and WORD.fullmatch(value) and value.lower() not in RESERVED:
        return value
    return json.dumps(value, ensure_ascii=False)
