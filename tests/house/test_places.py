"""What may happen in named places only."""

import ast
from collections import defaultdict

from tests.house.tree import Module, classes, modules

# `settle` settles deliveries. Everything else here is an exception with its reason.
_SETTLES: dict[str, str] = {}
# A task that nobody owns is lost when it fails: each of these awaits or cancels what it starts.
_STARTS_TASKS: set[str] = set()
# Header names are part of the wire format.
_NAMES_HEADERS: set[str] = set()


def test_deliveries_are_settled_in_named_places_only() -> None:
    assert _modules_that(_settles) == set(_SETTLES)


def _settles(module: Module) -> bool:
    return module.name.startswith("taskmq.") and _calls(module, {"ack", "requeue"})


def test_asyncio_tasks_are_started_in_named_places_only() -> None:
    assert _modules_that(lambda module: _calls(module, {"create_task", "ensure_future"})) == _STARTS_TASKS


def test_header_names_are_written_in_named_places_only() -> None:
    assert _modules_that(_names_headers) == _NAMES_HEADERS


def _names_headers(module: Module) -> bool:
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("x-taskmq-")
        for node in ast.walk(module.tree)
    )


def _modules_that(do: object) -> set[str]:
    assert callable(do)
    return {module.where for module in modules() if not module.is_suite and do(module)}


def _calls(module: Module, names: set[str]) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names
        for node in ast.walk(module.tree)
    )


def test_a_protocol_outside_the_contracts_has_two_implementations() -> None:
    """Or is named here, with who implements it: users, or an adapter."""
    lonely = {name for name, count in _implementations().items() if count < 2}

    assert lonely == set(_ONE_IMPLEMENTATION)


_ONE_IMPLEMENTATION: dict[str, str] = {}


def _implementations() -> dict[str, int]:
    """For each Protocol of the core outside the contracts: how many classes have all its methods."""
    counts: dict[str, int] = {}
    members: dict[str, set[str]] = defaultdict(set)
    for module in modules():
        for found in classes(module):
            members[f"{module.name}.{found.name}"] = _members(found)
    for module in modules():
        if not module.name.startswith("taskmq.") or module.name.startswith("taskmq.contracts"):
            continue
        for found in classes(module):
            if any(ast.unparse(base).split("[")[0].endswith("Protocol") for base in found.bases):
                name = f"{module.name}.{found.name}"
                wanted = members[name]
                counts[name] = sum(wanted <= others for other, others in members.items() if other != name)
    return counts


def _members(found: ast.ClassDef) -> set[str]:
    names: set[str] = set()
    for node in found.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case _:
                pass
    for part in ast.walk(found):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and ast.unparse(part.value) == "self":
            names.add(part.attr)
    return names - {"__init__"}
