"""The dashboard's files, each with its type, plain and compressed."""

import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

_TYPES: Final[Mapping[str, str]] = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "mjs": "text/javascript",
    "svg": "image/svg+xml",
}
_PLACEHOLDER: Final = b"static/DIGEST/"
# Comments on lines of their own, types and indentation are a seventh of the files. No text in them is indented.
_UNUSED: Final = re.compile(
    rb"^ *(?:/\*(?:(?!\*/).)*\*/|//[^\n]*)$|/\*\* @type [^*\n]*\*/ ?|^ +", re.MULTILINE | re.DOTALL
)
_STYLE_SPACES: Final = re.compile(rb"(?<=[{};,:]) | (?=[{}])")
# In braces and around operators that no text has.
_SCRIPT_SPACES: Final = re.compile(rb"(?<=\{) | (?=\})| (=>|[!=]==|[-+<>]=|=(?! TaskMQ)|&&|\|\||\?\??|:) ")


class DashboardFile(NamedTuple):
    """A file in the forms it is sent in."""

    media_type: str
    content: bytes
    compressed: bytes


class DashboardFiles(NamedTuple):
    """The files of the dashboard.

    Attributes:
        page: the HTML page, which refers to files by their digest.
        page_with_provider: the page for servers with a sign-in provider.
        digest: the digest of all files. It changes with each of them, so browsers may cache files below it.
        by_path: files by their path below the folder.
    """

    page: DashboardFile
    page_with_provider: DashboardFile
    digest: str
    by_path: Mapping[str, DashboardFile]


@cache
def dashboard_files() -> DashboardFiles:
    """Read the files of the package; cached."""
    found = dict(sorted(_walk(files("taskmq.server.dashboard") / "static", "")))
    everything = hashlib.sha256(
        b"\0".join(part for path, content in found.items() for part in (path.encode(), content))
    )
    digest = everything.hexdigest()[:16]
    page = found.pop("index.html").replace(_PLACEHOLDER, f"static/{digest}/".encode())
    return DashboardFiles(
        _file("index.html", page),
        _file("index.html", page.replace(b"<html ", b'<html data-provider="yes" ', 1)),
        digest,
        {path: _file(path, content) for path, content in found.items()},
    )


def _walk(folder: Traversable, below: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        path = f"{below}{entry.name}"
        if entry.is_dir():
            yield from _walk(entry, f"{path}/")
        elif path.rpartition(".")[2] in _TYPES:
            content = _UNUSED.sub(_blank_lines, entry.read_bytes())
            if path.endswith(".css"):
                content = _STYLE_SPACES.sub(b"", content)
            elif path.endswith(".js"):
                content = _SCRIPT_SPACES.sub(rb"\1", content)
            yield path, content


def _blank_lines(unused: re.Match[bytes]) -> bytes:
    # The numbers of the lines below stay the same in the browser's tools.
    return b"\n" * unused[0].count(b"\n")


def _file(path: str, content: bytes) -> DashboardFile:
    return DashboardFile(_TYPES[path.rpartition(".")[2]], content, gzip.compress(content, 9, mtime=0))
