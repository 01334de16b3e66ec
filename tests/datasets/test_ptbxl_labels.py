from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from ecg_files import SMALL, STATEMENTS, database, row
from numpy.typing import NDArray

from msbench.datasets.ptbxl.labels import (
    CLASS_COUNTS,
    DATABASE,
    EXAMPLE_COUNTS,
    SETS,
    SUPERCLASS_COUNTS,
    DatabaseRow,
    Labels,
    Statement,
    collect_likelihoods,
    compare_with_published,
    find_version,
    label_records,
    list_classes,
    parse_database,
    parse_statements,
    select_rows,
)
from msbench.errors import DataError

KNOWN = parse_statements(STATEMENTS.encode())


@pytest.fixture(scope="module")
def published(sample: Callable[..., Path]) -> Path:
    return sample("ptbxl-500")


def entries(*rows: str) -> list[DatabaseRow]:
    return parse_database(database(*rows), KNOWN)


SMALL_ROWS = [row(*each) for each in SMALL]


def labelled(
    found: list[DatabaseRow], chosen: str, min_likelihood: float = 0.0, known: Mapping[str, Statement] = KNOWN
) -> tuple[Labels, dict[str, NDArray[np.int64]]]:
    """Labels of all, and the rows of each split."""
    labels = label_records(collect_likelihoods(found, known), known, chosen, min_likelihood)
    return labels, select_rows(np.array([entry.fold for entry in found]), labels)


def labels_of(codes: str, chosen: str, min_likelihood: float = 0.0) -> list[str]:
    found = label_records(
        collect_likelihoods(entries(row(1, codes, 1)), KNOWN), KNOWN, chosen, min_likelihood
    )
    return [name for name, value in zip(found.names, found.values[0], strict=True) if value]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("all", ["LVOLT", "NORM", "SR"]),
        ("diagnostic", ["NORM"]),
        ("subdiagnostic", ["NORM"]),
        ("superdiagnostic", ["NORM"]),
        ("form", ["LVOLT"]),
        ("rhythm", ["SR"]),
    ],
)
def test_every_code_is_a_label_whatever_its_likelihood(chosen: str, expected: list[str]) -> None:
    assert labels_of("{'NORM': 0.0, 'LVOLT': 0.0, 'SR': 0.0}", chosen) == expected


def test_a_threshold_is_for_diagnoses_only() -> None:
    codes = "{'NORM': 49.9, 'IMI': 50, 'LVOLT': 0.0, 'SR': 0.0}"
    assert labels_of(codes, "all", 50) == ["IMI", "LVOLT", "SR"]
    assert labels_of(codes, "superdiagnostic", 50) == ["MI"]
    assert labels_of(codes, "rhythm", 50) == ["SR"]
    assert labels_of("{'NDT': 10.0}", "form", 50) == [], "NDT is a diagnosis too"


def test_codes_of_one_class_are_one_label() -> None:
    said = collect_likelihoods(entries(row(1, "{'NDT': 1.0, 'IMI': 1.0}", 1)), KNOWN)
    found = label_records(said, KNOWN, "superdiagnostic")
    assert found.names == ("MI", "NORM", "STTC")
    assert found.values.tolist() == [[1, 0, 1]]


def test_classes_are_those_of_the_statements_sorted() -> None:
    assert list_classes("all", KNOWN) == ("AFIB", "IMI", "LVOLT", "NDT", "NORM", "SR")
    assert list_classes("form", KNOWN) == ("LVOLT", "NDT")
    assert list_classes("superdiagnostic", KNOWN) == ("MI", "NORM", "STTC")


def test_folds_make_splits_and_records_without_a_label_are_in_none() -> None:
    found = entries(*SMALL_ROWS)
    _, rows = labelled(found, "superdiagnostic")
    ids = {split: [found[number].ecg_id for number in numbers] for split, numbers in rows.items()}
    assert ids == {"train": [1, 2, 4], "validation": [5, 6], "test": [7, 8]}
    assert sum(map(len, labelled(found, "all")[1].values())) == 9


