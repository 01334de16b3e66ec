"""Labels and metadata of PTB-XL: ``ptbxl_database.csv`` and ``scp_statements.csv``, read strictly.

Every statement of a record counts as a label, whatever its likelihood: for statements of form and rhythm 0
means that none was given. The six sets of labels are those of Strodthoff et al. (2020).

No file of PTB-XL states its version, so it is found by the number of records. The labels are compared with
published counts: those of 1.0.1 are behind the published predictions of Strodthoff et al. (2020), those of
1.0.3 are of the splits that MERL (2024) published.
"""

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.archive import read_csv
from msbench.datasets.dataset import SPLITS
from msbench.errors import DataError

DATABASE, STATEMENTS = "ptbxl_database.csv", "scp_statements.csv"
SETS = ("all", "diagnostic", "subdiagnostic", "superdiagnostic", "form", "rhythm")
SPLIT_OF_FOLD = {**dict.fromkeys(range(1, 9), "train"), 9: "validation", 10: "test"}


@dataclass(frozen=True)
class Statement:
    """A code of the SCP-ECG standard: its kinds, and for a diagnosis its subclass and superclass."""

    diagnostic: bool
    form: bool
    rhythm: bool
    subclass: str
    superclass: str


@dataclass(frozen=True)
class DatabaseRow:
    """A row of the database; `codes` maps statements to likelihoods from 0 to 100."""

    ecg_id: int
    patient: int
    codes: Mapping[str, float]
    fold: int
    filename_100: str
    filename_500: str

    @property
    def split(self) -> str:
        """Split of the record: folds 1 to 8 are for training, 9 for validation, 10 for the test."""
        return SPLIT_OF_FOLD[self.fold]


@dataclass(frozen=True)
class Labels:
    """The labels of one set: `names` of the classes in order, `values` (records, classes) of 0 and 1.

    A record without a label in the set has a row of zeros.
    """

    names: tuple[str, ...]
    values: NDArray[np.uint8]


def parse_statements(content: bytes) -> dict[str, Statement]:
    """Read every statement by its code. Raises DataError naming the line."""
    columns = ("", "diagnostic", "form", "rhythm", "diagnostic_class", "diagnostic_subclass")
    found: dict[str, Statement] = {}
    for where, row in read_csv(content, STATEMENTS, columns):
        code = row[""]
        if not code or code in found:
            raise DataError(f"{where}: {'a statement without a code' if not code else f'{code!r} again'}")
        diagnostic, form, rhythm = (_parse_flag(row[name], f"{where}: {name}") for name in columns[1:4])
        sub, super_ = row["diagnostic_subclass"], row["diagnostic_class"]
        statement = Statement(diagnostic, form, rhythm, sub, super_)
        if statement.diagnostic and not (statement.subclass and statement.superclass):
            raise DataError(f"{where}: {code!r} is diagnostic but has no diagnostic_class and _subclass")
        found[code] = statement
    if not found:
        raise DataError(f"{STATEMENTS}: no rows after the header")
    return found


def parse_database(content: bytes, statements: Mapping[str, Statement]) -> list[DatabaseRow]:
    """Read every record, in the order of the file. Raises DataError naming the line.

    Also refused: a record that occurs twice, and a patient with records in two splits.
    """
    columns = ("ecg_id", "patient_id", "scp_codes", "strat_fold", "filename_lr", "filename_hr")
    entries: dict[int, DatabaseRow] = {}
    for where, row in read_csv(content, DATABASE, columns):
        entry = _parse_row(row, statements, where)
        if entry.ecg_id in entries:
            raise DataError(f"{where}: ecg_id {entry.ecg_id} is there twice")
        entries[entry.ecg_id] = entry
    if not entries:
        raise DataError(f"{DATABASE}: no rows after the header")
    _refuse_shared_patients(entries.values())
    return list(entries.values())


