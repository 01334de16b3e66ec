import errno
import os
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd
import pyarrow
import pytest
from answers_file import write_answers
from compared_runs import answered, kept, right, scored
from numpy.typing import NDArray
from pyarrow import parquet

from msbench.errors import DataError
from msbench.reporting.outcomes import FoundRun
from msbench.results.predictions import RUN_KEY, read_correct, read_examples, read_properties, read_scores


def scores_of(run: FoundRun) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    return read_scores(run.folder, run.record.run_id)


def test_one_label_an_example(tmp_path: Path) -> None:
    given = right(30, 0.6, seed=0)
    run = kept(tmp_path, "mamba", answered(given))
    labels, correct = read_correct(run.folder, run.record.run_id)
    assert np.array_equal(read_examples(run.folder, run.record.run_id), np.arange(30))
    assert np.array_equal(correct, given)
    assert np.array_equal(labels, np.arange(30) % 2)


def test_properties_of_the_examples(tmp_path: Path) -> None:
    run = kept(tmp_path, "mamba", answered(right(30, 0.6, seed=0)))
    assert read_properties(run.folder, run.record.run_id) == {}
    predictions, lengths = answered(right(30, 0.6, seed=0)), np.arange(30) + 5
    path = run.folder / "predictions.parquet"
    write_answers(path, predictions, run.record.run_id, {"length": lengths, "of_reach": -lengths})
    found = read_properties(run.folder, run.record.run_id)
    assert list(found) == ["length", "of_reach"]
    assert np.array_equal(found["length"], lengths)
    assert np.array_equal(found["of_reach"], -lengths)
    with pytest.raises(ValueError, match="'label_of'"):
        write_answers(path, predictions, run.record.run_id, {"label_of": lengths})


def test_several_labels_an_example(tmp_path: Path) -> None:
    predictions = scored(30, 1.0, seed=1)
    labels, scores = scores_of(kept(tmp_path, "mamba", predictions))
    assert np.array_equal(labels, predictions.labels)
    assert np.array_equal(scores, predictions.logits)


def test_more_than_ten_classes_keep_their_order(tmp_path: Path) -> None:
    predictions = scored(20, 1.0, seed=1)
    wide = type(predictions)(np.tile(predictions.logits, 4), np.tile(predictions.labels, 4))
    labels, scores = scores_of(kept(tmp_path, "mamba", wide))
    assert np.array_equal(labels, wide.labels)
    assert np.array_equal(scores, wide.logits)


def test_files_that_are_absent_damaged_or_of_another_task(tmp_path: Path) -> None:
    run = kept(tmp_path, "mamba", answered(right(30, 0.6, 0)))
    folder, run_id = run.folder, run.record.run_id
    file = folder / "predictions.parquet"
    with pytest.raises(DataError, match=r"predictions.parquet: no column 'label_0'"):
        read_scores(folder, run_id)
    ecg = kept(tmp_path, "ecg", scored(30, 1.0, 0))
    with pytest.raises(DataError, match="no column 'label'"):
        read_correct(ecg.folder, ecg.record.run_id)
    whole = file.read_bytes()
    for cut in (b"", b"nothing", whole[: len(whole) // 2], bytes(len(whole))):
        file.write_bytes(cut)
        with pytest.raises(DataError, match=rf"{file}: cannot be read: .*--fresh"):
            read_correct(folder, run_id)
    file.write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
    with pytest.raises(DataError, match="cannot be read"):
        read_correct(folder, run_id)
    file.unlink()
    file.mkdir()
    with pytest.raises(DataError, match=rf"{file}: cannot be read: not a regular file; train"):
        read_correct(folder, run_id)
    file.rmdir()
    with pytest.raises(DataError, match=rf"{file}: missing"):
        read_correct(folder, run_id)


def test_a_flipped_bit_of_an_answer_is_found(tmp_path: Path) -> None:
    run = kept(tmp_path, "mamba", answered(right(200, 0.6, 0)))
    folder, run_id = run.folder, run.record.run_id
    file, columns = folder / "predictions.parquet", parquet.ParquetFile(folder / "predictions.parquet")
    (group,) = (columns.metadata.row_group(number) for number in range(columns.num_row_groups))
    chunks = {
        group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)
    }
    whole = file.read_bytes()
    for name in ("label", "correct"):
        # The last bytes of a column are of its values; the first ones are headers.
        chunk = chunks[name]
        start = chunk.dictionary_page_offset or chunk.data_page_offset
        end = start + chunk.total_compressed_size
        for place in range(end - 20, end):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(DataError, match=rf"{file}: cannot be read: .*--fresh"):
                read_correct(folder, run_id)
    file.write_bytes(whole)
    assert len(read_correct(folder, run_id)[0]) == 200


def test_answers_of_another_run_are_refused(tmp_path: Path) -> None:
    mine, other = (kept(tmp_path, model, answered(right(30, 0.6, 0))) for model in ("mamba", "griffin"))
    file = mine.folder / "predictions.parquet"
    file.write_bytes((other.folder / "predictions.parquet").read_bytes())
    with pytest.raises(
        DataError, match=rf"belongs to run '{other.record.run_id}', not to {mine.record.run_id}"
    ):
        read_correct(mine.folder, mine.record.run_id)


def test_answers_of_a_version_that_wrote_no_id_are_read(tmp_path: Path) -> None:
    run = kept(tmp_path, "mamba", answered(right(30, 0.6, 0)))
    file = run.folder / "predictions.parquet"
    pd.read_parquet(file).to_parquet(file, index=False, write_page_checksum=True)
    assert len(read_correct(run.folder, run.record.run_id)[0]) == 30


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    given = right(30, 0.6, seed=0)
    run = kept(tmp_path / os.fsdecode(b"caf\xe9"), "mamba", answered(given))
    assert np.array_equal(read_correct(run.folder, run.record.run_id)[1], given)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ESTALE])
