import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import filelock
import numpy as np
import pytest
from listops_trees import words_of, write_rows

from msbench import config as specs
from msbench import datasets as data
from msbench.config.data import ListOpsConfig
from msbench.datasets.archive_dataset import GENERATED
from msbench.datasets.dataset import Dataset, RaggedTokens
from msbench.datasets.listops import generate as listops_generate
from msbench.datasets.listops.dataset import FILES, LISTOPS
from msbench.datasets.listops.expressions import evaluate_expression
from msbench.errors import ConfigError, DataError

TINY = ListOpsConfig(train=60, validation=20, test=20, min_length=3, max_length=20, max_depth=4, max_args=3)
TINY_COMMAND = (
    "msbench setup listops --set data.train=60 --set data.validation=20 --set data.test=20"
    " --set data.min_length=3 --set data.max_length=20 --set data.max_depth=4 --set data.max_args=3"
)
RELEASE = ListOpsConfig(source="release")
GOLDEN = "c174e056a46174244c6c1bd1eba348704301744a8cdf28942fa83df659c6f42a"
GOLDEN_ARENA = "30dee6f23dcf262a255569e70e3ba67035ed450dfc4866350489b268412a045e"
ROWS = ["( ( ( [MAX 2 ) 4 ) ] )\t4", "7\t7"]

SETS_UP = """\
import sys
from pathlib import Path
from msbench import datasets as data
from msbench.config.data import ListOpsConfig

stages = set()
def progress(stage, done, total):
    if stage not in stages:
        stages.add(stage)
        print(stage, flush=True)

config = ListOpsConfig(train=60, validation=20, test=20, min_length=3, max_length=20, max_depth=4, max_args=3)
print(data.setup(config, Path(sys.argv[1]), progress=progress).digest)
"""


def split_of(dataset: Dataset, name: str) -> RaggedTokens:
    split = dataset.splits[name]
    assert isinstance(split, RaggedTokens)
    return split


def published(folder: Path, **rows: list[str]) -> Path:
    for split, name in FILES.items():
        write_rows(folder / name, rows.get(split, ROWS))
    return folder


def test_the_registry_has_what_the_specs_name() -> None:
    assert set(data.DATASETS) == set(specs.DATASETS)


def test_the_data_folder_is_looked_up_when_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path))
    assert data.data_root() == tmp_path
    monkeypatch.delenv("MSBENCH_DATA")
    assert data.data_root().parts[-1] == "data"
    assert "msbench" in data.data_root().parts


def test_set_up_generates_verifies_and_opens(tmp_path: Path) -> None:
    assert not data.is_ready(TINY, tmp_path)
    dataset = data.setup(TINY, tmp_path)
    assert data.is_ready(TINY, tmp_path)
    assert {name: len(split) for name, split in dataset.splits.items()} == {
        "train": 60,
        "validation": 20,
        "test": 20,
    }
    seen = set()
    for name in dataset.splits:
        split = split_of(dataset, name)
        for index in range(len(split)):
            words = words_of(split, index)
            assert 3 < len(words) < 20
            assert evaluate_expression(words) == split.labels[index]
            seen.add(tuple(words))
    assert len(seen) == 100, "no expression is in two splits"


def test_the_task_is_described(tmp_path: Path) -> None:
    dataset = data.setup(TINY, tmp_path)
    info = dataset.info
    assert (info.kind, info.vocabulary, info.classes, info.metric, info.chance) == (
        "tokens",
        18,
        10,
        "accuracy",
        0.1,
    )
    assert info.longest == max(int(split.lengths.max()) for split in dataset.splits.values())
    assert list(info.baselines) == [
        "majority",
        "root operator only",
        "top 1 level",
        "top 2 levels",
        "top 3 levels",
        "top 4 levels",
    ]
    assert info.baselines["top 3 levels"] == 1, "at max_depth 4 there are three levels of operators"


