"""The fields that every manifest has."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from msbench.config.messages import describe_first_fault
from msbench.results.record import Count, StrictPart


class StoredFile(StrictPart):
    """Size and sha256 of a file."""

    bytes: Count
    sha256: str


class ManifestFields(StrictPart):
    """The fields of every manifest; those of one dataset are read by its `view`."""

    config: dict[str, Any] = {}  # noqa: RUF012
    sources: list[dict[str, Any]] = []  # noqa: RUF012
    notes: list[str] = []  # noqa: RUF012
    classes: list[str] = []  # noqa: RUF012
    splits: dict[str, dict[str, Any]]
    digest: str
    files: dict[str, StoredFile]


def find_fault(manifest: Mapping[str, Any]) -> str:
    """Return the first field that is absent or of another type, with the reason; empty if there is none."""
    try:
        ManifestFields.model_validate(manifest)
    except ValidationError as error:
        return describe_first_fault(error)
    return ""
