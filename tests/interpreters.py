"""Interpreters of this machine."""

import subprocess
from pathlib import Path


def interpreter(version: str) -> Path | None:
    """Return the interpreter of a version like `3.12`, by its name or from pyenv, which may know only `3.12.1`."""
    for place in (f"python{version}", *sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))):
        command = [str(place), "-c", "import sys; print(sys.executable)"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return Path(done.stdout.strip())
    return None
