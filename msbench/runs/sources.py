"""The digest of the source that defines a run: the modules that its model and its training import."""

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
NATIVE = {"msbench.ops.native_library": "ops/native/*.[chi]*"}
"""Sources in another language, by the module that loads them."""
BATCHES = {
    "cifar10": ("msbench.datasets.pixels",),
    "mnist": ("msbench.datasets.pixels",),
    "imagenet": ("msbench.datasets.imagenet.split",),
}
"""Modules that make batches, by dataset, next to `msbench.datasets.dataset`: all other data are neutral."""
# Imports of these only provide messages, file handling and declarations; the resolved spec is hashed itself,
# and data have their own digest.
NEUTRAL = ("msbench.errors", "msbench.results", "msbench.config", "msbench.datasets")


@cache
def source_files(modules: tuple[str, ...]) -> dict[str, str]:
    """Return a short sha256 by file for `modules` and all of msbench that they import, directly or not.

    Only imports at the top of a module count, which is where this package keeps them. Line ends are
    normalised, so that a checkout with CRLF gives the same digests.
    """
    found: dict[str, str] = {}
    queue = list(modules)
    seen = set(queue)
    while queue:
        module = queue.pop()
        digests, imported = _module_source(module)
        found |= digests
        for name in imported:
            if name not in seen and not _neutral(name):
                seen.add(name)
                queue.append(name)
    return dict(sorted(found.items()))


@cache
def _module_source(module: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the digests of a module's files, and its imports: read once, however many models use it."""
    native = PACKAGE.glob(NATIVE[module]) if module in NATIVE else ()
    return _digests([_path(module), *native]), tuple(_imports(_path(module).read_bytes()))


def source_digest(files: dict[str, str]) -> str:
    """Return one sha256 over names and digests, in hex."""
    return hashlib.sha256(
        "\n".join(f"{name} {digest}" for name, digest in files.items()).encode()
    ).hexdigest()


def _digests(paths: Iterable[Path]) -> dict[str, str]:
    texts = {path: path.read_bytes().replace(b"\r\n", b"\n") for path in paths}
    return {
        path.relative_to(PACKAGE).as_posix(): hashlib.sha256(text).hexdigest()[:16]
        for path, text in texts.items()
    }


def _neutral(name: str) -> bool:
    within = any(name == prefix or name.startswith(prefix + ".") for prefix in NEUTRAL)
    return within and name != "msbench.datasets.dataset"


def _path(module: str) -> Path:
    relative = Path(*module.split(".")[1:])
    folder = PACKAGE / relative
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def _imports(text: bytes) -> Iterable[str]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("msbench"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("msbench"):
            assert node.module is not None
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if _path(submodule).exists() else node.module
