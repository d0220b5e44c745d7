"""`make release VERSION=0.2.0`: the packages of users are built, tried and tagged. A person uploads them.

the tree is clean, the version is the next one, the changelog has entries
-> version and changelog are written -> sdist and wheel -> installed and run in an empty environment of each Python
-> commit and tag; any earlier failure restores the files
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.interpreters import interpreter

_ROOT: Final = Path(__file__).parents[2]
_VERSIONED: Final = {
    "pyproject.toml": r'(?m)^version = "(.+)"$',
    "taskmq/version.py": r'(?m)^VERSION: Final = "(.+)"$',
    "uv.lock": r'(?m)^name = "taskmq"\nversion = "(.+)"$',
}
_CHANGELOG: Final = "CHANGELOG.md"
_UNRELEASED: Final = re.compile(r"(?m)^## \d+\.\d+\.\d+ \(unreleased\)\n")
_PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
_PROGRAM: Final = """
from taskmq import TaskMQ
from taskmq.testing import Harness

app = TaskMQ("memory://")

@app.task(name="double")
def double(number: int) -> int:
    return 2 * number

with Harness(app) as harness:
    job = double.send(21)
    harness.drain()
    print(job.result(timeout=1))
"""


class ReleaseRefused(Exception):
    """Raised when there is no release: the message has the reason and the remedy."""


def next_version(present: str, wanted: str) -> str:
    """Return the wanted version.

    Raises:
        ReleaseRefused: it is not X.Y.Z, or not a direct successor of the present one.
    """
    if re.fullmatch(r"\d+\.\d+\.\d+", wanted) is None:
        raise ReleaseRefused(f"{wanted!r} is no version: say X.Y.Z")
    major, minor, patch = (int(part) for part in present.split("."))
    possible = (f"{major + 1}.0.0", f"{major}.{minor + 1}.0", f"{major}.{minor}.{patch + 1}")
    if wanted not in possible:
        raise ReleaseRefused(f"{wanted} does not follow {present}: say one of {', '.join(possible)}")
    return wanted


def with_version(text: str, pattern: str, version: str) -> str:
    """Return the text of a file with another version at the only match of the pattern."""
    found = list(re.finditer(pattern, text))
    if len(found) != 1:
        raise ReleaseRefused(f"{len(found)} places look like {pattern}, and one was looked for")
    return text[: found[0].start(1)] + version + text[found[0].end(1) :]


def with_released_section(changelog: str, version: str, day: str) -> str:
    """Give the unreleased section of the changelog its version and day.

    Raises:
        ReleaseRefused: no section is marked as unreleased, or it is empty.
    """
    found = _UNRELEASED.search(changelog)
    if found is None or not changelog[found.end() :].partition("\n## ")[0].strip():
        raise ReleaseRefused(
            f"{_CHANGELOG} has nothing under '## {version} (unreleased)': write down what users will notice"
        )
    return f"{changelog[: found.start()]}## {version} - {day}\n{changelog[found.end() :]}"


def release(version: str, *, root: Path, interpreters: Sequence[Path]) -> list[Path]:
    """Make a release; return the files to upload.

    Raises:
        ReleaseRefused: see its message; nothing has changed.
        subprocess.CalledProcessError: building, installing or running it has failed; nothing has changed.
    """
    if _run("git", "status", "--porcelain", cwd=root):
        raise ReleaseRefused("the working tree has changes: commit them, or take them back")
    if _run("git", "tag", "--list", f"v{version}", cwd=root):
        raise ReleaseRefused(f"the tag v{version} is there")
    before = {name: (root / name).read_text(encoding="utf-8") for name in (*_VERSIONED, _CHANGELOG)}
    present = re.findall(_VERSIONED["pyproject.toml"], before["pyproject.toml"])[0]
    if version != present:  # The present version has no tag: it was never released.
        next_version(present, version)
    after = {name: with_version(before[name], pattern, version) for name, pattern in _VERSIONED.items()}
    after[_CHANGELOG] = with_released_section(before[_CHANGELOG], version, time.strftime("%Y-%m-%d", time.gmtime()))
    files = root / "dist" / f"v{version}"
    try:
        for name, text in after.items():
            (root / name).write_text(text, encoding="utf-8")
        _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", files, root, cwd=root)
        (wheel,) = files.glob("*.whl")
        for interpreter in interpreters:
            _try(interpreter, wheel, version)
            print(f"{interpreter}: {wheel.name} installs and runs")
        _run("git", "commit", "--all", "--message", f"build: release {version}", cwd=root)
    except BaseException:
        for name, text in before.items():
            (root / name).write_text(text, encoding="utf-8")
        raise
    _run("git", "tag", "--annotate", f"v{version}", "--message", f"taskmq {version}", cwd=root)
    return sorted(files.iterdir())


def _try(interpreter: Path, wheel: Path, version: str) -> None:
    """Install it into an empty environment, and run a task."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _run(interpreter, "-m", "venv", place / "env", cwd=place)
        _run(place / "env/bin/python", "-m", "pip", "install", "--quiet", wheel, cwd=place)
        says = _run(place / "env/bin/taskmq", "--version", cwd=place)
        result = _run(place / "env/bin/python", "-W", "error", "-c", _PROGRAM, cwd=place)
    if version not in says or result.strip() != "42":
        raise ReleaseRefused(f"{interpreter}: `taskmq --version` says {says!r}, the task {result!r}")


def _run(*command: object, cwd: Path) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=True, timeout=600).stdout


if __name__ == "__main__":
    try:
        made = release(
            sys.argv[1],
            root=_ROOT,
            interpreters=[found for version in _PYTHONS if (found := interpreter(version)) is not None],
        )
    except ReleaseRefused as refusal:
        sys.exit(f"not released: {refusal}")
    except subprocess.CalledProcessError as failure:
        sys.exit(f"not released: {failure}\n{failure.stdout}{failure.stderr}")
    print(f"v{sys.argv[1]} is committed and tagged. To publish it:")
    print(f"  git push --follow-tags && uv publish {' '.join(map(str, made))}")
