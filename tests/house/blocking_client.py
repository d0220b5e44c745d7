"""The blocking half of the HTTP client, made of the one for coroutines: `python -m tests.house.blocking_client`."""

import re
import subprocess
import sys
from pathlib import Path

from tests.house.tree import ROOT

_HTTP = ROOT / "taskmq" / "http"
_AIO, _BLOCKING = _HTTP / "aio", _HTTP / "blocking"
_INIT = '"""The client for programs without coroutines, made of `taskmq.http.aio`: change that one."""\n'
_WORDS = (
    (r"\bimport asyncio\b", "import time"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\btaskmq\.http\.aio\b", "taskmq.http.blocking"),
    (r"\bAwaitable, ", ""),
    (r"\bAwaitable\[(\w+\[\w+, \w+\])\]", r"\1"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\baclose\b", "close"),
    (r"\baread\b", "read"),
    (r"\baiter_lines\b", "iter_lines"),
)


def blocking() -> dict[Path, str]:
    """Each module of the blocking half, with its text."""
    return {_BLOCKING / path.name: _converted(path) for path in sorted(_AIO.glob("*.py"))}


def _converted(path: Path) -> str:
    if path.name == "__init__.py":
        return _INIT
    text = path.read_text()
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text)
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format"]):
        done = subprocess.run(
            [str(ruff), *command, "--stdin-filename", str(_BLOCKING / path.name), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        text = done.stdout
    return text


def write() -> None:
    """Write the blocking half."""
    for path, text in blocking().items():
        path.write_text(text)


if __name__ == "__main__":
    write()
