"""Sixteen commands at once on one results folder, and two versions of the code."""

import hashlib
import json
import shutil
from collections import Counter

import commands
import pytest
from campaign_home import Home
from same_results import assert_same
from whole_files import assert_whole, leftovers

from msbench.config.definition import Definition
from msbench.results import store
from msbench.runs import identity

pytestmark = pytest.mark.campaign
MANY = 16


def test_sixteen_at_once_train_each_run_once(home: Home, unbroken: Home) -> None:
    """They have no data yet: one of them sets it up."""
    shutil.rmtree(home.results)
    shutil.rmtree(home.data)
    begun = [commands.start(*home.words("run"), data=home.data) for _ in range(MANY)]
    ended = [command.wait() for command in begun]
    assert [each.code for each in ended] == [0] * MANY, "\n".join(each.text for each in ended)
    epochs = Counter(
        line.split(", train loss")[0]
        for each in ended
        for line in each.text.splitlines()
        if ": epoch " in line
    )
    assert len(epochs) == 6
    assert set(epochs.values()) == {1}
    assert_same(home.results, unbroken.results)
    assert_whole(home.root)
    assert leftovers(home.root) == []


def another_version() -> None:
    """In this process the training loop's source is another."""
    original = identity.define

    def changed(roots: tuple[str, ...], own: identity.Sources = ()) -> Definition:
        found = original(roots, own)
        other = hashlib.sha256(f"another {found.digest}".encode()).hexdigest()
        return Definition(digest=other, files={**found.files, "training/loop.py": "0123456789abcdef"})

    identity.define = changed  # type: ignore[assignment]


def test_two_versions_of_the_code_side_by_side_are_both_kept_and_distinguished(
    home: Home, unbroken: Home
) -> None:
    shutil.rmtree(home.results / "tiny")
    begun = [
        commands.start(*home.words("run", "--quiet"), data=home.data, before=before)
        for before in (None, another_version)
    ]
    assert [command.wait().code for command in begun] == [0, 0]
    found, warnings = store.read_records(home.results)
    assert (len(found), warnings) == (4, [])
    assert len({record.run_id for record in found}) == 4
    assert len({record.source_digest for record in found}) == 4  # each model has its own modules, too
    for before in (None, another_version):
        kept = home.run("explain", "--json", before=before)
        assert [row["action"] for row in json.loads(kept.text)] == ["keep", "keep"]
    report = home.run("report")
    assert report.code == 0, report.text
    assert "on other data or from other source code left out" in report.text, report.text
    assert home.run("run", "--quiet").code == 0
    mine = {path.name for path in unbroken.results.glob("tiny/*/*/*")}
    assert mine < {path.name for path in home.results.glob("tiny/*/*/*")}


def test_a_lock_file_that_anybody_left_blocks_nobody(home: Home, unbroken: Home) -> None:
    for path in home.results.rglob("run.lock"):
        place = path.parent
        shutil.rmtree(place)
        place.mkdir()
        (place / "run.lock").write_bytes(b"pid 1 of another version\n" * 100)
    assert home.run("run", "--quiet").code == 0
    assert_same(home.results, unbroken.results)
