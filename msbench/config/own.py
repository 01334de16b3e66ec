"""A user's own model or dataset, which a suite names by the place of its Python source.

::

    use: "my_package.my_model:build"    a module that Python finds, installed or in the current folder
    use: "./my_model.py:build"          a file next to the suite, or below its folder
    mamba-3: {}                         a name that a package gives it, as an entry point

The settings of such a thing are a class of the user's, derived from msbench's own: it is the annotation of
the first parameter of the function that takes them. Records hold the place without folders
(`my_model.py:build`), and it is no part of a run's id; the source itself is.
"""

import hashlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

from pydantic import create_model

from msbench.config.base import ClassifierConfig, Config, DataConfig
from msbench.config.definition import SourceTree
from msbench.config.layers import LocatedValues
from msbench.errors import ConfigError, get_first_line, suggest_name

C = TypeVar("C", bound=Config)
GUIDE = "docs/extending.md has a whole example"


@dataclass(frozen=True, eq=False)
class OwnCode:
    """Code of a user's that has been imported.

    Parameters
    ----------
    target : what `use` names: a function, a `Family` or an `ArchiveDataset`
    function : the function that takes the settings
    module, name : those of the target
    location : where it was found: a dotted module, or a file with all its folders, then ``:name``
    where : the file and line that name it, or the run whose record does
    sources : top-level modules and packages that are the user's, with their folders or files without ``.py``
    """

    target: Any
    function: Callable[..., Any]
    module: str
    name: str
    location: str
    where: str
    sources: tuple[tuple[str, Path], ...]

    @property
    def reference(self) -> str:
        """The place as records hold it, without folders."""
        place, _, name = self.location.rpartition(":")
        return f"{Path(place).name}:{name}"

    @property
    def suite(self) -> str:
        """The suite's file that names it; empty for a name on the command line or in a record."""
        return self.where.rpartition(":")[0]

    @property
    def root(self) -> str:
        """The statement that defines it, as `SourceTree` takes it."""
        return f"{self.module}:{self.name}"

    def find_root(self, function: Callable[..., Any]) -> str:
        """Return the statement that defines one of its functions; its own one, if that is not at the top."""
        module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
        return f"{module}:{name}" if getattr(sys.modules.get(module), name, None) is function else self.root

    def digest_source(self) -> str:
        """Return one sha256 over all of the user's statements that it reaches, and over none of msbench's."""
        return SourceTree(self.sources[0][1], own=dict(self.sources)).digest_definition([self.root]).digest

    def error(self, key: str, problem: str) -> ConfigError:
        """Return the error for what is wrong with it, with its line and the key of the suite."""
        return ConfigError(f"{self.where}: {key}: {self.location}: {problem}")

    def describe_failure(self, error: Exception) -> str:
        """Return the error that its code raised, with the last of the user's lines that it came through."""
        files = tuple(str(path) for _, path in self.sources)
        frames = traceback.extract_tb(error.__traceback__)
        where = [
            f" ({each.filename}, line {each.lineno})" for each in frames if each.filename.startswith(files)
        ]
        return f"{type(error).__name__}: {get_first_line(error)}{''.join(where[-1:])}"


def find_own(config: Config) -> OwnCode | None:
    """Return the user's code that these settings are for, or None if it is msbench's own."""
    return getattr(type(config), "own_code", None)


def derive_config(part: LocatedValues, reference: str, kind: Literal["model", "dataset"]) -> type[Config]:
    """Return the class of the settings of the model or dataset at `reference`, which is then imported.

    It is the user's class with two more fields that no one can set: `use`, and of data `dataset`. Raises
    ConfigError at the key ``use`` of `part` if the code is not there or does not have the form it must have.
    """
    try:
        return _derive_config(reference, kind, part.origin(("use",)))
    except ValueError as error:
        raise part.error(("use",), f"{reference}: {error}") from None


@cache
def _derive_config(reference: str, kind: Literal["model", "dataset"], where: str) -> type[Config]:
    place, _, name = reference.rpartition(":")
    if not place or not name.isidentifier():
        raise ValueError('must have the form "PACKAGE.MODULE:NAME" or "./FILE.py:NAME"')
    path = Path(place).resolve() if place.endswith(".py") else None
    module = _import_module(place) if path is None else _import_file(path)
    sources = _list_sources(module, path)
    if not hasattr(module, name):
        raise ValueError(f"there is no {name!r} in it{suggest_name(name, vars(module))}")
    target = getattr(module, name)
    part, base = ("build", ClassifierConfig) if kind == "model" else ("fill", DataConfig)
    function = getattr(target, part, target)
    if kind == "dataset" and function is target:
        raise ValueError(f"must be an ArchiveDataset, not {type(target).__name__}; {GUIDE}")
    settings = _find_settings(function, base, "info" if kind == "model" else "build")
    location = reference if path is None else f"{path}:{name}"
    code = OwnCode(target, function, module.__name__, name, location, where, sources)
    values = {"use": code.reference} | ({"dataset": str(target.name)} if kind == "dataset" else {})
    fields: dict[str, Any] = {key: (Literal[value], value) for key, value in values.items()}
    made = create_model(settings.__name__, __base__=settings, __module__=settings.__module__, **fields)
    made.own_code = code  # type: ignore[attr-defined]
    return made


