"""What the contenders need: a virtual environment each, and the floor's program."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.contender import PEERS, Contender
from benchmarks.failures import RunFailed

__all__ = ["environment", "environment_of", "floor", "folder_name"]

_INSTALLS_WITHIN: Final = 600.0
# What could not be installed is told once, and not tried again for each cell.
_failed: dict[str, str] = {}


def cache() -> Path:
    """Where the environments are kept between runs."""
    given = os.environ.get("TASKMQ_BENCH_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "taskmq-bench"


def folder_name(contender: Contender) -> str:
    """One folder for one set of requirements: other versions or extras are another environment."""
    return _folder_name(contender.requires)


def _folder_name(requires: Sequence[str]) -> str:
    return "_".join(re.sub(r"[^\w.]+", "-", part).strip("-") for part in requires)


def environment(contender: Contender) -> Path:
    """The folder of programs of the contender's environment, made if it is not there.

    Raises:
        RunFailed: it cannot be installed; with what the installer said.
    """
    if not contender.requires:
        return Path(sys.executable).parent
    return environment_of(contender.name, contender.requires)


def environment_of(name: str, requires: Sequence[str], python: str = "") -> Path:
    """The folder of programs of an environment with these requirements, made if it is not there.

    Args:
        python: which makes it; default: the one that runs this.

    Raises:
        RunFailed: it cannot be installed; with what the installer said.
    """
    if name in _failed:
        raise RunFailed(_failed[name])
    folder = cache() / _folder_name(requires)
    ready = folder / "ready"
    if not ready.exists():
        print(f"installing {', '.join(requires)}", file=sys.stderr, flush=True)
        try:
            _install(folder, requires, python or sys.executable)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or b""
            _failed[name] = f"{name} cannot be installed: {error}\n{said.decode(errors='replace')[-2000:]}"
            raise RunFailed(_failed[name]) from error
        ready.touch()
    return folder / "bin"


def _install(folder: Path, requires: Sequence[str], python: str) -> None:
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *requires], check=True, capture_output=True, timeout=_INSTALLS_WITHIN)


def floor() -> Path:
    """The C program, compiled.

    Raises:
        RunFailed: there is no compiler, or no librabbitmq to compile it with.
    """
    source, program = PEERS / "floor.c", cache() / "floor"
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["cc", "-O2", "-o", str(program), str(source), "-lrabbitmq"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace")[-500:]
        raise RunFailed(
            f"no floor in C: needs a compiler and librabbitmq (apt-get install gcc librabbitmq-dev) {said}"
        ) from error
    return program
