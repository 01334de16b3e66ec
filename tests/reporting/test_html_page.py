import fnmatch
import re
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import timedelta
from importlib import resources
from pathlib import Path

import pytest
from html_pages import LOG, MADE, Reader, every_page, file, judged, listops, page, report, small
from report_runs import PlannedRun, build, run

from msbench.errors import ConfigError
from msbench.reporting.command import write_page
from msbench.reporting.figures import FigureFile
from msbench.reporting.render import formatting
from msbench.reporting.render.html.page import describe_outcome, render_page
from msbench.reporting.render.html.runs import GatheredRuns, gather_runs
from msbench.reporting.tables.cells import Cell, ClaimStanding, Column, Row, Table


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def test_the_page_is_well_formed_for_html_and_xml(results: Path) -> None:
    text = every_page(results)
    Reader(text)
    root = ET.fromstring(text)
    assert [child.tag for child in root] == ["head", "body"]
    assert text.startswith(b"<!DOCTYPE html>")


def test_ids_are_unique_and_every_link_leads_somewhere(results: Path) -> None:
    reader = Reader(every_page(results))
    ids = [each.get("id") for each in reader.elements if "id" in each.attributes]
    assert len(ids) == len(set(ids))
    links = [each.get("href") for each in reader.elements if "href" in each.attributes]
    assert len(links) > 50
    assert {link[0] for link in links} == {"#"}
    assert {link[1:] for link in links} <= set(ids)
    labels = {label for each in reader.elements for label in each.get("aria-labelledby").split()}
    assert labels <= set(ids)


def test_numbers_are_those_of_the_table(results: Path) -> None:
    reader, table = small(results)
    shown = [
        [cell.words for cell in reader.inside(row, "td")]
        for row in reader.all("tr")
        if row.within(**{"aria-labelledby": "table-small"}) and reader.inside(row, "td")
    ]
    expected = []
    for row in table.rows:
        parts = []
        numbers = [number for numbers in formatting.format_row(table, row) for number in numbers]
        for said, cell in zip(numbers, [c for c in row.cells for _ in (0, 1)], strict=True):
            text = said.value + (f" ± {said.sd}" if said.sd else "") + ",".join(said.marks)
            if said.value == formatting.format_measured(cell, table.columns[0]).value and cell.n:
                text += f"{cell.n} of 3 seeds" if cell.n < 3 else ""  # the caption has the others
            parts.append(text)
        expected.append(parts)
    assert shown == expected
    assert shown[0] == ["38.02a", "36.40 ± 0.30b"]
    assert shown[2] == ["--", "63.0 ± 1.4c2 of 3 seeds"]
    assert shown[3] == ["--", "div."]
    assert not any("(2/3)" in each.text for each in reader.all("li"))
    assert [each.text for each in reader.all("a", class_="best")] == ["63.0"]


def test_every_measured_number_leads_to_its_runs(results: Path) -> None:
    reader, table = small(results)
    measured = [cell for row in table.rows for cell in row.cells if cell.run_ids]
    links = [
        link
        for each in reader.all("td", class_="number")
        if each.within(**{"aria-labelledby": "table-small"})
        for link in reader.inside(each, "a")
        if ".cell-" in link.get("href")
    ]
    assert len(links) == len(measured) == 3
    for link, cell in zip(links, measured, strict=True):
        evidence = reader.named(link.get("href")[1:])
        runs = [each.get("href")[1:] for each in reader.inside(evidence, "a")]
        assert runs == [f"run-{identity}" for identity in cell.run_ids]
        for run_id in runs:
            section = reader.named(run_id)
            assert section.tag == "details"
            assert f"#{evidence.get('id')}" in [each.get("href") for each in reader.inside(section, "a")]


def test_a_run_shows_all_that_its_number_depends_on(results: Path) -> None:
    reader, table = small(results)
    (identity, *_) = table.rows[0].cells[0].run_ids
    section = reader.named(f"run-{identity}")
    # The suite of these runs is none that can be read.
    assert "No command reproduces it: unknown suite 'small'" in section.words
    pairs = dict(
        zip(
            (each.text for each in reader.inside(section, "dt")),
            (each.text for each in reader.inside(section, "dd")),
            strict=True,
        )
    )
    expected = {
        "test_accuracy": "0.361",
        "n_test": "2000",
        "trivial rule: majority": "0.17",
        "data.dataset": "listops",
        "model.layers": "2",
        "train.max_steps": "null",
        "data_digest": "data-1",
        "note": "9 of 10 parts",
        "source_digest": "source-1",
        "kernel": "cpp-avx2",
        "train_seconds": "12.5",
        "run": identity,
        "folder": f"small/listops/mamba/{identity}",
    }
    assert expected.items() <= pairs.items()
    for anchor in ("environment-1", "source-1"):
        assert f"#{anchor}" in [each.get("href") for each in reader.inside(section, "a")]
    assert "packages.torch2.11.0" in reader.named("environment-1").text
    assert "models/mamba.py0123456789abcdef" in reader.named("source-1").text


