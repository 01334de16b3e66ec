"""The definition of a model and its training: the source that decides a result, and its digest.

The definition starts at a few functions and classes and follows every name that they use to the statement
at the top of a module that defines it. What counts of a statement is its syntax tree without docstrings,
imports, annotations, and the name that it defines. So a digest is the same after a file, a function or a
class was moved or renamed, and after comments, docstrings or the layout of lines changed; it is another one
after a constant, an operator or a call changed.

What is only found while running is not followed: a class that is passed in without being named, a module that
is imported by a name in a text, a registry that decorators fill. Such definitions must be named at the start.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

Key = tuple[str, int]
"""A statement at the top of a module: the module, and the statement's position."""

UNWRITTEN_DECORATORS = ("field_validator", "model_validator")
"""Decorators of functions that check settings: valid ones have a digest of their own."""
UNWRITTEN_FIELDS = ("annotation", "returns", "ctx", "kind", "type_comment")
"""Fields of syntax trees that decide no result."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, kw_only=True)
class Definition:
    """Digests of the source that decides a result.

    Parameters
    ----------
    digest : sha256 in hex, of all statements and of which statement uses which
    files : a short sha256 for each file, of those of its statements that count
    """

    digest: str
    files: dict[str, str]


class SourceTree:
    """The Python files of a package, each read once.

    Definitions end at the modules `without`. Where one uses a name of `instead`, as ``module:name``, the
    definitions that stand there for it are followed. So are those of the user's `own` packages and modules,
    given by name with their folder, or their file without its ``.py``.
    """

    def __init__(
        self,
        folder: Path,
        without: Sequence[str] = (),
        instead: Mapping[str, Sequence[str]] | None = None,
        own: Mapping[str, Path] | None = None,
    ) -> None:
        self.folder, self.without, self.instead, self.own = folder, without, instead or {}, own or {}
        self.package = folder.name
        self._modules: dict[str, _Module] = {}
        self._statements: dict[Key, _Statement] = {}

    def digest_definition(self, roots: Iterable[str]) -> Definition:
        """Return the digests of everything that `roots` use, as ``module:name``, or ``module`` for all of it.

        Raises LookupError if a module or name does not exist.
        """
        statements = self.walk(roots)
        return Definition(digest=_digest_statements(statements), files=self._digest_files(statements))

    def walk(self, roots: Iterable[str]) -> "dict[Key, _Statement]":
        """Return all statements that `roots` use, directly or not; raise LookupError as for a digest."""
        statements: dict[Key, _Statement] = {}
        queue = [key for root in roots for key in self._find_root(root)]
        while queue:
            key = queue.pop()
            if key not in statements:
                statements[key] = self.read_statement(key)
                queue += chain.from_iterable(statements[key].uses)
                queue += self.read_module(key[0]).effects
        return statements

    def find(self, module: str, name: str) -> tuple[Key, ...]:
        """Return the statements that define a name of a module, in the module that it was imported from."""
        if f"{module}:{name}" in self.instead:
            return tuple(key for root in self.instead[f"{module}:{name}"] for key in self._find_root(root))
        found = self.read_module(module)
        origin = found.imports.get(name, f"{module}.{name}")
        imported = origin != f"{module}.{name}"
        if name in found.names:
            # As in ``try: import name``, with a definition for where it cannot be imported.
            more = self.follow(origin) if imported and self.covers(origin) else ()
            return (*found.names[name], *more)
        if imported:
            return self.follow(origin)
        if self.has_module(origin):
            return self.find_all(origin)
        raise LookupError(f"{self.find_file(module)}: no {name} is defined here")

    def follow(self, origin: str) -> tuple[Key, ...]:
        """Return the statements behind a dotted name: those of a definition, or all of a module."""
        module, _, name = origin.rpartition(".")
        # What a package imports under the name of a submodule takes the submodule's place.
        return self.find(module, name) if self.has_module(module) else self.find_all(origin)

    def defines_several(self, key: Key) -> bool:
        """Return True if the statement defines more than one name."""
        return len(set(_find_defined(self.read_module(key[0]).statements[key[1]]))) > 1

    def is_left_out(self, module: str) -> bool:
        """Return True if definitions end before this module."""
        return any(module == name or module.startswith(f"{name}.") for name in self.without)

    def find_all(self, module: str) -> tuple[Key, ...]:
        """Return all statements of a module."""
        found = self.read_module(module)
        return tuple(dict.fromkeys(chain(*found.names.values(), found.effects)))

    def covers(self, dotted: str) -> bool:
        """Return True if a dotted name begins with the package, or with one of the user's own."""
        return (first := dotted.partition(".")[0]) == self.package or first in self.own

    def has_module(self, dotted: str) -> bool:
        """Return True if there is a module of this name."""
        return self.covers(dotted) and self.find_file(dotted).exists()

    def read_module(self, module: str) -> "_Module":
        """Return the statements of a module; raise LookupError if there is no such module."""
        if module not in self._modules:
            if not self.has_module(module):
                raise LookupError(f"{self.find_file(module)}: there is no module {module}")
            file = self.find_file(module)
            package = module if file.name == "__init__.py" else module.rpartition(".")[0]
            self._modules[module] = _index(module, package, ast.parse(file.read_bytes()).body)
        return self._modules[module]

    def read_statement(self, key: Key) -> "_Statement":
        """Return a statement in canonical form."""
        if key not in self._statements:
            module = self.read_module(key[0])
            tree = module.statements[key[1]]
            writer = _Writer(self, key[0], tree)
            # Effects have an order.
            order = f"{module.effects.index(key)}:" if key in module.effects else ""
            self._statements[key] = _Statement(order + writer.write(tree), tuple(writer.uses))
        return self._statements[key]

    def _find_root(self, root: str) -> tuple[Key, ...]:
        module, _, name = root.partition(":")
        return self.find(module, name) if name else self.find_all(module)

    def find_file(self, module: str) -> Path:
        """Return the path of a module, whether it exists or not."""
        first, *rest = module.split(".")
        path = self.own.get(first, self.folder.parent / first).joinpath(*rest)
        return path / "__init__.py" if path.is_dir() else path.with_name(f"{path.name}.py")

    def name_file(self, module: str) -> str:
        """Return the path of a module as records hold it: one of the user's own begins with ``own/``."""
        file, own = self.find_file(module), self.own.get(module.partition(".")[0])
        if own is None:
            return file.relative_to(self.folder).as_posix()
        return f"own/{file.relative_to(own.parent).as_posix()}"

    def _digest_files(self, statements: Mapping[Key, "_Statement"]) -> dict[str, str]:
        texts: dict[str, list[str]] = {}
        for module, number in sorted(statements):
            texts.setdefault(self.name_file(module), []).append(statements[module, number].text)
        return {name: _digest(*found)[:16] for name, found in sorted(texts.items())}