def test_what_cannot_be_opened_need_not_be_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    run = kept(tmp_path, "mamba", answered(right(30, 0.6, 0)))

    def failing(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(DataError, match=f"cannot be read: {os.strerror(number)}; make it readable"):
        read_correct(run.folder, run.record.run_id)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        *(("label", values) for values in (["a"] * 30, ["1"] * 30, [None] * 30, [[1]] * 30, [{"a": 1}] * 30)),
        *(("label", values) for values in ([0, None] * 15, [1.0] * 30, [True] * 30, [b"1"] * 30)),
        *(("correct", values) for values in (["yes"] * 30, [1] * 30, [True, None] * 15, [None] * 30)),
        *(("example", values) for values in (["a"] * 30, [[1]] * 30, [0.5] * 30)),
    ],
)
def test_a_column_of_another_type_or_with_gaps_is_refused(
    tmp_path: Path, column: str, values: list[object]
) -> None:
    run = kept(tmp_path, "mamba", answered(right(30, 0.6, 0)))
    file = run.folder / "predictions.parquet"
    table = parquet.read_table(file)
    metadata, place = table.schema.metadata, table.schema.get_field_index(column)
    parquet.write_table(
        table.set_column(place, column, pyarrow.array(values)).replace_schema_metadata(metadata), file
    )
    with pytest.raises(DataError, match=rf"{file}: column '{column}' has .*; train this run again"):
        (read_examples if column == "example" else read_correct)(run.folder, run.record.run_id)


def test_a_doubled_column_and_a_strange_run_id_are_refused(tmp_path: Path) -> None:
    run = kept(tmp_path, "mamba", answered(right(30, 0.6, 0)))
    file = run.folder / "predictions.parquet"
    table = parquet.read_table(file)
    parquet.write_table(table.append_column("label", table.column("label")), file)
    with pytest.raises(DataError, match=rf"{file}: several columns 'label'; train this run again"):
        read_correct(run.folder, run.record.run_id)
    parquet.write_table(table.replace_schema_metadata({RUN_KEY: b"\xff"}), file)
    with pytest.raises(DataError, match=rf"{file}: belongs to run '.*xff'"):
        read_correct(run.folder, run.record.run_id)


def test_scores_of_another_type_are_refused(tmp_path: Path) -> None:
    run = kept(tmp_path, "mamba", scored(30, 1.0, seed=1))
    file = run.folder / "predictions.parquet"
    table = parquet.read_table(file)
    place = table.schema.get_field_index("logit_1")
    parquet.write_table(table.set_column(place, "logit_1", pyarrow.array(["0.5"] * 30)), file)
    with pytest.raises(DataError, match=rf"{file}: column 'logit_1' has values of type string"):
        scores_of(run)
