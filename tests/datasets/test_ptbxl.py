import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ecg_files import signal, write_record, write_small

from msbench.config.data import PtbXlConfig
from msbench.datasets import is_ready, open_dataset, outline, setup
from msbench.datasets.dataset import SPLITS, Dataset, Samples
from msbench.datasets.ptbxl.dataset import compute_mean_and_deviation, sum_moments
from msbench.datasets.ptbxl.labels import SETS
from msbench.errors import DataError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_small(tmp_path / "source" / "ptb-xl-1.0.3")


@pytest.fixture
def built(source: Path, tmp_path: Path) -> Callable[..., Dataset]:
    def build(**options: Any) -> Dataset:
        return setup(PtbXlConfig(**options), tmp_path / "data", source=source.parent, processes=1)

    return build


def inputs(dataset: Dataset, split: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    found = dataset.splits[split]
    batch = found.batch(np.arange(len(found)))
    assert batch.inputs.dtype == np.float32
    return batch.inputs  # type: ignore[return-value]


def test_signals_and_labels_are_those_of_the_files(built: Callable[..., Dataset]) -> None:
    dataset = built(labels="superdiagnostic", standardise=False)
    assert {name: len(split) for name, split in dataset.splits.items()} == {
        "train": 3,
        "validation": 2,
        "test": 2,
    }
    np.testing.assert_allclose(inputs(dataset, "validation")[1], signal(6) / 1000, rtol=1e-6)
    batch = dataset.splits["train"].batch(np.array([2, 0]))
    np.testing.assert_allclose(batch.inputs, np.stack([signal(4), signal(1)]) / 1000, rtol=1e-6)
    assert batch.labels.tolist() == [[0, 0, 1], [0, 1, 0]]
    assert batch.lengths.tolist() == [1000, 1000]
    assert dataset.manifest["classes"] == ["MI", "NORM", "STTC"]
    assert dataset.manifest["splits"]["train"]["labels"] == {"0": 1, "1": 1, "2": 1}


def test_padding_is_0_behind_the_signal(built: Callable[..., Dataset]) -> None:
    split = built().splits["test"]
    batch = split.batch(np.array([1]), pad_to=1010)
    assert batch.inputs.shape == (1, 1010, 12)
    assert not batch.inputs[0, 1000:].any()
    assert batch.lengths.tolist() == [1000]


def test_the_train_split_of_the_task_is_standardised(built: Callable[..., Dataset]) -> None:
    for labels in ("superdiagnostic", "rhythm"):
        dataset, plain = built(labels=labels), built(labels=labels, standardise=False)
        train = inputs(plain, "train").astype(np.float64)
        known = dataset.manifest["standardisation"]
        assert known["mean_mv"] == pytest.approx(train.mean(), rel=1e-6)
        assert known["deviation_mv"] == pytest.approx(train.std(), rel=1e-6)
        expected = (inputs(plain, "test") - train.mean()) / train.std()
        np.testing.assert_allclose(inputs(dataset, "test"), expected, atol=1e-5)
        assert inputs(dataset, "train").mean() == pytest.approx(0, abs=1e-5)
    assert plain.manifest["standardisation"] is None


def test_what_is_dropped_is_reported(built: Callable[..., Dataset]) -> None:
    dataset = built(labels="superdiagnostic")
    assert dataset.manifest["remarks"] == ["2 records dropped: no label in this set (superdiagnostic)"]
    assert not any("dropped" in note for note in dataset.manifest["notes"]), "which are no other data"
    assert dataset.manifest["records_dropped"] == 2
    assert built(labels="all").manifest["records_dropped"] == 0
    sure = built(labels="superdiagnostic", min_likelihood=50)
    assert [len(sure.splits[name]) for name in SPLITS] == [2, 2, 2]


def test_signals_are_kept_once_for_all_sets_of_labels(built: Callable[..., Dataset], tmp_path: Path) -> None:
    first = built().digest
    others = [PtbXlConfig(labels="rhythm"), PtbXlConfig(standardise=False), PtbXlConfig(min_likelihood=50)]
    digests = {open_dataset(config, tmp_path / "data").digest for config in others}
    assert len(digests | {first}) == 4
    assert built().digest == first
    assert len(list((tmp_path / "data").rglob("thousandths.npy"))) == 1
    split = built().splits["train"]
    assert isinstance(split, Samples)
    assert split.values.dtype == np.int16


def test_500_hz_is_resampled_into_data_of_its_own(built: Callable[..., Dataset], tmp_path: Path) -> None:
    low, high = built(standardise=False), built(rate=500, standardise=False)
    assert low.digest != high.digest
    assert inputs(high, "test").shape == (3, 1000, 12)
    assert np.abs(inputs(low, "test").mean(axis=1) - inputs(high, "test").mean(axis=1)).max() < 2e-3
    assert len(list((tmp_path / "data").rglob("thousandths.npy"))) == 2


def test_one_record_of_another_gain_turns_all_into_millivolts(
    source: Path, built: Callable[..., Dataset], tmp_path: Path
) -> None:
    write_record(source / "records100/00000/00009_lr", signal(9), "100 1000", "500(0)/mV")
    dataset = built(labels="all", standardise=False)
    assert list((tmp_path / "data").rglob("millivolts.npy"))
    np.testing.assert_allclose(inputs(dataset, "test")[-1], signal(9) / 500, rtol=1e-6)
    np.testing.assert_allclose(inputs(dataset, "train")[0], signal(1) / 1000, rtol=1e-6)
    standard = inputs(built(labels="all"), "train")
    assert (float(standard.mean()), float(standard.std())) == pytest.approx((0, 1), abs=1e-5)


def test_signals_change_their_type_behind_whole_blocks(
    source: Path, built: Callable[..., Dataset], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("msbench.datasets.ptbxl.ecg.BLOCK", 2)
    write_record(source / "records100/00000/00005_lr", signal(5), "100 1000", "500(0)/mV")
    dataset = built(labels="all", standardise=False)
    for split, numbers in (("train", (1, 2, 3, 4)), ("test", (7, 8, 9))):
        expected = np.stack([signal(number) for number in numbers]) / 1000
        np.testing.assert_allclose(inputs(dataset, split), expected, rtol=1e-6)
    np.testing.assert_allclose(inputs(dataset, "validation")[0], signal(5) / 500, rtol=1e-6)
    assert len(list((tmp_path / "data").rglob("millivolts.npy"))) == 1
    assert not list((tmp_path / "data").rglob("thousandths.npy"))


def test_repairs_are_counted_in_the_manifest(source: Path, built: Callable[..., Dataset]) -> None:
    digital = signal(3)
    digital[5:8, 2] = -(2**15)
    write_record(source / "records100/00000/00003_lr", digital, "100 1000", "1000/mV")
    dataset = built()
    assert dataset.manifest["repairs"] == {"samples_filled": 3}
    assert "repaired: 3 samples filled" in dataset.manifest["notes"]
    assert all(np.isfinite(inputs(dataset, name)).all() for name in SPLITS)


def test_a_record_that_is_wrong_leaves_nothing_behind(
    source: Path, built: Callable[..., Dataset], tmp_path: Path
) -> None:
    path = source / "records100/00000/00007_lr.dat"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match=r"records100/00000/00007_lr: 00007_lr.dat has 23,997 bytes"):
        built()
    assert not is_ready(PtbXlConfig(), tmp_path / "data")
    [left] = (tmp_path / "data" / "ptbxl").iterdir()
    assert left.name.endswith(".lock")


def test_a_zip_is_what_its_folder_is(source: Path, built: Callable[..., Dataset], tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "ptb-xl"), "zip", source.parent)
    for rate in (100, 500):
        config = PtbXlConfig(rate=rate)
        dataset = setup(config, tmp_path / "zipped", source=Path(archive), processes=1)
        for name in SPLITS:
            assert np.array_equal(inputs(dataset, name), inputs(built(rate=rate), name))


