"""Versions of PTB-XL by number of records, and comparison of the labels with the published ones.

Counts of 1.0.1 are those behind the published predictions of Strodthoff et al. (2020), counts of 1.0.3 those
of the splits that MERL (2024) published. No file of PTB-XL itself states its version.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

SUBSET = "subset"
VERSIONS = {21_837: "1.0.0 or 1.0.1", 21_801: "1.0.2", 21_799: "1.0.3"}
"""Versions by number of records."""
CLASSES = {
    "all": 71,
    "diagnostic": 44,
    "subdiagnostic": 23,
    "superdiagnostic": 5,
    "form": 19,
    "rhythm": 12,
}

DIAGNOSES_101 = {"validation": 2_156, "test": 2_163}
DIAGNOSES_103 = {"train": 17_084, "validation": 2_146, "test": 2_158}
EXAMPLES: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "1.0.0 or 1.0.1": {
        "all": {"train": 17_441, "validation": 2_193, "test": 2_203},
        **dict.fromkeys(("diagnostic", "subdiagnostic", "superdiagnostic"), DIAGNOSES_101),
        "form": {"validation": 904, "test": 882},
        "rhythm": {"validation": 2_109, "test": 2_103},
    },
    "1.0.3": {
        "all": {"train": 17_418, "validation": 2_183, "test": 2_198},
        **dict.fromkeys(("diagnostic", "subdiagnostic", "superdiagnostic"), DIAGNOSES_103),
        "form": {"train": 7_197, "validation": 901, "test": 880},
        "rhythm": {"train": 16_832, "validation": 2_100, "test": 2_098},
    },
}
"""Labelled examples, by version, set and split; where a split is absent its number is unknown."""

SUPERCLASSES: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "1.0.0 or 1.0.1": {
        "validation": {"NORM": 957, "MI": 544, "STTC": 534, "CD": 497, "HYP": 271},
        "test": {"NORM": 964, "MI": 553, "STTC": 523, "CD": 498, "HYP": 263},
    },
    "1.0.3": {
        "validation": {"NORM": 955, "MI": 540, "STTC": 528, "CD": 495, "HYP": 268},
        "test": {"NORM": 963, "MI": 550, "STTC": 521, "CD": 496, "HYP": 262},
    },
}


def version_of(records: int) -> str:
    """Return the version with this number of records, or ``subset``."""
    return VERSIONS.get(records, SUBSET)


def differences(
    version: str,
    chosen: str,
    names: Sequence[str],
    labels: Mapping[str, NDArray[np.uint8] | NDArray[np.uint16]],
) -> list[str]:
    """Return a line for each count that differs from the published one; `labels` (n, classes) by split.

    The list is empty for versions whose counts are not known.
    """
    found = _class_difference(chosen, names)
    for split, expected in EXAMPLES.get(version, {}).get(chosen, {}).items():
        if (count := len(labels[split])) != expected:
            found.append(f"{split} has {count:,} examples of set {chosen}, version {version} {expected:,}")
    if chosen == "superdiagnostic":
        for split, classes in SUPERCLASSES.get(version, {}).items():
            counts = dict(zip(names, labels[split].sum(axis=0, dtype=int).tolist(), strict=True))
            if counts != classes:
                found.append(f"{split} has {counts} of each class, version {version} {dict(classes)}")
    return found


def _class_difference(chosen: str, names: Sequence[str]) -> list[str]:
    expected = CLASSES[chosen]
    if len(names) == expected:
        return []
    return [f"the statements file gives {len(names)} {chosen} classes, the published one {expected}"]
