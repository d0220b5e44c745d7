"""What keeps the gate from lying, and its failures readable: each test is run, and its name fits a line."""

import ast
import itertools
import shlex
import tomllib

from tests.house.tree import ROOT

_LONGEST_NAME = 80


def test_the_name_of_a_test_says_what_broke_in_80_characters() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and len(node.name) > _LONGEST_NAME
    }

    assert found == set()


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