def test_a_split_without_a_record_is_refused() -> None:
    found = entries(*SMALL_ROWS[:4])
    with pytest.raises(DataError, match="no record with a label of this set is for validation"):
        labelled(found, "all")


def test_a_patient_in_two_splits_is_refused() -> None:
    same = row(2, "{}", 8, patient=1)
    assert len(entries(row(1, "{}", 1), same)) == 2
    with pytest.raises(DataError, match="patient 1 is in two splits: ecg_id 1 in train, 2 in test"):
        entries(row(1, "{}", 1), row(2, "{}", 10, patient=1))


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (row(2, "{'XYZ': 1.0}", 1), "scp_codes: 'XYZ' is not in scp_statements.csv"),
        (row(2, "{'SR': 101.0}", 1), "the likelihood of SR is 101.0, not a number from 0 to 100"),
        (row(2, "{'SR': '1'}", 1), "the likelihood of SR is '1', not"),
        (row(2, "{'SR': True}", 1), "the likelihood of SR is True, not"),
        (row(2, "{'SR': 1e999}", 1), "the likelihood of SR is inf, not"),
        (row(2, "{'SR': 0.0", 1), "which is no mapping of codes"),
        (row(2, "{[]: 0.0}", 1), "which is no mapping of codes"),
        (row(2, "__import__('os').getcwd()", 1), "which is no mapping of codes"),
        (row(2, "{}", 0), "strat_fold is 0, and must be from 1 to 10"),
        (row(2, "{}", 11), "strat_fold is 11, and must be from 1 to 10"),
        (row(1, "{}", 1), "ecg_id 1 is there twice"),
        (row(2, "{}", 1).replace("2.0", "2.5"), "patient_id is '2.5', which is no whole number"),
        (row(2, "{}", 1).replace("2.0", ""), "patient_id is '', which is no whole number"),
        (
            row(2, "{}", 1).replace("records100", "../x"),
            "filename_lr is '../x/00000/00002_lr', which is no path",
        ),
        (row(2, "{}", 1).replace("records500", "/x"), "filename_hr is '/x/00000/00002_hr', which is no path"),
        (row(2, "{}", 1) + ",more", "8 fields instead of 7"),
        ("2,2.0", "2 fields instead of 7"),
        ('2,"x"y,,,,,', "',' expected after '\"'"),
    ],
)
def test_what_is_wrong_in_the_database_is_reported_with_its_line(line: str, fault: str) -> None:
    with pytest.raises(DataError) as caught:
        entries(row(1, "{'SR': 0.0}", 1), line)
    assert str(caught.value).startswith(f"{DATABASE}, line 3")
    assert fault in str(caught.value)


def test_the_line_counts_lines_within_a_report() -> None:
    report = row(1, "{}", 1).replace("ein, zwei", "ein\nzwei")
    assert entries(report)[0].ecg_id == 1
    with pytest.raises(DataError, match="line 4: ecg_id 1 is there twice"):
        entries(report, row(1, "{}", 1))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "must name these columns once: ecg_id, patient_id"),
        (database().replace(b"strat_fold", b"fold"), "must name these columns once: strat_fold"),
        (database().replace(b"report", b"ecg_id"), "must name these columns once: ecg_id"),
        (database(), "no rows after the header"),
        (
            database("\xe4".encode("latin-1").decode("latin-1")).replace(b"\xc3\xa4", b"\xe4"),
            "line 2: is not UTF-8",
        ),
    ],
)
def test_what_is_no_database_is_refused(content: bytes, fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        parse_database(content, KNOWN)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("NORM,again,1.0,,,NORM,NORM", "line 8: 'NORM' again"),
        (",none,1.0,,,NORM,NORM", "line 8: a statement without a code"),
        ("NEW,new,yes,,,NORM,NORM", "line 8: diagnostic is 'yes', and must be 1.0 or empty"),
        ("NEW,new,1.0,,,NORM,", "line 8: 'NEW' is diagnostic but has no"),
    ],
)
def test_what_is_wrong_in_the_statements_is_reported_with_its_line(line: str, fault: str) -> None:
    with pytest.raises(DataError, match=f"scp_statements.csv, {fault}"):
        parse_statements((STATEMENTS + line + "\n").encode())


