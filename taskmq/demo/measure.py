"""Analysis of one source file in the demo. Pure except for reading the file."""

import ast
import hashlib
import io
import threading
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_LEFT_OUT = frozenset(
    {
        "__pycache__",
        "site-packages",
        "dist-packages",
        "test",
        "tests",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "turtledemo",
    }
)
_LARGEST = 3
# Before CPython 3.11.5, `ast.parse` may fail in two threads at a time (github.com/python/cpython/issues/106905).
_PARSING = threading.Lock()


@dataclass(frozen=True, slots=True, order=True)
class LongDefinition:
    """A function or class and its number of lines."""

    lines: int
    name: str


@dataclass(frozen=True, slots=True)
class FileReport:
    """Measurements of one file.

    Attributes:
        digest: SHA-256 of its bytes, in hex.
        tokens: number of tokens by Python's tokenizer; 0 if it fails.
        largest: its largest definitions, largest first.
    """

    path: str
    digest: str
    bytes: int
    lines: int
    tokens: int
    largest: tuple[LongDefinition, ...]


@dataclass(frozen=True, slots=True)
class DemoTotals:
    """Totals of all files; `digest` covers the files' digests in the order of the paths."""

    files: int
    bytes: int
    lines: int
    tokens: int
    digest: str


def measure(path: Path) -> FileReport:
    """Measure one file of the demo.

    Raises:
        OSError: the file cannot be read.
    """
    content = path.read_bytes()
    return FileReport(
        path=str(path),
        digest=hashlib.sha256(content).hexdigest(),
        bytes=len(content),
        lines=content.count(b"\n"),
        tokens=_tokens(content),
        largest=_largest(content),
    )


def totals(reports: Iterable[FileReport]) -> DemoTotals:
    """Return the totals of the reports, whatever their order."""
    ordered = sorted(reports, key=lambda report: report.path)
    digests = hashlib.sha256("".join(report.digest for report in ordered).encode())
    return DemoTotals(
        files=len(ordered),
        bytes=sum(report.bytes for report in ordered),
        lines=sum(report.lines for report in ordered),
        tokens=sum(report.tokens for report in ordered),
        digest=digests.hexdigest(),
    )


def source_files(folder: Path) -> list[Path]:
    """Return the Python files below `folder`, without tests and installed packages, in a fixed order."""
    return sorted(
        path
        for path in folder.rglob("*.py")
        if path.is_file() and not _LEFT_OUT & set(path.relative_to(folder).parts)
    )


def _tokens(content: bytes) -> int:
    try:
        return sum(1 for _ in tokenize.tokenize(io.BytesIO(content).readline))
    except (tokenize.TokenError, SyntaxError, UnicodeDecodeError):
        return 0


def _largest(content: bytes) -> tuple[LongDefinition, ...]:
    try:
        with _PARSING:
            tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return ()
    found = [
        LongDefinition((node.end_lineno or node.lineno) - node.lineno + 1, node.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    return tuple(sorted(found, reverse=True)[:_LARGEST])
