"""What machines, editors, schedulers and strangers leave where a command reads and writes.

One fault at a time is laid into a whole home. The command that meets it says one thing, or nothing, and loses
nothing; without the fault it makes, to the bit, what it makes where there never was one.
"""

import hashlib
import json
import os
import pwd
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import commands
import image_files
import pandas as pd
import pytest
from campaign_home import Home, snapshot
from faulty_server import serving, whole
from image_files import wnid
from same_results import assert_same
from test_kills import CIFAR10, both, point, same_files
from whole_files import assert_whole, leftovers

from msbench import environment, models

pytestmark = pytest.mark.campaign
Lay = Callable[[Home], list[Path]]
"""Lays a fault; returns the paths that it made or changed."""


def do_nothing() -> None:
    pass


@dataclass(frozen=True)
class Fault:
    """A fault, the command that meets it, and what that says and ends in.

    Where `code` is None, the command says what it would without the fault. `before` is called in its process.
    """

    verb: str
    lay: Lay = lambda _home: []
    code: int | None = None
    says: str = ""
    before: commands.Before = do_nothing


def list_runs(home: Home) -> list[Path]:
    return sorted(home.results.glob("tiny/*/*/*"))


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def put(kind: str, *names: str) -> Lay:
    """Something of this kind under these names; after ``RUN/``, in the folder of the run that is to do."""

    def lay(home: Home) -> list[Path]:
        made = []
        for name in names:
            inner = name.removeprefix("RUN/")
            folders = (
                [home.root]
                if inner == name
                else [each for each in list_runs(home) if not any(each.iterdir())]
            )
            made += [make(folder / inner, kind, home.suite) for folder in folders]
        return made

    return lay


