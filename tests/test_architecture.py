"""The house plan holds: who imports whom, and how large a module is."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_SOURCES = [
    path.relative_to(_ROOT)
    for folder in ("taskmq", "brokers", "contrib")
    for path in sorted((_ROOT / folder).rglob("*.py"))
]
_TESTS = [
    path.relative_to(_ROOT) for folder in ("tests", "benchmarks") for path in sorted((_ROOT / folder).rglob("*.py"))
]
_HARD_LIMIT = 600


def test_the_import_contracts_are_kept() -> None:
    command = Path(sys.executable).with_name("lint-imports")

    done = subprocess.run(
        [str(command), "--no-cache"], cwd=_ROOT, capture_output=True, text=True, check=False, timeout=120
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_the_house_plan_names_every_package_of_ours() -> None:
    config = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    ours = {path.parent.name for path in (_ROOT / "brokers").glob("*/__init__.py")}
    ours |= {path.parent.name for path in (_ROOT / "contrib").glob("*/__init__.py")}

    assert set(config["root_packages"]) == {"taskmq", *ours}


def test_a_module_stays_below_the_hard_limit() -> None:
    lengths = {path: len((_ROOT / path).read_text().splitlines()) for path in _SOURCES}

    assert len(lengths) > 50
    assert {path: length for path, length in lengths.items() if length > _HARD_LIMIT} == {}


def _imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse((_ROOT / path).read_text())):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module)
            case ast.ImportFrom(level=level):
                found.add("." * level)
            case _:
                pass
    return found


def test_nobody_imports_a_source_folder_or_by_a_relative_path() -> None:
    tops = {path: {name.partition(".")[0] for name in _imported(path)} for path in (*_SOURCES, *_TESTS)}

    assert {path for path, names in tops.items() if names & {"brokers", "contrib", ""}} == set()


@pytest.mark.parametrize("folder", ["brokers", "contrib"])
def test_a_source_folder_is_no_package(folder: str) -> None:
    assert not (_ROOT / folder / "__init__.py").exists()
