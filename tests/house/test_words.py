"""One word per thing: what may not be called the same, and which words are no longer used."""

import ast
import re
from collections import defaultdict

from tests.house.tree import Module, classes, modules

# Names of earlier builders; docs/glossary.md has the words that took their place.
_BANNED = {
    "bell", "board", "crew", "culprit", "desk", "ears", "errand", "fates", "guilty", "handover", "happening",
    "letterhead", "nudge", "papers", "plug", "pulse", "rehearsal", "seat", "seclusion", "standing", "tally",
    "understudy",
}  # fmt: skip


def test_no_class_name_is_used_twice_in_the_core() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        if module.name.startswith("taskmq.") and not module.is_suite:
            for found in classes(module):
                places[found.name].append(module.where)

    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_identifier_uses_a_word_that_was_replaced() -> None:
    found = {
        f"{module.where}: {name}" for module in modules() for name in _defined(module) if _BANNED & set(_words(name))
    }

    assert found == set()


def _defined(module: Module) -> set[str]:
    names = set(module.path.stem.split("."))
    for node in ast.walk(module.tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case _:
                pass
    return names


def _words(name: str) -> list[str]:
    return [word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)] + [
        word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    ]


def test_a_suppressed_lint_rule_has_its_reason_on_the_line() -> None:
    without = {
        f"{module.where}:{number}"
        for module in modules()
        for number, line in enumerate(module.source.splitlines(), 1)
        if re.search(r"#\s*noqa(:\s*[A-Z]+[0-9]+(,\s*[A-Z]+[0-9]+)*)?\s*$", line)
    }

    assert without == set()