def test_all_is_there_without_scripts(results: Path) -> None:
    reader = Reader(every_page(results))
    hidden = [each for each in reader.elements if "hidden" in each.attributes]
    assert hidden
    assert {each.tag for each in hidden} == {"button"}
    screen, printed = reader.all("style")[0].text.split("@media print")
    hiding = r"^(.*)\{[^}]*(?:display: none|visibility: hidden)"
    assert re.findall(hiding, screen, flags=re.M) == ["[hidden] "]
    assert re.findall(hiding, printed, flags=re.M) == ["  .skip, nav, button "]


def test_tables_say_what_they_are_to_who_listens(results: Path) -> None:
    reader = Reader(every_page(results))
    tables = reader.all("table")
    assert len(tables) == 4
    for table in tables:
        assert len(reader.inside(table, "caption")) == 1
        assert any(each.get("tabindex") == "0" and each.get("role") == "region" for each in table.parents)
    assert {each.get("scope") for each in reader.all("th")} == {"row", "col", "colgroup", "rowgroup"}
    (skip,) = reader.all("a", class_="skip")
    assert reader.named(skip.get("href")[1:]).tag == "h2"


def test_verdicts_have_a_word_a_shape_and_a_reason(results: Path) -> None:
    table, records = listops()
    file(results, records)
    reader = Reader(page([judged(table, "pass", "fail", "diverged")], results, records))
    badges = reader.all("a", class_="verdict")
    assert [each.text for each in badges] == ["pass", "fail", "diverged"]
    for badge, reason in zip(badges, ("reason 0", "reason 1", "reason 2"), strict=True):
        (shape,) = reader.inside(badge, "use")
        assert reader.named(shape.get("href")[1:]).tag == "symbol"
        evidence = reader.named(badge.get("href")[1:])
        assert reason in evidence.text
        assert "38.02 − 0.50" in evidence.text
        assert "35.00 to ∞" in evidence.text
        assert "2 more seeds" in evidence.text
    tally = [each.text for each in reader.all("ul", class_="tally")]
    assert tally == ["1 pass1 fail1 diverged"]


def test_the_same_input_gives_the_same_bytes_but_for_the_time(results: Path) -> None:
    table, records = listops()
    file(results, records)
    first, again = page([table], results, records), page([table], results, records)
    assert first == again
    made = report([table], results, records)
    later = render_page(made, gather_runs(made), made=MADE + timedelta(days=1))
    pairs = zip(first.splitlines(), later.splitlines(), strict=True)
    changed = [pair for pair in pairs if len(set(pair)) > 1]
    assert len(changed) == 1
    assert b"2026-01-03 03:04 UTC" in changed[0][1]


def test_what_is_left_out_is_said() -> None:
    table, _ = listops()
    gathered = GatheredRuns({}, others=7, beyond=1)
    text = render_page(report([table], Path("results")), gathered, made=MADE).decode()
    assert "No number of this page has a run." in text
    assert "7 runs of the results folder not shown" in text
    assert "1 run more behind these numbers" in text


def test_without_figures_there_is_no_section_of_them(results: Path) -> None:
    reader, _ = small(results)
    assert "Figures" not in [each.text for each in (*reader.all("h2"), *reader.all("a"))]
    with_one, _ = small(results, figures=[FigureFile("distance", "Distance", "By layer.")])
    assert "Figures" in [each.text for each in with_one.all("h2")]
    (figure,) = with_one.all("figure", class_="drawing")
    assert figure.words == "Distance DistanceBy layer. By layer."


def test_a_figure_stands_below_its_table_and_once(results: Path) -> None:
    table, records = listops()
    file(results, records)
    drawn = [
        FigureFile(f"f{at}", f"Small: kind {at}", "Words.", table=name)
        for at, name in enumerate(("small", ""))
    ]
    reader = Reader(page([table, table], results, records, figures=drawn))
    first, other = reader.all("figure", class_="drawing")
    (section,) = [each for each in first.parents if each.tag == "section"]
    assert [each.get("id") for each in reader.inside(section, "h3")] == ["table-small"]
    assert first.words.startswith("Kind 0 ")
    assert not any(each.tag == "section" for each in other.parents)


