"""Runs a page's commands in a folder."""

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import blocks_of, write_files
from tests.servers.postgres import find_program

_NOT_NEEDED = ("faker", "hypothesispytest", "schemathesis", "xdist", "xdist.looponfail")
PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", *(word for name in _NOT_NEEDED for word in ("-p", f"no:{name}")))
"""Arguments of `python` that run the tests of a page without the plugins of our own tests, which load slowly."""


class PageShell:
    """Runs the commands of a page in a folder with its files.

    Attributes:
        variables: the environment of the commands.
    """

    def __init__(self, page: Path, folder: Path, **variables: str) -> None:
        self._page = page
        self._folder = folder
        write_files(page, folder)
        dump = find_program("pg_dump")
        assert dump is not None
        self.variables = variables
        self._paths = os.pathsep.join([str(Path(dump).parent), str(Path(sys.executable).parent), os.environ["PATH"]])

    def run(self, beginning: str) -> str:
        """Run the page's only command with this beginning; return its output."""
        (command,) = [
            command for block in blocks_of(self._page) for command in block.commands if command.startswith(beginning)
        ]
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env={**os.environ, "PATH": self._paths, **self.variables, "PYTHONPATH": str(self._folder)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout
