"""What keeps the gate from lying, and its failures readable: no test bounds a time, each name fits a line."""

import ast
import itertools
import shlex
import tomllib

from tests.house.tree import ROOT

# Campaigns measure; they are no part of the gate.
_CAMPAIGNS = ROOT / "tests" / "faults"
_CLOCKS = {"monotonic", "perf_counter", "time", "monotonic_ns", "perf_counter_ns", "time_ns"}
# Who imports this has a loop whose time does not pass by itself.
_VIRTUAL = "virtual_time import"
_LONGEST_NAME = 80


def test_no_test_says_how_fast_something_has_to_be() -> None:
    """A busy machine is slow; what has to end before something else is shown by what comes first."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if _CAMPAIGNS not in path.parents and _VIRTUAL not in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert) and _bounds_a_time(node.test)
    ]

    assert found == []


def test_the_name_of_a_test_says_what_broke_in_80_characters() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and len(node.name) > _LONGEST_NAME
    }

    assert found == set()


def _bounds_a_time(test: ast.expr) -> bool:
    """Whether a difference of two readings of a clock has to be less than something."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
                lesser = left if isinstance(operator, ast.Lt | ast.LtE) else right
                if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and _is_time_taken(lesser):
                    return True
    return False


def _is_time_taken(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and any(
            isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _CLOCKS
            for part in ast.walk(node)
        )
    )


def test_what_one_part_of_the_gate_leaves_out_another_one_runs() -> None:
    tasks = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["poe"]["tasks"]
    pure = shlex.split(tasks["test-pure"][1]["cmd"])
    served = shlex.split(tasks["test-served"]["cmd"])

    left_out = {path.removesuffix("::") for path in _ignored(served)}

    assert left_out - {"tests/house", *tasks["test-newest"][1]["cmd"].split()} == {
        path for path in pure if path.startswith("tests/")
    }


def _ignored(words: list[str]) -> list[str]:
    return [value for option, value in itertools.pairwise(words) if option in ("--ignore", "--deselect")]