def test_a_table_opens_with_a_plot_of_its_models_in_order(results: Path) -> None:
    reader, _ = small(results)
    (plot,) = reader.all("figure", class_="plot")
    names = [each.text for each in reader.all("span", class_="name")]
    assert names == ["msssm-s6", "S4", "Mamba", "lru"]
    values = [each.text for each in reader.all("span", class_="value")]
    assert values == ["63.00", "", "36.40", "3 of 3 diverged"]
    drawn = [each.get("class") for each in reader.inside(plot, "circle")]
    assert (drawn.count("dot"), drawn.count("seed")) == (2, 5)
    assert len([each for each in reader.inside(plot, "path") if each.get("class") == "diamond"]) == 2
    places = [float(each.get("cx").removesuffix("%")) for each in reader.inside(plot, "circle")]
    assert all(0 <= place <= 100 for place in places)
    assert plot.words.startswith("Accuracy (%), accuracy in percent; root operator only (36.30)")


def test_the_page_opens_with_the_outcome_of_each_table(results: Path) -> None:
    table, records = listops()
    file(results, records)
    for shown, expected in (
        (table, "highest mean: msssm-s6 with 63.00 on Accuracy (%)."),
        (judged(table, "pass", "fail"), "2 pass (Mamba, lru), 1 fail (msssm-s6)."),
    ):
        reader = Reader(page([shown], results, records))
        first = next(each for each in reader.all("li") if each.within(**{"aria-label": "Contents"}))
        assert first.words == f"{shown.heading}: {expected}"


def test_the_outcome_of_a_claim_is_a_sentence() -> None:
    agrees, undecided = ClaimStanding("agrees", ""), ClaimStanding("undecided", "")
    cells = [Cell(standing=agrees), *[Cell(standing=undecided)] * 4, Cell()]
    rows = tuple(Row(f"m{at}", "", f"m{at}", (cell,)) for at, cell in enumerate(cells))
    table = Table("t", "T", "C", (Column("a", "A"),), rows, base="m5")
    assert describe_outcome(table) == "of 5 compared with m5, 1 agrees with the paper (m0), 4 are undecided."


def test_two_tables_of_one_name_have_ids_of_their_own(results: Path) -> None:
    table, _ = listops()
    reader = Reader(page([table, table, replace(table, id="é")], results))
    links = [each.get("href") for each in reader.elements if each.within(**{"aria-label": "Contents"})]
    assert [link for link in links if "table" in link] == ["#table-small", "#table-small.2", "#table-table"]


def test_a_section_of_a_run_stays_small(results: Path) -> None:
    specs = [PlannedRun("listops", "mamba", seed) for seed in range(20)]
    epochs = "".join(f"{epoch},1,2.0{epoch},1.9,0.2,0.3{epoch}\n" for epoch in range(1000))
    records = [run(spec, 0.5 + spec.seed / 100) for spec in specs]
    file(results, records, LOG + epochs)
    tables = [build(specs[:count], records[:count]) for count in (20, 40)]
    few, many = (len(page([table], results, records)) for table in tables)
    assert (many - few) / 10 < 12_000


def test_the_file_is_written_whole_or_not_at_all(results: Path, tmp_path: Path) -> None:
    table, records = listops()
    file(results, records)
    found = report([table], results, records)
    (path,) = write_page(found, tmp_path / "out")
    assert path == tmp_path / "out" / "report.html"
    assert [each.name for each in path.parent.iterdir()] == ["report.html"]
    assert path.read_bytes().endswith(b"</html>\n")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="names a file"):
        write_page(found, tmp_path / "file")


def test_templates_come_with_an_installed_package() -> None:
    folder = resources.files("msbench.reporting.render.html") / "templates"
    names = {each.name for each in folder.iterdir()}
    assert {"page.html.j2", "style.css", "script.js", "shapes.svg"} <= names
    project = Path(__file__).parents[2] / "pyproject.toml"
    setuptools = tomllib.loads(project.read_text(encoding="utf-8"))["tool"]["setuptools"]
    for name in names:
        assert any(
            fnmatch.fnmatch(f"reporting/render/html/templates/{name}", pattern)
            for pattern in setuptools["package-data"]["msbench"]
        )
