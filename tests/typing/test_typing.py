"""The other files of this folder, as mypy and as pyright see them.

What must type-check is there as it is; what must not carries an ignore for each checker, and both report an
ignore that is not needed: a wrong call that is accepted fails here.
"""

import subprocess
import sys
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]


def _run(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name(command)), *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.slow
@pytest.mark.timeout(330)
def test_mypy_accepts_what_it_should_and_nothing_else() -> None:
    files = sorted(str(path) for path in _HERE.glob("*.py") if path != Path(__file__))

    done = _run("mypy", "--strict", "--warn-unused-ignores", *files)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(330)
def test_pyright_accepts_what_it_should_and_nothing_else() -> None:
    done = _run("basedpyright", "--project", str(_HERE / "pyrightconfig.json"), "--pythonpath", sys.executable)

    assert done.returncode == 0, done.stdout + done.stderr
