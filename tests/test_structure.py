"""The house: imports go down the list of rooms alone, and no file imports itself through others."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "msbench"
ROOMS = (
    *("cli", "analysis", "gate", "reporting", "stats", "runs"),
    *("training", "models", "ops", "datasets", "results", "config"),
)
"""From the top to the ground; the files next to them stand below all, but for those of `ENTRIES`."""
ENTRIES = ("msbench", "msbench.api", "msbench.__main__")
"""What a user starts from, above all rooms: the package itself imports its functions on first use."""
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def imports(path: Path) -> Iterator[str]:
    """Every module of the package that a file imports, at the top, in a function or for types."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("msbench"):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else str(node.module)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)


def room(module: str) -> int:
    """How high the module's room is, from 0 at the ground."""
    name = module.split(".")[1] if "." in module else ""
    return len(ROOMS) - ROOMS.index(name) if name in ROOMS else 0


def test_every_folder_is_a_room() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == set(ROOMS)
    files = {path.stem for path in PACKAGE.glob("*.py")}
    assert files == {"__init__", "__main__", "api", "console", "environment", "errors"}


def test_no_import_points_up() -> None:
    up = [
        f"{module} imports {other}"
        for module, path in MODULES.items()
        for other in imports(path)
        if (room(other) > room(module) or other == "msbench.api") and module not in ENTRIES
    ]
    assert up == []


def test_no_file_imports_itself_through_others() -> None:
    # Every module imports the package, which Python imports before any of them.
    graph = {module: set(imports(path)) - {module, "msbench"} for module, path in MODULES.items()}
    TopologicalSorter(graph).prepare()


def test_no_two_classes_share_a_name() -> None:
    places: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
