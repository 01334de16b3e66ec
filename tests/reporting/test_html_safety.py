import base64
import hashlib
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from html_pages import HOSTILE, LOG, Reader, every_page, file, page, small
from report_runs import PlannedRun, build, run

from msbench.console import printable
from msbench.reporting.tables.cells import Cell, Column, Row, Table

LOADING = ("src", "srcset", "poster", "data", "action", "formaction", "background", "manifest", "ping")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_nothing_is_loaded_from_anywhere(results: Path) -> None:
    text = every_page(results)
    reader = Reader(text)
    assert not [name for each in reader.elements for name in each.attributes if name in LOADING]
    assert not {"link", "iframe", "object", "embed", "img", "base", "form"} & {e.tag for e in reader.elements}
    assert b"://" not in text
    assert not re.search(rb"@import|url\((?!#)", text)


def test_the_policy_lets_the_one_script_run_and_nothing_else(results: Path) -> None:
    reader, _ = small(results)
    (script,) = reader.all("script")
    assert not script.attributes
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    (policy,) = reader.all("meta", **{"http-equiv": "Content-Security-Policy"})
    directives = dict(part.strip().split(" ", 1) for part in policy.get("content").split(";"))
    assert directives == {
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "script-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_hostile_names_are_printed_and_never_obeyed() -> None:
    tables = [
        Table(
            *(name, name, name, (Column("t", name),)),
            (Row(name, name, name, (Cell("1.00", notes=(name,)),), name),),
            (name,),
        )
        for name in HOSTILE
    ]
    text = page(tables, Path(HOSTILE[-9]))
    reader = Reader(text)
    heads = [each.text for each in reader.all("th", scope="row")]
    assert heads == [printable(name) for name in HOSTILE]
    captions = [each.text for each in reader.all("caption")]
    assert captions == [printable(name) for name in HOSTILE]
    assert len(reader.all("script")) == 1
    assert not reader.all("img") + reader.all("tag")
    assert not [name for each in reader.elements for name in each.attributes if name.startswith("on")]
    ET.fromstring(text)


def test_hostile_records_are_printed_and_never_obeyed(results: Path) -> None:
    texts = {f"key {name}": name for name in HOSTILE if name and "\udc80" not in name}
    spec = PlannedRun("listops", "mamba")
    record = run(spec, 0.5, environment=texts, sources=texts, kernel=HOSTILE[-9], data_notes=tuple(texts))
    record = record.model_copy(update={"spec": {**record.spec, "model": texts}, "classes": tuple(texts)})
    file(results, [record], LOG + f'{HOSTILE[-9]},"</script>",nan,inf,1,2\n0,1,2,nan,<b>,0.5\n')
    reader = Reader(page([build([spec], [record])], results, [record]))
    values = [each.text for each in reader.all("dd")]
    for key, value in texts.items():
        assert values.count(printable(value)) >= 3, key
    assert len(reader.all("script")) == 1
    assert not reader.all("img") + reader.all("tag")


def test_an_id_that_is_none_is_no_link(results: Path) -> None:
    table = Table("t", "T", "C", (Column("a", "A"),), (Row("m", "", "m", (Cell(run_ids=("x y", "../z")),)),))
    reader = Reader(page([table], results))
    (row,) = [each for each in reader.all("tr") if each.get("id") == "table-t.cell-1-1"]
    assert not reader.inside(row, "a")
    assert "x y../z" in row.words