def _parse_row(row: Mapping[str, str], statements: Mapping[str, Statement], where: str) -> DatabaseRow:
    fold = _parse_whole(row["strat_fold"], f"{where}: strat_fold")
    if fold not in SPLIT_OF_FOLD:
        raise DataError(f"{where}: strat_fold is {fold}, and must be from 1 to 10")
    for name in ("filename_lr", "filename_hr"):
        if not row[name] or row[name].startswith("/") or ".." in row[name].split("/"):
            raise DataError(f"{where}: {name} is {row[name]!r}, which is no path within the data set")
    return DatabaseRow(
        ecg_id=_parse_whole(row["ecg_id"], f"{where}: ecg_id"),
        patient=_parse_whole(row["patient_id"], f"{where}: patient_id"),
        codes=_parse_codes(row["scp_codes"], statements, f"{where}: scp_codes"),
        fold=fold,
        filename_100=row["filename_lr"],
        filename_500=row["filename_hr"],
    )


def _parse_flag(text: str, what: str) -> bool:
    """Read 1 or nothing, as pandas writes a column with gaps."""
    if text not in ("", "0", "0.0", "1", "1.0"):
        raise DataError(f"{what} is {text!r}, and must be 1.0 or empty")
    return text in ("1", "1.0")


def _parse_whole(text: str, what: str) -> int:
    """Read a whole number, also as pandas writes one in a column with gaps: ``15709.0``."""
    try:
        return int(text.removesuffix(".0"))
    except ValueError:
        raise DataError(f"{what} is {text!r}, which is no whole number") from None


def _parse_codes(text: str, statements: Mapping[str, Statement], what: str) -> dict[str, float]:
    """Read ``{'NORM': 100.0, 'SR': 0.0}`` without running anything."""
    try:
        codes = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        codes = None
    if not isinstance(codes, dict):
        raise DataError(f"{what} is {text!r}, which is no mapping of codes to likelihoods")
    for code, likelihood in codes.items():
        if code not in statements:
            raise DataError(f"{what}: {code!r} is not in {STATEMENTS}")
        if type(likelihood) not in (int, float) or not 0 <= likelihood <= 100:
            raise DataError(f"{what}: the likelihood of {code} is {likelihood!r}, not a number from 0 to 100")
    return {code: float(likelihood) for code, likelihood in codes.items()}


def _refuse_shared_patients(entries: Iterable[DatabaseRow]) -> None:
    first: dict[int, DatabaseRow] = {}
    for entry in entries:
        other = first.setdefault(entry.patient, entry)
        if other.split != entry.split:
            raise DataError(
                f"{DATABASE}: patient {entry.patient} is in two splits: ecg_id {other.ecg_id} in"
                f" {other.split}, {entry.ecg_id} in {entry.split}"
            )


def list_classes(chosen: str, statements: Mapping[str, Statement]) -> tuple[str, ...]:
    """Return the classes of a set, sorted: those of the statements file, whichever of them occur."""
    return tuple(sorted({name for code in statements if (name := find_class(code, chosen, statements))}))


def find_class(code: str, chosen: str, statements: Mapping[str, Statement]) -> str:
    """Return the class of a statement in a set, empty where it has none."""
    statement = statements[code]
    found = {
        "all": code,
        "diagnostic": code if statement.diagnostic else "",
        "subdiagnostic": statement.subclass if statement.diagnostic else "",
        "superdiagnostic": statement.superclass if statement.diagnostic else "",
        "form": code if statement.form else "",
        "rhythm": code if statement.rhythm else "",
    }
    return found[chosen]


def collect_likelihoods(
    entries: Sequence[DatabaseRow], statements: Mapping[str, Statement]
) -> NDArray[np.float64]:
    """Return the likelihoods (records, statements), NaN where a statement is not made."""
    column = {code: index for index, code in enumerate(statements)}
    found = np.full((len(entries), len(statements)), np.nan)
    for row, entry in zip(found, entries, strict=True):
        for code, likelihood in entry.codes.items():
            row[column[code]] = likelihood
    return found