@dataclass(frozen=True)
class _Statement:
    """The canonical text of a statement, and for each name in it the statements that define the name."""

    text: str
    uses: tuple[tuple[Key, ...], ...]


@dataclass(frozen=True)
class _Module:
    """The statements of a module: which define a name, which run for their effect; and its imports."""

    package: str
    statements: Sequence[ast.stmt]
    names: dict[str, tuple[Key, ...]]
    effects: tuple[Key, ...]
    imports: dict[str, str]


def _index(module: str, package: str, body: Sequence[ast.stmt]) -> _Module:
    names: dict[str, tuple[Key, ...]] = {}
    effects: list[Key] = []
    imports: dict[str, str] = {}
    for number, statement in enumerate(body):
        defined = set(_find_defined(statement))
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            imports |= _find_imports(statement, package)
        if not defined and not _is_silent(statement):
            effects.append((module, number))
        for name in defined:
            names[name] = (*names.get(name, ()), (module, number))
    return _Module(package, body, names, tuple(effects), imports)


def _is_silent(statement: ast.stmt) -> bool:
    """Return True for docstrings, imports, also those for types, and `pass`."""
    if isinstance(statement, ast.If):
        return all(map(_is_silent, [*statement.body, *statement.orelse]))
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass)


def _find_defined(statement: ast.AST) -> Iterator[str]:
    """Yield the names that a statement at the top of a module defines, without those of inner scopes."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Name) and isinstance(statement.ctx, ast.Store):
        yield statement.id
    elif not isinstance(statement, (ast.Lambda, *COMPREHENSIONS)):
        for node in ast.iter_child_nodes(statement):
            yield from _find_defined(node)


def _find_imports(tree: ast.AST, package: str) -> dict[str, str]:
    """Return the dotted origin of every name that a statement of `package` imports, at any depth."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                origin = alias.name if alias.asname else alias.name.partition(".")[0]
                found[alias.asname or origin] = origin
        elif isinstance(node, ast.ImportFrom):
            if any(alias.name == "*" for alias in node.names):
                raise LookupError(f"line {node.lineno}: only imports of names can be followed, not of all")
            above = package.rsplit(".", node.level - 1)[:1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            found |= {alias.asname or alias.name: f"{origin}.{alias.name}" for alias in node.names}
    return found


class _Writer:
    """Writes a syntax tree as text that is the same for every spelling and every version of Python.

    Names of the package's definitions are not written; the statements that define them are collected in
    `uses`. Names of other packages are written in full, however they were imported, and of definitions that
    are left out as they are.
    """

    def __init__(self, tree: SourceTree, module: str, statement: ast.stmt) -> None:
        self.tree, self.module, self.own = tree, module, set(_find_defined(statement))
        found = tree.read_module(module)
        own_imports = _find_imports(statement, found.package)
        self.imports = found.imports | own_imports
        self.names = {name for name in found.names if name not in own_imports or name in self.own}
        self.imported = frozenset(own_imports)
        self.uses: list[tuple[Key, ...]] = []
        self.local: frozenset[str] = frozenset()

    def write(self, node: object) -> str:
        """Return the text of a node, of a list of nodes, or of a value."""
        if isinstance(node, list):
            return f"[{','.join(self.write(each) for each in node if not _is_unwritten(each))}]"
        if not isinstance(node, ast.AST):
            return ascii(node)
        if isinstance(node, ast.Name | ast.Attribute) and (text := self._write_reference(node)):
            return text
        if isinstance(node, ast.JoinedStr):
            # Some versions of Python end the format of an f-string's field with an empty text.
            parts = [each for each in node.values if getattr(each, "value", None) != ""]
            return f"JoinedStr({self.write(parts)})"
        # Versions of Python differ in the fields that they leave empty, not in those with a value.
        fields = [
            f"{name}={self._write_field(node, name, value)}"
            for name, value in ast.iter_fields(node)
            if value is not None and value != [] and not self._is_left_out(node, name)
        ]
        return f"{type(node).__name__}({','.join(fields)})"

    def _write_field(self, node: ast.AST, name: str, value: object) -> str:
        """Return the text of a field, in whose scope names that are local stand for nothing outside."""
        outer = self.local
        self.local |= _find_local(node, name) - self.imported
        text = self.write(value)
        self.local = outer
        return text

    def _is_left_out(self, node: ast.AST, field: str) -> bool:
        own = (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in self.own
        )
        return field in UNWRITTEN_FIELDS or (own and field == "name")

    def _write_reference(self, node: ast.Name | ast.Attribute) -> str:
        """Return the text of a name from the top of a module or from an import, or an empty string."""
        if isinstance(node, ast.Name) and node.id in self.names and node.id not in self.local:
            return self._write_use(node.id, self.tree.find(self.module, node.id))
        origin = self._find_origin(node)
        if not self.tree.covers(origin):
            return f"<{origin}>" if origin else ""
        if self.tree.has_module(origin) or self.tree.has_module(origin.rpartition(".")[0]):
            return self._write_use(origin.rpartition(".")[2], self.tree.follow(origin))
        return ""

    def _write_use(self, name: str, keys: tuple[Key, ...]) -> str:
        if not keys or any(self.tree.is_left_out(module) for module, _ in keys):
            return f"<{name}>"
        self.uses.append(keys)
        # One statement can define several names, as ``WIDTH, DEPTH = 2, 3`` does.
        return f"<{name}>" if any(self.tree.defines_several(key) for key in keys) else "<>"

    def _find_origin(self, node: ast.expr) -> str:
        """Return the origin of an imported name with the attributes that follow it, or an empty string."""
        if isinstance(node, ast.Name):
            return "" if node.id in self.local else self.imports.get(node.id, "")
        if isinstance(node, ast.Attribute) and (origin := self._find_origin(node.value)):
            return f"{origin}.{node.attr}"
        return ""


def _find_local(node: ast.AST, field: str) -> frozenset[str]:
    """Return the names that are local in a field of a function or a comprehension.

    Defaults and decorators of a function, and the first iterable of a comprehension, are outside of it.
    """
    if isinstance(node, FUNCTIONS) and field == "body":
        arguments = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
        body = node.body if isinstance(node.body, list) else []
        outside = {name for each in ast.walk(node) if isinstance(each, ast.Global) for name in each.names}
        return frozenset(arguments.union(*map(_find_defined, body)) - outside)
    if isinstance(node, COMPREHENSIONS):
        targets = {name for each in node.generators for name in _find_defined(each.target)}
        first = {each.id for each in ast.walk(node.generators[0].iter) if isinstance(each, ast.Name)}
        return frozenset(targets - first)
    return frozenset()


def _is_unwritten(node: object) -> bool:
    if isinstance(node, ast.FunctionDef):
        decorators = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
        return any(isinstance(each, ast.Name) and each.id in UNWRITTEN_DECORATORS for each in decorators)
    return isinstance(node, ast.stmt) and _is_silent(node)


def _digest_statements(statements: Mapping[Key, _Statement]) -> str:
    """Return one sha256 over the statements, each with the statements that it uses, but without their names.

    In each round a statement's digest takes up the digests of what it uses, until this distinguishes no more
    statements.
    """
    digests = {key: _digest(statement.text) for key, statement in statements.items()}
    distinct = 0
    while len(set(digests.values())) > distinct:
        distinct = len(set(digests.values()))
        digests = {key: _digest(*_write_uses(each, digests)) for key, each in statements.items()}
    return _digest(*sorted(digests.values()))


def _write_uses(statement: _Statement, digests: Mapping[Key, str]) -> Iterator[str]:
    yield statement.text
    for keys in statement.uses:
        yield " ".join(digests.get(key, "") for key in keys)


def _digest(*lines: str) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
