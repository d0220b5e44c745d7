"""Every test can fail: it asserts, expects an error, waits with a deadline, or calls a check by its name."""

import ast
import re
from typing import Final

from tests.house.tree import functions, modules_with_tests

# Calls that fail by themselves: pytest's and Playwright's, checking helpers, and waits with a deadline.
_CHECKS: Final = re.compile(r"_?(raises|warns|fail|assert|check|expect|see|judge|test)(_\w+)?$").match
_WAITS: Final = {"eventually", "until", "wait_for", "wait_until", "reached", "heard_again", "says", "runs"}


def test_every_test_asserts_or_calls_an_assertion_helper() -> None:
    found = {
        f"{module.where}:{node.lineno}: {node.name}"
        for module in modules_with_tests()
        for node in functions(module.tree)
        if node.name.startswith("test_")
        if not any(_can_fail(each) for each in ast.walk(node))
    }

    assert found == set(), "a helper that asserts is called expect_..., check_... or see_..."


def _can_fail(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.Raise(exc=ast.Call(func=ast.Name(id="AssertionError"))):
            return True
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in _WAITS or _CHECKS(name) is not None
        case _:
            return False