def label_records(
    said: NDArray[np.float64], statements: Mapping[str, Statement], chosen: str, min_likelihood: float = 0.0
) -> Labels:
    """Return the labels of every record in one of `SETS`, from the result of `likelihoods`.

    Diagnoses below `min_likelihood` do not count; statements of form and rhythm alone always do.
    """
    names = list_classes(chosen, statements)
    values = np.zeros((len(said), len(names)), np.uint8)
    for code, column in zip(statements, said.T, strict=True):
        if name := find_class(code, chosen, statements):
            least = min_likelihood if statements[code].diagnostic else 0.0
            values[:, names.index(name)] |= column >= least  # NaN is not
    return Labels(names, values)


def select_rows(folds: NDArray[np.integer], labels: Labels) -> dict[str, NDArray[np.int64]]:
    """Return the numbers of each split's labelled records, in order. Raises DataError for an empty split."""
    labelled = labels.values.max(axis=1) > 0
    splits = np.array([SPLIT_OF_FOLD[fold] for fold in folds.tolist()])
    rows = {split: np.flatnonzero(labelled & (splits == split)) for split in SPLITS}
    for split, numbers in rows.items():
        if not len(numbers):
            raise DataError(f"{DATABASE}: no record with a label of this set is for {split}")
    return rows


SUBSET = "subset"
VERSIONS = {21_837: "1.0.0 or 1.0.1", 21_801: "1.0.2", 21_799: "1.0.3"}
"""Versions by number of records."""
CLASS_COUNTS = {
    "all": 71,
    "diagnostic": 44,
    "subdiagnostic": 23,
    "superdiagnostic": 5,
    "form": 19,
    "rhythm": 12,
}

DIAGNOSES_101 = {"validation": 2_156, "test": 2_163}
DIAGNOSES_103 = {"train": 17_084, "validation": 2_146, "test": 2_158}
EXAMPLE_COUNTS: Mapping[str, Mapping[str, Mapping[str, int]]] = {
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

SUPERCLASS_COUNTS: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "1.0.0 or 1.0.1": {
        "validation": {"NORM": 957, "MI": 544, "STTC": 534, "CD": 497, "HYP": 271},
        "test": {"NORM": 964, "MI": 553, "STTC": 523, "CD": 498, "HYP": 263},
    },
    "1.0.3": {
        "validation": {"NORM": 955, "MI": 540, "STTC": 528, "CD": 495, "HYP": 268},
        "test": {"NORM": 963, "MI": 550, "STTC": 521, "CD": 496, "HYP": 262},
    },
}


def find_version(records: int) -> str:
    """Return the version with this number of records, or ``subset``."""
    return VERSIONS.get(records, SUBSET)


def compare_with_published(
    version: str,
    chosen: str,
    names: Sequence[str],
    labels: Mapping[str, NDArray[np.uint8] | NDArray[np.uint16]],
) -> list[str]:
    """Return a line for each count that differs from the published one; `labels` (n, classes) by split.

    The list is empty for versions whose counts are not known.
    """
    found, classes = list[str](), CLASS_COUNTS[chosen]
    if len(names) != classes:
        found.append(f"the statements file gives {len(names)} {chosen} classes, the published one {classes}")
    for split, expected in EXAMPLE_COUNTS.get(version, {}).get(chosen, {}).items():
        if (count := len(labels[split])) != expected:
            found.append(f"{split} has {count:,} examples of set {chosen}, version {version} {expected:,}")
    if chosen == "superdiagnostic":
        for split, list_classes in SUPERCLASS_COUNTS.get(version, {}).items():
            counts = dict(zip(names, labels[split].sum(axis=0, dtype=int).tolist(), strict=True))
            if counts != list_classes:
                found.append(f"{split} has {counts} of each class, version {version} {dict(list_classes)}")
    return found
