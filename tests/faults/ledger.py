"""The ledgers: files of lines, written in single appends that no crash tears, and read as they grow."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from tests.faults.checker import Fault, Run, Send

Entry = TypeVar("Entry")


class Ledger(Generic[Entry]):
    """The entries of one file so far; `refresh` reads the new ones."""

    def __init__(self, path: Path, read: Callable[[str], Entry]) -> None:
        self.path = path
        self.entries: list[Entry] = []
        self._read = read
        self._offset = 0

    def refresh(self) -> list[Entry]:
        """Return the new entries."""
        fresh = [self._read(line) for line in self._lines()]
        self.entries += fresh
        return fresh

    def _lines(self) -> Iterator[str]:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        # An incomplete line at the end is left for the next read.
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        yield from whole.decode().splitlines()


def append(path: str, line: str) -> None:
    """Append one line."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def send_line(send: Send) -> str:
    """Format a send as a line of its ledger."""
    return f"{send.token} {send.outcome} {send.began} {send.took} {send.due or 0}"


def send_of(line: str) -> Send:
    """Parse the send in this line."""
    token, outcome, began, took, due = line.split()
    return Send(token, outcome, int(began), int(took), int(due) or None)


def run_of(line: str) -> Run:
    """Parse the run in this line."""
    token, at, worker = line.split()
    return Run(token, int(at), int(worker))


@contextlib.contextmanager
def note_fault(what: str, faults: list[Fault]) -> Iterator[None]:
    """Record a fault while the block runs."""
    began = now_ms()
    try:
        yield
    finally:
        faults.append(Fault(what, began, now_ms()))


def now_ms() -> int:
    return time.time_ns() // 1_000_000
