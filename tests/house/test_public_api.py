"""Public names exist, and are documented, typed and defined in one module only."""

import ast
import importlib
import inspect
import pkgutil
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import taskmq
import taskmq_aio_pika
import taskmq_celery
import taskmq_local
import taskmq_otel
import taskmq_prometheus
import taskmq_rabbitmq
import taskmq_redis
import taskmq_s3
from tests.house.tree import defined_names, listed_names, modules, public_names

_INIT = Path(inspect.getfile(taskmq))


def _modules(*packages: ModuleType) -> list[str]:
    return [
        name
        for package in packages
        for name in (
            package.__name__,
            *(found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")),
        )
    ]


_ALL_MODULES = _modules(
    taskmq,
    taskmq_aio_pika,
    taskmq_celery,
    taskmq_local,
    taskmq_rabbitmq,
    taskmq_redis,
    taskmq_prometheus,
    taskmq_otel,
    taskmq_s3,
)
_CORE = [name for name in _ALL_MODULES if name.startswith("taskmq.")]


def _imports_for_checkers() -> dict[str, str]:
    """Return the names under `if TYPE_CHECKING` in `taskmq/__init__.py`, with their modules."""
    found: dict[str, str] = {}
    for node in ast.parse(_INIT.read_text()).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                assert isinstance(statement, ast.ImportFrom)
                assert statement.module is not None
                for alias in statement.names:
                    assert alias.asname is None
                    found[alias.name] = statement.module
    return found


def _string_below(module: str, name: str) -> str | None:
    """Return the string on the line after an assignment, which documents it."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    for assignment, after in zip(tree.body, tree.body[1:], strict=False):
        match assignment, after:
            case ast.Assign(targets=[ast.Name(id=target)]), ast.Expr(value=ast.Constant(value=str(text))):
                if target == name:
                    return text
            case _:
                pass
    return None


def _documentation(name: str) -> str | None:
    value: Any = getattr(taskmq, name)
    if isinstance(value, type):
        # A class that inherits its text has none.
        own: str | None = vars(value).get("__doc__")
        return own
    if inspect.isfunction(value):
        return value.__doc__
    return _string_below(_imports_for_checkers()[name], name)


@pytest.mark.parametrize("name", taskmq.__all__)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    documentation = _documentation(name)

    assert documentation is not None
    assert documentation.strip()


def _methods() -> list[tuple[str, str]]:
    return [
        (name, method)
        for name in taskmq.__all__
        if inspect.isclass(getattr(taskmq, name))
        for method, value in vars(getattr(taskmq, name)).items()
        if not method.startswith("_") and inspect.isroutine(value)
    ]


@pytest.mark.parametrize(("name", "method"), _methods())
def test_every_public_method_of_a_public_class_is_documented(name: str, method: str) -> None:
    assert (getattr(getattr(taskmq, name), method).__doc__ or "").strip()


def test_public_names_are_sorted_and_unique() -> None:
    assert taskmq.__all__ == sorted(set(taskmq.__all__))
    assert dir(taskmq) == taskmq.__all__


def test_type_checkers_see_the_names_that_exist_at_runtime() -> None:
    assert sorted(_imports_for_checkers()) == taskmq.__all__


@pytest.mark.parametrize("name", taskmq.__all__)
def test_a_name_comes_from_the_module_that_type_checkers_see(name: str) -> None:
    home = _imports_for_checkers()[name]

    assert home == f"taskmq.{taskmq._HOMES.get(name, 'errors')}"
    assert getattr(importlib.import_module(home), name) is getattr(taskmq, name)


def test_no_home_lacks_a_name() -> None:
    assert set(taskmq._HOMES) <= set(taskmq.__all__)
    assert "errors" not in taskmq._HOMES.values()


def test_a_public_name_is_in_the_all_of_one_module_or_also_of_its_package() -> None:
    exports = Counter(
        name
        for module in _CORE
        for name in public_names(importlib.import_module(module))
        if name in taskmq.__all__ and name not in _names_of_package(module)
    )

    assert exports == dict.fromkeys(taskmq.__all__, 1)


def _names_of_package(module: str) -> list[str]:
    """Return the names that the package of a module exports too; the root exports those of all."""
    package = module.rpartition(".")[0]
    return [] if package == "taskmq" else public_names(importlib.import_module(package))


@pytest.mark.parametrize("module", _ALL_MODULES)
def test_every_module_says_what_it_is_for_and_what_it_offers(module: str) -> None:
    loaded = importlib.import_module(module)
    exported = public_names(loaded)

    assert (loaded.__doc__ or "").strip()
    assert len(exported) == len(set(exported))
    assert [name for name in exported if not hasattr(loaded, name)] == []
    assert [name for name in exported if name.startswith("_")] == []


def test_only_a_module_with_names_of_others_lists_its_public_names() -> None:
    """Elsewhere a list would repeat the names without an underscore."""
    found = {
        module.where
        for module in modules()
        if not module.is_package
        if (listed := listed_names(module.tree)) is not None and listed <= set(defined_names(module.tree))
    }

    # `taskmq.errors` exports its other names.
    assert found == {"taskmq/control_flow.py"}


def test_star_imports_give_exactly_the_public_names() -> None:
    found: dict[str, object] = {}

    exec("from taskmq import *", found)

    assert set(found) - {"__builtins__"} == set(taskmq.__all__)