@pytest.mark.parametrize("chosen", SETS)
def test_the_published_statements_give_the_published_classes(chosen: str, published: Path) -> None:
    statements = parse_statements((published / "scp_statements.csv").read_bytes())
    names = list_classes(chosen, statements)
    assert len(names) == CLASS_COUNTS[chosen]
    assert list(names) == sorted(names)


def test_labels_equal_those_behind_the_published_predictions(published: Path, samples: Path) -> None:
    """Fold 9 and 10 of the first 500 records are the first rows of the published label arrays."""
    reference = samples / "ptbxl-reference-predictions"
    statements = parse_statements((published / "scp_statements.csv").read_bytes())
    found = parse_database((published / "ptbxl_database.csv").read_bytes(), statements)
    labels, rows = labelled(found, "all", known=statements)
    assert list(labels.names) == (reference / "classes.txt").read_text(encoding="utf-8").split()
    for split, name, count in (("validation", "val", 81), ("test", "test", 66)):
        with np.load(reference / f"{name}.npz") as arrays:
            assert np.array_equal(labels.values[rows[split]], arrays["y_true"][:count])
        assert len(rows[split]) == count


def test_the_first_500_records_have_the_counted_superclasses(published: Path) -> None:
    statements = parse_statements((published / "scp_statements.csv").read_bytes())
    found = parse_database((published / "ptbxl_database.csv").read_bytes(), statements)
    labels, _ = labelled(found, "superdiagnostic", known=statements)
    counts = dict(zip(labels.names, labels.values.sum(axis=0).tolist(), strict=True))
    assert counts == {"CD": 78, "HYP": 40, "MI": 73, "NORM": 297, "STTC": 96}
    assert (labels.values.sum(axis=1) == 0).sum() == 12
    assert len({entry.patient for entry in found}) == 466


@pytest.mark.parametrize(
    ("records", "version"),
    [(21_837, "1.0.0 or 1.0.1"), (21_801, "1.0.2"), (21_799, "1.0.3"), (500, "subset")],
)
def test_the_number_of_records_tells_the_version(records: int, version: str) -> None:
    assert find_version(records) == version
    assert set(EXAMPLE_COUNTS) == set(SUPERCLASS_COUNTS) == {"1.0.0 or 1.0.1", "1.0.3"}


def test_counts_that_are_not_the_published_ones_are_reported() -> None:
    labels, rows = labelled(entries(*SMALL_ROWS), "superdiagnostic")
    values = {split: labels.values[numbers] for split, numbers in rows.items()}
    found = compare_with_published("1.0.3", "superdiagnostic", labels.names, values)
    assert found[0] == "the statements file gives 3 superdiagnostic classes, the published one 5"
    assert "train has 3 examples of set superdiagnostic, version 1.0.3 17,084" in found
    assert any(text.startswith("test has {'MI': 1, 'NORM': 1, 'STTC': 0} of each class") for text in found)
    assert len(found) == 6
    assert compare_with_published("1.0.2", "superdiagnostic", labels.names, values) == found[:1]


def test_the_published_counts_are_no_difference() -> None:
    names = ("CD", "HYP", "MI", "NORM", "STTC")
    values = {}
    for split, count in EXAMPLE_COUNTS["1.0.3"]["superdiagnostic"].items():
        values[split] = np.zeros((count, 5), np.uint8)
        for index, name in enumerate(names):
            values[split][: SUPERCLASS_COUNTS["1.0.3"].get(split, {}).get(name, 0), index] = 1
    assert compare_with_published("1.0.3", "superdiagnostic", names, values) == []
