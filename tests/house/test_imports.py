"""Imports: the rows of the house, and no cycle between neighbours."""

import tomllib
from collections import defaultdict

from tests.house.blocking_client import generate
from tests.house.plan import plan, read_plan
from tests.house.tree import ROOT, imports, modules
from tests.parts import pure_modules


def test_the_import_contracts_name_every_package_of_taskmq() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    ours = {path.parent.name for folder in ("brokers", "contrib") for path in (ROOT / folder).glob("*/__init__.py")}

    assert set(config["root_packages"]) == {"taskmq", *ours}


def test_every_pure_module_is_imported_by_another_one() -> None:
    """The coverage of the pure part does not show a missing import of a module without functions."""
    imported = frozenset[str]().union(*imports().values())
    packages = tuple(f"{name}." for name in pure_modules())
    pure = [module.name for module in modules() if not module.is_package and module.name.startswith(packages)]

    assert pure
    assert [name for name in pure if name not in imported] == []


def test_no_siblings_import_each_other_in_a_cycle() -> None:
    """At every depth: the packages of taskmq, the packages of the worker, the modules of each package."""
    circles = [
        f"{inside}: {' <-> '.join(sorted(circle))}"
        for inside, arrows in sorted(_arrows_between_siblings().items())
        for circle in _circles(arrows)
    ]

    assert circles == []


def _arrows_between_siblings() -> dict[str, dict[str, set[str]]]:
    arrows: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for source, targets in imports().items():
        for target in targets:
            ours, theirs = source.split("."), target.split(".")
            depth = next(
                (place for place, (own, other) in enumerate(zip(ours, theirs, strict=False)) if own != other), None
            )
            if depth:
                arrows[".".join(ours[:depth])][ours[depth]].add(theirs[depth])
    return arrows


def _circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of nodes that reach each other."""
    reached = {node: _reachable(node, arrows) for node in arrows}
    found: list[set[str]] = []
    for node, others in reached.items():
        circle = {other for other in others if node in reached.get(other, set())}
        if len(circle) > 1 and circle not in found:
            found.append(circle)
    return found


def _reachable(start: str, arrows: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for target in arrows.get(waiting.pop(), set()) - seen:
            seen.add(target)
            waiting.append(target)
    return seen


def test_a_cycle_between_siblings_is_found() -> None:
    assert _circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [{"a", "b", "c"}]
    assert _circles({"a": {"b"}, "b": {"c"}}) == []


def test_imports_inside_functions_and_for_types_count() -> None:
    everything = {name for targets in imports().values() for name in targets}

    assert "taskmq.cli.root" not in imports()["taskmq.errors.base"]
    assert len(everything) > 100
    assert len(modules()) > 300


def test_the_plan_in_the_docs_matches_the_import_contracts() -> None:
    assert read_plan() == plan(), "run `python -m tests.house.plan`"


def test_the_blocking_client_is_generated_from_the_async_one() -> None:
    stale = [path.name for path, text in generate().items() if path.read_text() != text]

    assert stale == [], "run `python -m tests.house.blocking_client`"
