"""`docs/python.md`: its blocks run in order in an empty folder, as the cells of a notebook do."""

import ast
import contextlib
import inspect
import io
import re
from pathlib import Path
from typing import Any

import pytest

import msbench

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
CELLS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Execute a cell; return the value of its last line where that is an expression, as a notebook does."""
    tree = ast.parse(source)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, "<cell>", "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def test_cells_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        shown = [run_cell(cell, names) for cell in CELLS]
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    pages = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert len(pages) == 7
    assert all("<table" in page for page in pages)
    assert [record.status for record in names["records"]] == ["finished", "finished"]
    assert list(names["frame"]["result"]) == [record.result for record in names["records"]]
    assert names["accuracy"] == names["records"][0].result
    assert not names["model"].training
    assert "did you mean 'mamba'" in printed.getvalue()


def test_options_are_those_of_the_functions() -> None:
    flat = re.sub(r"\s+", " ", TEXT)
    for function, end in (
        (msbench.plan, "are what they are on the"),
        (msbench.run, "are the options of the"),
        (msbench.report, ". A table shows"),
    ):
        named = set(re.findall(r"`([a-z]+)`", flat.partition(end)[0][-130:]))
        assert set(inspect.signature(function).parameters) >= named - {"lra", "overrides", "results"}
        assert len(named) > 3
