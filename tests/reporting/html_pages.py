"""Pages of small tables, and what a reader without a browser sees of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

from report_runs import ODD_NAMES, RULES, PlannedRun, build, printed, run

from msbench.reporting.figures import FigureFile
from msbench.reporting.render.html.page import render_page
from msbench.reporting.render.html.runs import gather_runs
from msbench.reporting.tables.cells import Judgement, Report, Table, Verdict, find_run_folder
from msbench.results.record import RunRecord, write_record

MADE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
VOID = frozenset({"meta", "br", "img", "link", "input", "hr"})
HOSTILE = [
    *ODD_NAMES,
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}{% raw %}${7*7}#{7*7}",
    "`${alert(1)}`",
    "javascript:alert(1)",
    "--><!--]]><![CDATA[",
    "&lt;&amp;&#60;",
    "left\u202eright\u2066\u200b",
    "\ufffe\uffff\udc80\x00",
]
"""Names that have got out of pages, or that hide."""
LOG = "epoch,step,train_loss,validation_loss,train_accuracy,validation_accuracy\n"


@dataclass
class Element:
    """An element as it was parsed; `text` is all text below it."""

    tag: str
    attributes: dict[str, str | None]
    parents: tuple["Element", ...] = ()
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def words(self) -> str:
        return " ".join(self.text.split())

    def get(self, name: str) -> str:
        return self.attributes.get(name) or ""

    def within(self, **attributes: str) -> bool:
        """True inside an element with all these attributes."""
        return any(all(each.get(k) == v for k, v in attributes.items()) for each in self.parents)


class Reader(HTMLParser):
    """The elements of a page, in order; an end that closes no start is an error."""

    def __init__(self, page: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self.open: list[Element] = []
        self.feed(page.decode())
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        self.elements.append(Element(tag, dict(attrs), tuple(self.open)))
        if tag not in VOID:
            self.open.append(self.elements[-1])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.parts.append(data)

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """Elements of this tag with all these attributes; `class_` is one of the classes."""
        wanted = attributes.pop("class_", None)
        return [
            element
            for element in self.elements
            if element.tag == tag
            and all(element.get(name) == value for name, value in attributes.items())
            and (wanted is None or wanted in element.get("class").split())
        ]

    def named(self, identity: str) -> Element:
        """The one element of this id."""
        (found,) = [element for element in self.elements if element.get("id") == identity]
        return found

    def inside(self, element: Element, tag: str) -> list[Element]:
        """Elements of this tag below `element`."""
        return [each for each in self.elements if each.tag == tag and any(p is element for p in each.parents)]


def file(results: Path, records: Iterable[RunRecord], log: str = LOG + "0,5,2.0,1.9,0.2,0.3\n") -> None:
    """Write the records where runs are kept, each with this log."""
    for record in records:
        folder = find_run_folder(results, record)
        write_record(folder, record)
        (folder / "metrics.csv").write_text(log, encoding="utf-8")


def report(tables: Sequence[Table], results: Path, records: Iterable[RunRecord] = ()) -> Report:
    """The report of these tables, made from these records."""
    by_id: dict[str, tuple[RunRecord, ...]] = {}
    for record in records:
        by_id[record.run_id] = (*by_id.get(record.run_id, ()), record)
    return Report(tuple(tables), results, by_id)


def page(tables: Sequence[Table], results: Path, records: Iterable[RunRecord] = (), **options: Any) -> bytes:
    """The page of these tables, made from these records."""
    made = report(tables, results, records)
    return render_page(made, gather_runs(made), made=MADE, **options)


def listops() -> tuple[Table, list[RunRecord]]:
    """A table with a full cell, one with a hole, one that diverged and reported rows; and its records."""
    specs = [PlannedRun("listops", name, seed) for name in ("mamba", "msssm-s6", "lru") for seed in range(3)]
    values = [0.361, 0.367, 0.364, 0.62, 0.64, None, None, None, None]
    records = [run(spec, value, **_facts(value is None)) for spec, value in zip(specs, values, strict=True)]
    cells = [printed("Mamba", "38.02", model="mamba", note="odd"), printed("S4", "59.60")]
    return build(specs, records, cells), records


def _facts(diverged: bool) -> dict[str, Any]:
    if diverged:
        failure = {"type": "Diverged", "message": "step 7: loss is nan", "step": 7}
        return {"status": "diverged", "failure": failure}
    return {
        "baselines": RULES,
        "environment": {"host": "laptop", "device": "cpu", "packages": {"torch": "2.11.0"}},
        "sources": {"models/mamba.py": "0123456789abcdef"},
        "kernel": "cpp-avx2",
        "data_notes": ("9 of 10 parts",),
        "timing": {"train_seconds": 12.5},
        "parameters": 1234,
    }


def small(results: Path, **options: Any) -> tuple[Reader, Table]:
    """The page of `listops`, read, and its table."""
    table, records = listops()
    file(results, records)
    return Reader(page([table], results, records, **options)), table


def judged(table: Table, *verdicts: Verdict) -> Table:
    """The table with these verdicts on its measured cells, in order, over and over."""
    rows, at = [], 0
    for row in table.rows:
        cells = []
        for cell in row.cells:
            if cell.n_planned:
                said = Judgement(verdicts[at % len(verdicts)], f"reason {at}", 0.3802, 0.005, 0.35, None, 2)
                cells.append(replace(cell, judgement=said))
                at += 1
            else:
                cells.append(cell)
        rows.append(replace(row, cells=tuple(cells)))
    return replace(table, rows=tuple(rows))


def every_page(results: Path) -> bytes:
    """A page with everything that one can hold."""
    table, records = listops()
    file(results, records)
    tables = [judged(table, *get_args(Verdict)), table]
    return page(
        tables,
        results,
        records,
        figures=[FigureFile("one", "One", "First."), FigureFile("two", "Two", "Second.")],
    )
