"""What the contenders need: a virtual environment each, and the floor's program."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.contenders import PEERS, Contender

__all__ = ["environment", "floor"]

_ROOT = Path(__file__).parents[1]


def cache() -> Path:
    """Where the environments are kept between runs."""
    given = os.environ.get("TASKMQ_BENCH_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "taskmq-bench"


def environment(contender: Contender) -> Path:
    """The folder of programs of the contender's environment, made if it is not there."""
    if not contender.requires:
        return Path(sys.executable).parent
    folder = cache() / "-".join([contender.name, *(part.partition("==")[2] or part for part in contender.requires)])
    ready = folder / "ready"
    if not ready.exists():
        print(f"installing {', '.join(contender.requires)}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*pip, *contender.requires], check=False, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{contender.name} cannot be installed: {done.stderr[-2000:]}")
        ready.touch()
    return folder / "bin"


def floor() -> Path | None:
    """The C program, compiled; None where there is no compiler or no librabbitmq to compile it with."""
    source, program = PEERS / "floor.c", cache() / "floor"
    if program.exists() and program.stat().st_mtime > source.stat().st_mtime:
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-O2", "-o", str(program), str(source), "-lrabbitmq"]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        print(
            "no floor in C: needs a compiler and librabbitmq (apt-get install gcc librabbitmq-dev)", file=sys.stderr
        )
        return None
    return program
