"""Generated parts of the HTTP client: `python -m tests.house.blocking_client`.

The blocking half is generated from the async one, the table of operations from the server's handlers.
"""

import re
import subprocess
import sys
from pathlib import Path

from litestar.handlers import HTTPRouteHandler

from taskmq.server.application import HANDLERS
from tests.house.tree import ROOT

_HTTP = ROOT / "taskmq" / "http"
_AIO, _BLOCKING = _HTTP / "aio", _HTTP / "_generated"
_OPERATIONS = ROOT / "taskmq" / "api" / "_generated" / "operations.py"
_NOTICE = "# Generated from {} by `python -m tests.house.blocking_client`: change that one.\n"
_TABLE = """# Generated from taskmq/server by `python -m tests.house.blocking_client`: change the handlers.
\"\"\"The API's operations that the client uses, by their ids in `/api/openapi.json`.\"\"\"

from typing import Final

from taskmq.api.values import Operation

OPERATIONS: Final = {{
{rows}
}}
"""
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


def generate() -> dict[Path, str]:
    """Return each generated module with its text."""
    modules = sorted(_AIO.glob("*.py"))
    used = {name for path in modules for name in re.findall(r'"(\w+)"', path.read_text())}
    rows = "\n".join(_row(each) for each in HANDLERS if each.operation_id in used)
    found = {_OPERATIONS: _format(_OPERATIONS, _TABLE.format(rows=rows))}
    return found | {_BLOCKING / path.name: _convert_module(path) for path in modules}


def _row(handler: HTTPRouteHandler) -> str:
    (method,), (path,) = handler.http_methods - {"OPTIONS", "HEAD"}, handler.paths
    repeats = method == "GET" or bool(handler.opt.get("repeats"))
    return f'    "{handler.operation_id}": Operation("{method}", "{path.replace(":str}", "}")}", repeats={repeats}),'


def _convert_module(path: Path) -> str:
    notice = _NOTICE.format(path.relative_to(ROOT).as_posix())
    if path.name == "__init__.py":
        return notice + _INIT
    text = path.read_text()
    for pattern, replacement in _WORDS:
        text = re.sub(pattern, replacement, text)
    return notice + _format(_BLOCKING / path.name, text)


def _format(path: Path, text: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check", "--select", "I", "--config", _OURS, "--fix", "--quiet"], ["format"]):
        done = subprocess.run(
            [str(ruff), *command, "--stdin-filename", str(path), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        text = done.stdout
    return text


def write() -> None:
    """Write the generated modules."""
    modules = generate()
    for path in set(_BLOCKING.glob("*.py")) - modules.keys():
        path.unlink()
    for path, text in modules.items():
        path.write_text(text)


if __name__ == "__main__":
    write()