def test_without_files_it_says_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSBENCH_OFFLINE", "1")
    with pytest.raises(DataError, match=r"https://physionet.org/static/[\s\S]*msbench setup ptbxl"):
        setup(PtbXlConfig(), tmp_path)
    with pytest.raises(DataError, match="ptbxl is not set up in"):
        open_dataset(PtbXlConfig(), tmp_path)


def test_signals_that_are_all_the_same_cannot_be_standardised() -> None:
    same = np.full((3, 1000, 12), 1234, np.int16)
    with pytest.raises(DataError, match="are all the same"):
        compute_mean_and_deviation(sum_moments(same))
    same[0, 0, 0] += 1
    mean, deviation = compute_mean_and_deviation(sum_moments(same))
    assert (mean, deviation) == pytest.approx((same.mean(), same.std()), rel=1e-3)


def test_moments_of_the_largest_samples_are_exact() -> None:
    largest = np.full((1, 1000, 12), -(2**15), np.int16)
    assert sum_moments(largest).tolist() == [[-12_000 * 2**15, 12_000 * 2**30]]


@pytest.mark.parametrize(("copies", "fault"), [(0, "is nowhere in it"), (2, "is in a/.*, b/")])
def test_the_database_must_be_there_once(copies: int, fault: str, tmp_path: Path) -> None:
    for name in "ab"[:copies]:
        write_small(tmp_path / "source" / name)
    (tmp_path / "source").mkdir(exist_ok=True)
    with pytest.raises(DataError, match=f"ptbxl_database.csv must be there once, and {fault}"):
        setup(PtbXlConfig(), tmp_path / "data", source=tmp_path / "source")


