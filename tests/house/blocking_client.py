"""The blocking half of the HTTP client, generated from the async one: `python -m tests.house.blocking_client`."""

import re
import subprocess
import sys
from pathlib import Path

from tests.house.tree import ROOT

_HTTP = ROOT / "taskmq" / "http"
_AIO, _BLOCKING = _HTTP / "aio", _HTTP / "_generated"
_NOTICE = "# Generated from {} by `python -m tests.house.blocking_client`: change that one.\n"
_INIT = '"""The client for programs without coroutines."""\n'
# ruff does not know a module before it exists.
_OURS = "lint.isort.known-first-party = ['taskmq']"
_WORDS = (
    (r"\bimport asyncio\b", "import time"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\btaskmq\.http\.aio\b", "taskmq.http._generated"),
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
    """Return each module of the blocking half with its text."""
    return {_BLOCKING / path.name: _convert_module(path) for path in sorted(_AIO.glob("*.py"))}


def _convert_module(path: Path) -> str:
    notice = _NOTICE.format(path.relative_to(ROOT).as_posix())
    if path.name == "__init__.py":
        return notice + _INIT
    text = path.read_text()
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text)
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check", "--select", "I", "--config", _OURS, "--fix", "--quiet"], ["format"]):
        done = subprocess.run(
            [str(ruff), *command, "--stdin-filename", str(_BLOCKING / path.name), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        text = done.stdout
    return notice + text


def write() -> None:
    """Write the blocking half."""
    modules = blocking()
    for path in set(_BLOCKING.glob("*.py")) - modules.keys():
        path.unlink()
    for path, text in modules.items():
        path.write_text(text)


if __name__ == "__main__":
    write()