def test_the_manifest_says_where_the_data_come_from(tmp_path: Path) -> None:
    facts = data.setup(TINY, tmp_path).manifest
    assert facts["config"] == TINY.model_dump(mode="json")
    assert (facts["sources"], facts["licence"]) == ([], GENERATED)
    assert facts["generator"]["numpy"] == np.__version__
    assert facts["generator"]["draws"] > 100
    assert facts["splits"]["test"]["examples"] == sum(facts["splits"]["test"]["labels"].values()) == 20


@pytest.mark.parametrize(
    ("config", "digest"),
    [(TINY, GOLDEN), (ListOpsConfig(train=30, validation=10, test=10, seed=1), GOLDEN_ARENA)],
    ids=["tiny", "arena"],
)
def test_golden_digests(tmp_path: Path, config: ListOpsConfig, digest: str) -> None:
    """Where this fails after an upgrade of NumPy, its streams changed: raise listops_generate.VERSION."""
    assert data.setup(config, tmp_path).digest == digest


def test_two_processes_write_what_one_writes(tmp_path: Path) -> None:
    config = TINY.model_copy(update={"train": 4_000, "max_length": 60})
    one = data.setup(config, tmp_path / "one", processes=1)
    two = data.setup(config, tmp_path / "two", processes=2)
    assert one.digest == two.digest
    files = [LISTOPS.folder_of(config, tmp_path / root) / "manifest.json" for root in ("one", "two")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_configs_have_folders_of_their_own(tmp_path: Path) -> None:
    seeded = TINY.model_copy(update={"seed": 1})
    assert LISTOPS.folder_of(seeded, tmp_path) != LISTOPS.folder_of(TINY, tmp_path)
    assert data.setup(seeded, tmp_path).digest != data.setup(TINY, tmp_path).digest


def test_set_up_again_changes_nothing(tmp_path: Path) -> None:
    first = data.setup(TINY, tmp_path)
    folder = LISTOPS.folder_of(TINY, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    stages: list[str] = []
    assert data.setup(TINY, tmp_path, progress=lambda stage, *_: stages.append(stage)).digest == first.digest
    assert stages == []
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_data_that_are_absent_name_the_command(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"is not set up in .*: run `{TINY_COMMAND}`$"):
        data.open_dataset(TINY, tmp_path)
    with pytest.raises(DataError, match=r"run `msbench setup listops --from PATH`$"):
        data.open_dataset(RELEASE, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_damaged_data_are_refused_by_all_that_open_them(tmp_path: Path) -> None:
    data.setup(TINY, tmp_path)
    folder = LISTOPS.folder_of(TINY, tmp_path)
    path = folder / "train" / "tokens.npy"
    whole = bytearray(path.read_bytes())
    whole[-5] ^= 1
    path.write_bytes(whole)
    for opens in (data.open_dataset, data.setup):
        with pytest.raises(
            DataError, match=rf"{path}: is damaged.*delete {folder}, then run `{TINY_COMMAND}`$"
        ):
            opens(TINY, tmp_path)


def test_data_of_another_config_are_refused(tmp_path: Path) -> None:
    data.setup(TINY, tmp_path)
    seeded = TINY.model_copy(update={"seed": 1})
    LISTOPS.folder_of(TINY, tmp_path).rename(LISTOPS.folder_of(seeded, tmp_path))
    with pytest.raises(DataError, match=r"manifest\.json: is of another config: delete"):
        data.open_dataset(seeded, tmp_path)


def test_options_that_give_too_little_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no expression is longer than min_length 500"):
        ListOpsConfig(train=10, validation=1, test=1, max_depth=3, max_args=3)
    config = ListOpsConfig(train=9, validation=1, test=1, min_length=0, max_length=2)
    monkeypatch.setattr(listops_generate, "WINDOW", 2**14)
    with pytest.raises(DataError, match="11 different expressions are wanted, 10 were found"):
        data.setup(config, tmp_path)
    assert [path for path in (tmp_path / "listops").iterdir() if path.suffix != ".lock"] == []


def test_two_processes_at_once_build_once(tmp_path: Path) -> None:
    lock = filelock.FileLock(
        LISTOPS.folder_of(TINY, tmp_path).with_name(f".{LISTOPS.folder_of(TINY, tmp_path).name}.lock")
    )
    (tmp_path / "listops").mkdir()
    command = [sys.executable, "-c", SETS_UP, str(tmp_path)]
    with lock:
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        for process in both:
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting for another process\n"
    outputs = [process.communicate(timeout=60)[0].split("\n") for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("generating listops" in output for output in outputs) == 1
    assert outputs[0][-2] == outputs[1][-2] == data.open_dataset(TINY, tmp_path).digest


def test_the_published_files_are_imported(tmp_path: Path) -> None:
    source = published(tmp_path / "download", test=["3\t3"])
    dataset = data.setup(RELEASE, tmp_path / "root", source=source)
    assert words_of(split_of(dataset, "train"), 0) == ["[MAX", "2", "4", "]"]
    assert split_of(dataset, "test").labels.tolist() == [3]
    facts = dataset.manifest
    assert [entry["file"] for entry in facts["sources"]] == list(FILES.values())
    assert "none is stated" in facts["licence"]
    assert facts["notes"][2] == "basic_test.tsv has 1 rows, the published file 2,000"
    assert facts["duplicates_kept"] == 2
    shutil.rmtree(source)
    assert data.is_ready(RELEASE, tmp_path / "root")
    assert data.setup(RELEASE, tmp_path / "root").digest == dataset.digest


def test_an_import_again_must_be_of_the_same_files(tmp_path: Path) -> None:
    source, other = published(tmp_path / "a"), published(tmp_path / "b", validation=["3\t3"])
    first = data.setup(RELEASE, tmp_path / "root", source=source)
    assert data.setup(RELEASE, tmp_path / "root", source=source).digest == first.digest
    with pytest.raises(DataError, match=r"b: basic_val\.tsv is not the file that .*release was imported"):
        data.setup(RELEASE, tmp_path / "root", source=other)


def test_a_bad_row_leaves_nothing(tmp_path: Path) -> None:
    source = published(tmp_path / "download", test=["7\t7", "7\t8"])
    with pytest.raises(DataError, match=r"basic_test\.tsv, line 3: the target is 8"):
        data.setup(RELEASE, tmp_path / "root", source=source)
    assert not data.is_ready(RELEASE, tmp_path / "root")
    assert [path.name for path in (tmp_path / "root/listops").iterdir()] in ([], [".release.lock"])


def test_without_the_published_files_it_says_what_to_get(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        data.setup(RELEASE, tmp_path)
    _, *lines = str(caught.value).split("\n")
    assert [line.split()[0] for line in lines] == ["what:", "licence:", "where:"]
    assert "msbench setup listops --from PATH" in lines[2]


def test_options_that_contradict_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set source: release"):
        data.setup(TINY, tmp_path, source=tmp_path)
    with pytest.raises(ValueError, match="remove train, seed"):
        ListOpsConfig(source="release", train=5, seed=3)


def test_the_rows_of_the_original_generator_are_imported(sample: Callable[..., Path], tmp_path: Path) -> None:
    folder = sample("listops")
    for name in FILES.values():
        shutil.copyfile(folder / f"generated_{name}", tmp_path / name)
    dataset = data.setup(RELEASE, tmp_path / "root", source=tmp_path)
    assert dataset.info.longest == 1988
    text = (LISTOPS.folder_of(RELEASE, tmp_path / "root") / "manifest.json").read_text()
    assert json.loads(text)["splits"]["train"]["examples"] == 200


def test_the_outline_is_known_before_any_data(tmp_path: Path) -> None:
    outline, info = data.outline(TINY), data.setup(TINY, tmp_path).info
    assert (outline.vocabulary, outline.classes, outline.kind) == (info.vocabulary, info.classes, info.kind)
    assert outline.longest >= info.longest
    assert outline.baselines == {}