def make(path: Path, kind: str, target: Path) -> Path:
    remove(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "folder":
            (path / "within").mkdir(parents=True)
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(target)
        case "link to nothing":
            path.symlink_to("somebody@host.1234")
        case _:
            path.write_bytes(b"\x00\x05\x16\x07\xff")
    return path


def edit(pattern: str, change: Callable[[bytes], bytes]) -> Lay:
    """Change the content of every file of this name."""

    def lay(home: Home) -> list[Path]:
        found = sorted(home.root.glob(pattern))
        assert found
        for path in found:
            path.write_bytes(change(path.read_bytes()))
        return found

    return lay


def delete(pattern: str) -> Lay:
    """Delete the first file of this name."""

    def lay(home: Home) -> list[Path]:
        path = min(home.root.glob(pattern))
        path.unlink()
        return [path]

    return lay


def block_data(home: Home) -> list[Path]:
    """A pipe, which nobody writes to."""
    return [make(path, "pipe", home.suite) for path in home.data.glob("listops/*/train/tokens.npy")]


def of_windows(content: bytes) -> bytes:
    """What an editor of Windows makes of a text: a byte order mark, and lines that end in CRLF."""
    return b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")


def nest(_content: bytes) -> bytes:
    return b"[" * 10**5


def lack(key: str, content: bytes) -> bytes:
    """Take a key from a manifest, and make its checksum right again."""
    values = {name: value for name, value in json.loads(content).items() if name not in (key, "checksum")}
    checksum = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    return json.dumps({**values, "checksum": checksum}).encode()


def write_labels(change: Callable[[int], Any], home: Home) -> list[Path]:
    """Labels of another type in all predictions."""
    found = [folder / "predictions.parquet" for folder in list_runs(home)]
    for path in found:
        table = pd.read_parquet(path)
        table.assign(label=[change(label) for label in table["label"]]).to_parquet(path, index=False)
    return found


STRAY = (".DS_Store", "._run.json", "._tiny.yaml", "Thumbs.db", "desktop.ini", "notes.txt", "run (1).json~")
"""What macOS, Windows, editors and synchronised folders add."""


def litter(home: Home) -> list[Path]:
    """All of it in every folder, and links of an editor that lead nowhere."""
    (home.root / "suites").mkdir()
    folders = [path for path in home.root.rglob("*") if path.is_dir()]
    made = [make(folder / name, "file", home.suite) for folder in folders for name in STRAY]
    return made + [make(folder / ".#tiny.yaml", "link to nothing", home.suite) for folder in folders]


def copy_files(home: Home) -> list[Path]:
    """Copies of files of runs, as synchronised folders make them of what changed twice."""
    found = [
        path
        for folder in list_runs(home)
        for path in (folder / "run.json", folder / "metrics.csv", *(folder / "mixing").iterdir())
    ]
    return [Path(shutil.copy(path, path.with_name(f"{path.stem} (1){path.suffix}"))) for path in found]


def copy_runs(home: Home) -> list[Path]:
    """Copies of runs, as a file manager names them."""
    return [Path(shutil.copytree(folder, f"{folder} (copy)")) for folder in list_runs(home)]


def write_millions(home: Home) -> list[Path]:
    """A small suite of nine million runs, where suites are looked for."""
    path, numbers = home.root / "suites" / "large.yaml", range(3000)
    path.parent.mkdir()
    tasks = "".join(f"  task-{number}: {{data: {{dataset: listops}}}}\n" for number in numbers)
    head = f"name: large\ntitle: Large\nprotocol: scaled\ncaption: For tests.\nseeds: {list(numbers)}\n"
    path.write_text(f"{head}tasks:\n{tasks}models: {{mamba: {{}}}}\n", encoding="utf-8")
    return [path]


def lose_home() -> None:
    """No HOME, and a user that the system does not know, as in containers."""

    def find_none(user: int) -> pwd.struct_passwd:
        raise KeyError(user)

    for name in ("HOME", "MSBENCH_DATA", "XDG_CACHE_HOME"):
        os.environ.pop(name, None)
    pwd.getpwuid = find_none


def set_ranks(**values: str) -> None:
    os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", **values})


def allow_no_memory() -> None:
    """A control group above this process's own that has used up all it may."""
    top = Path("groups").absolute()
    (top / "job" / "step").mkdir(parents=True)
    for name in ("max", "current"):
        (top / "job" / f"memory.{name}").write_text("1048576\n", encoding="ascii")
    (top / "self").write_text("0::/job/step\n", encoding="ascii")
    environment.CGROUPS, environment.PROCESS_CGROUPS = top, top / "self"


def make_a_mistake() -> None:
    """An error in the code of a model, which leaves its traceback in ``run.log``."""

    def build(*_: object) -> None:
        raise RuntimeError("a mistake")

    models.build = build  # type: ignore[assignment]


MANIFEST = "data/listops/*/manifest.json"
MIXING = "results/tiny/*/*/*/mixing/*.json"
PART = "data/downloads/cifar10/cifar-10-binary.tar.gz.part"
CAPTION = b'"::error::owned\\n::add-mask::owned\\n##[error]owned"'
NO_REGULAR, OF_TYPE = "cannot be read: not a regular file", "parquet: column 'label' has values of type"
FAULTS = {
    "a data file cut short": Fault(
        "run", edit("data/*/*/train/tokens.npy", lambda old: old[:-9]), 6, "tokens.npy: has "
    ),
    "a pipe in place of a data file": Fault("run", block_data, 6, "tokens.npy: has 0 bytes instead of"),
    "an empty data file": Fault(
        "run", edit("data/*/*/test/labels.npy", lambda _: b""), 6, "labels.npy: has 0 bytes instead of"
    ),
    "a manifest that lacks splits": Fault(
        "run", edit(MANIFEST, partial(lack, "splits")), 6, "manifest.json: is damaged (splits: "
    ),
    "a manifest that lacks files": Fault(
        "run", edit(MANIFEST, partial(lack, "files")), 6, "manifest.json: is damaged (files: "
    ),
    "a manifest without end": Fault("run", edit(MANIFEST, nest), 6, "manifest.json: is damaged (nested"),
    **{
        f"a {kind} in place of {name}": Fault("run", put(kind, f"RUN/{name}"), code, f"{name}: {says}")
        for kind, name, code, says in (
            ("folder", "run.log", 3, "Is a directory"),
            ("folder", "metrics.csv", 3, "Is a directory"),
            ("folder", "predictions.parquet", 3, "Is a directory"),
            ("folder", "run.json", 2, NO_REGULAR),
            ("folder", "run.lock", 2, "cannot be used: Is a directory"),
            ("folder", "checkpoint/last.safetensors", 3, NO_REGULAR),
            ("file", "checkpoint", 3, "cannot be written: File exists"),
            ("pipe", "run.json", 2, NO_REGULAR),
            ("pipe", "checkpoint/last.safetensors", 3, NO_REGULAR),
            ("link", "checkpoint", 3, "cannot be written: File exists"),
            ("link", "run.lock", 2, "cannot be used: Too many levels"),
        )
    },
    "a mistake, and run.log as a folder": Fault(
        "run", put("folder", "RUN/run.log"), 3, "failed: a mistake", make_a_mistake
    ),
    "pipes that are replaced": Fault(
        "run", put("pipe", "RUN/run.log", "RUN/metrics.csv", "RUN/predictions.parquet", "RUN/run.lock")
    ),
    "links that are replaced": Fault(
        "run", put("link", "RUN/run.log", "RUN/metrics.csv", "RUN/predictions.parquet")
    ),
    "a pipe among suites": Fault("list", put("pipe", "suites/pipe.yaml"), 0, f"pipe.yaml: {NO_REGULAR}"),
    "a folder in place of a report": Fault(
        "report", put("folder", "reports/tiny.csv"), 2, "tiny.csv: cannot be written: Is a directory"
    ),
    "links in place of reports": Fault("report", put("link", "reports/tiny.csv", "reports/report.html")),
    **{f"stray files, for {verb}": Fault(verb, litter) for verb in ("run", "report", "mixing", "list")},
    "conflict copies of files": Fault("report", copy_files),
    "copies of runs": Fault("report", copy_runs, 0, "(copy): not read: its name is no run id"),
    "a suite of Windows": Fault("run", edit("tiny.yaml", of_windows)),
    "records of Windows": Fault("report", edit("results/tiny/*/*/*/run.json", of_windows)),
    "logs of Windows": Fault("report", edit("results/tiny/*/*/*/metrics.csv", of_windows)),
    "measures of Windows": Fault("report", edit(MIXING, of_windows)),
    "a baseline of Windows": Fault("check", edit("results/baseline/tiny.yaml", of_windows)),
    "labels that are texts": Fault("versus", partial(write_labels, str), 0, OF_TYPE),
    "no labels": Fault("versus", partial(write_labels, lambda _: None), 0, OF_TYPE),
    "labels that are lists": Fault("diff", partial(write_labels, lambda label: [label]), 0, OF_TYPE),
    "measures without end": Fault("report", edit(MIXING, nest), 0, "no mixing distances: nested too deeply"),
    "measures of another shape": Fault("report", edit(MIXING, lambda _: b"[1]"), 0, "no mixing distances"),
    "a suite of millions of runs": Fault(
        "list", write_millions, 0, "tasks × models × seeds are 9,000,000 runs, of at most 10,000"
    ),
    "commands of GitHub": Fault(
        "report", edit("tiny.yaml", lambda old: old.replace(b"For tests.", CAPTION)), 0, "owned"
    ),
    "a count that is no number": Fault(
        "run", code=2, says="WORLD_SIZE=x: must be", before=partial(set_ranks, WORLD_SIZE="x")
    ),
    "a port that is no number": Fault(
        "run", code=2, says="MASTER_PORT=x: must be", before=partial(set_ranks, MASTER_PORT="x")
    ),
    "no home folder": Fault("run", code=2, says="no home folder is known", before=lose_home),
    "no memory": Fault("run", before=allow_no_memory),
    "a pipe as a part": Fault("fetch", put("pipe", PART), 6, ".part cannot be written: not a regular file"),
    "a link as a part": Fault("fetch", put("link", PART), 6, ".part cannot be written: not a regular"),
    "a link as a part's version": Fault(
        "fetch", put("link", f"{PART}.json"), 6, ".part.json cannot be written: not a regular"
    ),
    "a link as hashes": Fault("fetch", put("link", "data/downloads/cifar10/.hashes.jsonl")),
    "an image deleted": Fault(
        "import", delete("data/imagenet/images/train/*/*.JPEG"), 6, "images/train: holds 5 files of"
    ),
    "stray files among images": Fault("import", put("file", "data/imagenet/images/train/.DS_Store")),
}


def list_words(verb: str, home: Home, source: Path) -> tuple[str | Path, ...]:
    match verb:
        case "run":
            return home.words("run", "--quiet")
        case "report":
            return home.words("report", "--csv", "--html", "--out", home.reports)
        case "versus":
            return home.words("report", "--versus", "mamba")
        case "mixing":
            return home.words("mixing", "--examples", "2", "--quiet", "--out", home.reports)
        case "diff":
            return ("diff", *(path.name for path in list_runs(home)), "--results", home.results)
        case "list":
            return ("list", "suites")
        case "fetch":
            return (
                "setup",
                "cifar10",
                "--quiet",
                *(word for each in CIFAR10.sets for word in ("--set", each)),
            )
        case "import":
            return ("setup", "imagenet", "--quiet", "--set", "data.verify=full", "--from", source)
    return home.words(verb)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archives of ImageNet, in little."""
    return image_files.published(tmp_path_factory.mktemp("imagenet"), [wnid(3), wnid(7)])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where CIFAR-10 is published, in little."""
    (archive,) = CIFAR10.build(tmp_path_factory.mktemp("published"))
    with serving(whole(archive.read_bytes())) as server:
        yield f"{server.url.rpartition('/')[0]}/{archive.name}"


def prepare(fault: Fault, home: Home, source: Path) -> None:
    """Undo what the command is to do, or do what it needs."""
    if fault.verb == "run":
        again = list_runs(home)[0]
        shutil.rmtree(again)
        again.mkdir()
    if fault.verb == "import":
        size = ("--set", "data.image_size=32")
        done = commands.run("setup", "imagenet", "--quiet", *size, "--from", source, data=home.data)
        assert done.code == 0, done.text


def undo(laid: dict[Path, int], home: Home, kept: Path) -> None:
    """Remove what was laid, if it is still there, and put back what was in its place."""
    for path, number in laid.items():
        if find_number(path) in (0, number):
            remove(path)
            if (old := kept / path.relative_to(home.root)).is_file():
                shutil.copy(old, path)


def find_number(path: Path) -> int:
    """The number of a file or link itself; 0 where there is none."""
    return os.lstat(path).st_ino if os.path.lexists(path) else 0


def arrays(home: Home) -> dict[str, bytes]:
    return {name: content for name, content in snapshot(home.data).items() if name.endswith(".npy")}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_message_and_without_it_all_is_as_ever(
    name: str, home: Home, unbroken: Home, tmp_path: Path, source: Path, url: str
) -> None:
    fault = FAULTS[name]
    prepare(fault, home, source)
    kept = Path(shutil.copytree(home.root, tmp_path / "kept"))
    words, data = list_words(fault.verb, home, source), home.data
    before = partial(both, partial(os.chdir, home.root), partial(point, "cifar10", url))
    laid = {path: find_number(path) for path in fault.lay(home)}
    there = snapshot(home.root)
    met = commands.run(*words, data=data, before=partial(both, before, fault.before))
    after = snapshot(home.root)
    assert "Traceback" not in met.text
    lost = {each for each in there if after.get(each) != there[each]}
    replaced = {str(path.relative_to(home.root)) for path in laid if fault.code is None}
    assert {each for each in lost if not each.startswith("reports")} <= replaced
    if fault.code is not None:
        assert met.code == fault.code, met.text
        assert fault.says in met.text
        lines = [line for line in met.text.splitlines() if not line.startswith("msbench: planning ")]
        messages = [line for line in lines if line.startswith("msbench: ")]
        assert len(messages) <= max(1, len(laid))
        assert all(fault.says in line for line in messages), met.text
        assert not re.search(r"^\s*::|##\[", met.text, re.MULTILINE)
        assert all(find_number(path) == number for path, number in laid.items())
    undo(laid, home, kept)
    again = commands.run(*words, data=data, before=before)
    assert again.code == (home.check_code if fault.verb == "check" else 0), again.text
    if fault.code is None:
        assert met == again
    assert_whole(home.root)
    assert leftovers(home.root) == []
    assert_same(home.results, unbroken.results)
    if fault.verb in ("fetch", "import"):
        clean = Home(kept)
        assert commands.run(*list_words(fault.verb, clean, source), data=clean.data, before=before).code == 0
        assert arrays(home) == arrays(clean) != arrays(unbroken)
    elif fault.verb == "report":
        same_files(home.reports, unbroken.reports, "*.csv")