@pytest.mark.parametrize(("labels", "count"), [*zip(SETS, (71, 44, 23, 5, 19, 12), strict=True)])
def test_the_first_500_records(
    labels: str, count: int, sample: Callable[..., Path], data_folder: Path
) -> None:
    folder = sample("ptbxl-500")
    config = PtbXlConfig(labels=labels)  # type: ignore[arg-type]
    dataset = setup(config, data_folder, source=folder, processes=1)
    assert dataset.info == outline(config)
    assert (dataset.info.classes, dataset.manifest["version"]) == (count, "subset")
    assert sum(map(len, dataset.splits.values())) + dataset.manifest["records_dropped"] == 500
    train = inputs(dataset, "train").astype(np.float64)
    assert (train.mean(), train.std()) == pytest.approx((0, 1), abs=1e-4)
    assert dataset.manifest["standardisation"]["deviation_mv"] == pytest.approx(0.23, abs=0.02)


def test_crops_are_parts_of_the_standardised_records(built: Callable[..., Dataset]) -> None:
    whole, cropped = built(labels="superdiagnostic"), built(labels="superdiagnostic", crop=250)
    assert (whole.info.longest, cropped.info.longest) == (1000, 250)
    assert outline(PtbXlConfig(crop=250)).longest == 250
    split = cropped.splits["test"]
    assert (len(split), split.crops) == (2, 7)
    batch = split.batch(np.arange(2))
    expected = inputs(whole, "test")
    for start, crop in zip(range(0, 751, 125), batch.inputs[7:], strict=True):
        assert np.array_equal(crop, expected[1, start : start + 250])
    assert cropped.manifest["standardisation"] == whole.manifest["standardisation"]
    assert cropped.manifest["splits"]["test"]["examples"] == 2
    assert built(labels="superdiagnostic", crop=250, crop_step=250).splits["test"].crops == 4


def test_crops_are_of_the_same_data_as_whole_records(built: Callable[..., Dataset]) -> None:
    digests = {
        built(crop=crop, crop_step=step).digest for crop, step in [(None, None), (250, None), (250, 50)]
    }
    assert len(digests) == 1, "rows of the table compare record by record"
    view = json.dumps({"labels": "all", "min_likelihood": 0.0, "standardise": True})
    kept = hashlib.sha256(f"{built().manifest['digest']}\n1\n{view}".encode()).hexdigest()
    assert built().digest == kept, "results from before there were crops stay comparable"