def _find_settings(function: Any, base: type[Config], second: str) -> type[Config]:
    """Return the class that annotates the first of a function's two parameters."""
    wanted = f"(config, {second}), where config is annotated with {base.__name__} or a class derived from it"
    try:
        signature = inspect.signature(function, eval_str=True)
        signature.bind(None, None)
    except (TypeError, ValueError, NameError) as error:
        raise ValueError(f"must take {wanted} ({get_first_line(error)}); {GUIDE}") from None
    first = next(iter(signature.parameters.values())).annotation
    if not (isinstance(first, type) and issubclass(first, base)):
        raise ValueError(f"must take {wanted}, and takes {signature}; {GUIDE}")
    return first


def _import_module(dotted: str) -> ModuleType:
    """Import a module that Python finds, or that is in the current folder, in this order."""
    if dotted.startswith(".") or "/" in dotted:
        raise ValueError(f"{dotted} is no module; a file ends in .py: {dotted}.py")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    importlib.invalidate_caches()
    return _run_import(dotted, lambda: importlib.import_module(dotted))


def _import_file(path: Path) -> ModuleType:
    """Import a file under a name that no other file has; it may import those next to it, as a script may."""
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    loader, module = spec.loader, importlib.util.module_from_spec(spec)

    def execute() -> ModuleType:
        sys.modules[name] = module
        try:
            loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    return _run_import(path.name, execute)


def _run_import(name: str, execute: Callable[[], ModuleType]) -> ModuleType:
    """Import, and turn all that goes wrong into a ValueError that names the line."""
    try:
        return execute()
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ValueError(f"there is no module {error.name}, neither installed nor here") from None
        raise ValueError(f"cannot be imported: {error}{_locate(error)}") from None
    except (Exception, SystemExit) as error:
        text = f"{type(error).__name__}: {get_first_line(error)}"
        raise ValueError(f"cannot be imported: {text}{_locate(error)}") from None


def _locate(error: BaseException) -> str:
    """Return the last line of code that an error came from; an empty text where the error has its own."""
    if isinstance(error, SyntaxError):
        return ""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    return "".join(f" ({Path(each.filename).name}, line {each.lineno})" for each in last)


def _list_sources(module: ModuleType, path: Path | None) -> tuple[tuple[str, Path], ...]:
    """Return the user's top-level modules: the package of a module, or a file and all those next to it.

    Raises ValueError where the file imports another module than the one of this name next to it.
    """
    if path is None:
        first = module.__name__.partition(".")[0]
        top = sys.modules[first]
        folder = Path(next(iter(getattr(top, "__path__", [top.__file__]))))
        return ((first, folder.with_suffix("") if folder.is_file() else folder),)
    near = [each.with_suffix("") for each in sorted(path.parent.glob("*.py")) if each != path]
    near += [each.parent for each in sorted(path.parent.glob("*/__init__.py"))]
    text = path.read_text(encoding="utf-8")
    found = [(module.__name__, path.with_suffix(""))]
    for each in near:
        if re.search(rf"^\s*(from|import)\s+{re.escape(each.name)}\b", text, re.MULTILINE):
            other = getattr(sys.modules.get(each.name), "__file__", None) or each
            if not _is_same(Path(other), each):
                raise ValueError(f"imports {each.name} from {other}, not from the file next to it; rename it")
        found.append((each.name, each))
    return tuple(found)


def _is_same(loaded: Path, near: Path) -> bool:
    """Return True if a loaded module is that at `near` (a folder, or a file without suffix), or a copy."""
    file = near / "__init__.py" if near.is_dir() else near.with_suffix(".py")
    return loaded.resolve().is_relative_to(near.parent) or loaded.read_bytes() == file.read_bytes()


def find_entry_point(kind: Literal["model", "dataset"], name: str) -> str | None:
    """Return where a package has the model or dataset that it offers under this name; None if none does."""
    return list_entry_points(kind).get(name)


@cache
def list_entry_points(kind: Literal["model", "dataset"]) -> dict[str, str]:
    """Return the places of the models or datasets that installed packages offer, by name."""
    return {
        each.name: each.value.replace(" ", "") for each in metadata.entry_points(group=f"msbench.{kind}s")
    }
