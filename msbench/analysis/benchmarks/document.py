"""Benchmark results as one JSON document, with the conditions of the measurement."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msbench import __version__
from msbench.analysis.benchmarks.settings import Settings
from msbench.console import encodable
from msbench.environment import describe_environment
from msbench.errors import ConfigError
from msbench.results.files import parse_json, read_bytes, write_file

SCHEMA = "msbench-bench"
VERSION = 1


def document(what: str, settings: Settings, seconds: float, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return `found` with the machine, the versions and the settings."""
    env = describe_environment()
    return {
        "schema": SCHEMA,
        "schema_version": VERSION,
        "what": what,
        "msbench": __version__,
        "git": env["git"],
        "environment": env,
        "device": device_name(settings.device, env),
        "threads": settings.threads,
        "dtype": "float32",
        "settings": asdict(settings),
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": seconds,
        **found,
    }


def device_name(device: str, env: Mapping[str, Any]) -> dict[str, str]:
    """Return the type and the name of the measured device."""
    names = env["gpus"] if device == "cuda" else [env["cpu"]]
    return {"type": device, "name": names[0] if names else ""}


def measured_rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows with valid measurements."""
    return [row for row in found["rows"] if row["status"] == "measured"]


def write(path: Path, found: Mapping[str, Any]) -> None:
    """Write the whole document or nothing; ConfigError if it cannot be written."""
    text = json.dumps(encodable(found), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_file(path, (text + "\n").encode(), "--out")


def read(path: Path, what: str) -> dict[str, Any]:
    """Read an older document of the same benchmark; ConfigError if the file is not one."""
    try:
        found = encodable(parse_json(read_bytes(path)))
    except OSError as error:
        raise ConfigError(f"--compare {path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--compare {path}: no JSON: {error}") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise ConfigError(f"--compare {path}: not written by `msbench bench --out`")
    if found.get("schema_version") != VERSION:
        version = found.get("schema_version")
        raise ConfigError(
            f"--compare {path}: schema version {version}, this is {VERSION}; measure again with this msbench"
        )
    if found.get("what") != what:
        raise ConfigError(f"--compare {path}: of `bench {found.get('what')}`, not of `bench {what}`")
    return found
