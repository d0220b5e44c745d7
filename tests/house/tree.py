"""The source tree for the house rules: modules, their packages, and imports."""

import ast
import functools
import inspect
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
FOLDERS = ("taskmq", "brokers", "contrib")
# Shipped suites: they are tests of adapters, not parts of a running program.
SUITES = ("taskmq.testing.broker_suite", "taskmq.testing.job_store_suite", "taskmq.testing.state_suite")

_Node = TypeVar("_Node", bound=ast.AST)


@dataclass(frozen=True, eq=False)
class Module:
    """A source file, `name` as it is imported."""

    path: Path
    name: str
    is_package: bool
    source: str
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @property
    def lines(self) -> int:
        return len(self.source.splitlines())

    @property
    def is_suite(self) -> bool:
        return self.name.startswith(SUITES)

    @property
    def where(self) -> str:
        return str(self.path.relative_to(ROOT))


@functools.cache
def modules() -> tuple[Module, ...]:
    """Return every module of taskmq and of its adapters, in the order of their paths."""
    return tuple(_read(path) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))


@functools.cache
def modules_of_tests() -> tuple[Module, ...]:
    """Return every module below `tests`, in the order of their paths."""
    return tuple(_read(path) for path in sorted((ROOT / "tests").rglob("*.py")))


@functools.cache
def modules_with_tests() -> tuple[Module, ...]:
    """Return the modules that pytest collects."""
    return tuple(module for module in modules_of_tests() if module.path.name.startswith("test_"))


def _read(path: Path) -> Module:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] in {"brokers", "contrib"}:
        parts = parts[1:]
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    return Module(path, name, is_package, path.read_text(), parse_file(path))


@functools.cache
def parse_file(path: Path) -> ast.Module:
    """Parse the source file; all rules share the tree, and none changes it."""
    return ast.parse(path.read_text())


def nodes(tree: ast.Module, *kinds: type[_Node]) -> Iterator[_Node]:
    """Yield the nodes of a file's tree that are of these kinds, one kind after the other."""
    return chain.from_iterable(_nodes_by_kind(tree).get(kind, ()) for kind in kinds)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield all functions of a file, nested ones included."""
    yield from nodes(tree, ast.FunctionDef)
    yield from nodes(tree, ast.AsyncFunctionDef)


@functools.cache
def _nodes_by_kind(tree: ast.Module) -> dict[type[ast.AST], list[Any]]:
    """Walk the tree once for all rules: most rules ask for a few kinds among millions of nodes."""
    found: dict[type[ast.AST], list[Any]] = defaultdict(list)
    for node in ast.walk(tree):
        found[type(node)].append(node)
    return dict(found)


@functools.cache
def _by_name() -> dict[str, Module]:
    return {module.name: module for module in modules()}


@functools.cache
def imports() -> dict[str, frozenset[str]]:
    """Return the imports of each module that is not a package, including those in functions and for types.

    A name that a package re-exports counts as the module that defines it.
    """
    return {
        module.name: frozenset(_imported_modules(module)) - {module.name}
        for module in modules()
        if not module.is_package
    }


def _imported_modules(module: Module) -> Iterator[str]:
    for node in nodes(module.tree, ast.Import, ast.ImportFrom):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name in _by_name())
            case ast.ImportFrom(module=str(source), names=names):
                yield from (found for alias in names if (found := _home(source, alias.name)) is not None)
            case _:
                pass


def _home(source: str, name: str) -> str | None:
    if f"{source}.{name}" in _by_name():
        return f"{source}.{name}"
    module = _by_name().get(source)
    if module is None or not module.is_package:
        return module.name if module is not None else None
    for node in nodes(module.tree, ast.ImportFrom):
        if node.module and any(alias.name == name for alias in node.names):
            return _home(node.module, name)
    return module.name


def public_names(module: ModuleType) -> list[str]:
    """Return a module's `__all__`, or without one the names that it defines without an underscore."""
    listed: list[str] | None = getattr(module, "__all__", None)
    return list(dict.fromkeys(defined_names(parse_file(Path(inspect.getfile(module)))))) if listed is None else listed


def listed_names(tree: ast.Module) -> set[str] | None:
    """Return the names in a module's `__all__`; None if it has none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return {str(each.value) for each in ast.walk(node.value) if isinstance(each, ast.Constant)}
    return None


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines without an underscore."""
    for node in tree.body:
        match node:
            case (
                ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.Assign(targets=[ast.Name(id=name)])
                | ast.AnnAssign(target=ast.Name(id=name))
            ) if not name.startswith("_"):
                yield name
            case _:
                pass


def classes(module: Module) -> Iterator[ast.ClassDef]:
    """Return all classes of a module, nested ones included."""
    return nodes(module.tree, ast.ClassDef)
