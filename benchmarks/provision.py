"""Installation of the contenders' virtual environments and of the floor's C program."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.contender import PEERS, Contender
from benchmarks.failures import RunFailed

_INSTALLS_WITHIN: Final = 600.0
# Failed installations by name, so that they are not retried for each cell.
_failed: dict[str, str] = {}


def cache() -> Path:
    """Return the folder that keeps the environments between runs."""
    given = os.environ.get("TASKMQ_BENCH_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "taskmq-bench"


def folder_name(contender: Contender) -> str:
    """Return the folder name for a contender's requirements; other versions or extras get another folder."""
    return _folder_name(contender.requires)


def _folder_name(requires: Sequence[str]) -> str:
    return "_".join(re.sub(r"[^\w.]+", "-", part).strip("-") for part in requires)


def environment(contender: Contender) -> Path:
    """Create the contender's environment if needed, and return its folder of programs.

    Raises:
        RunFailed: the installation failed; the message includes the installer's output.
    """
    if not contender.requires:
        return Path(sys.executable).parent
    return environment_of(contender.name, contender.requires)


def environment_of(name: str, requires: Sequence[str], python: str = "") -> Path:
    """Create an environment with these requirements if needed, and return its folder of programs.

    Args:
        python: the interpreter that creates it; default: the current one.

    Raises:
        RunFailed: the installation failed; the message includes the installer's output.
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
            stderr = getattr(error, "stderr", None) or b""
            _failed[name] = f"{name} cannot be installed: {error}\n{stderr.decode(errors='replace')[-2000:]}"
            raise RunFailed(_failed[name]) from error
        ready.touch()
    return folder / "bin"


def _install(folder: Path, requires: Sequence[str], python: str) -> None:
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *requires], check=True, capture_output=True, timeout=_INSTALLS_WITHIN)


def floor() -> Path:
    """Compile the C program if needed, and return its path.

    Raises:
        RunFailed: the compiler or librabbitmq is missing.
    """
    source, program = PEERS / "floor.c", cache() / "floor"
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["cc", "-O2", "-o", str(program), str(source), "-lrabbitmq"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        stderr = (getattr(error, "stderr", None) or b"").decode(errors="replace")[-500:]
        raise RunFailed(
            f"cannot compile the floor in C: run `apt-get install gcc librabbitmq-dev` {stderr}"
        ) from error
    return program
