"""Detection of complete files, from repeated scans of a folder."""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from taskmq.reactions.model.conditions import FileArrives
from taskmq.reactions.model.events import FileArrived
from taskmq.reactions.model.pending import RecordedEvent


class Sighting(NamedTuple):
    """A file as one scan found it.

    Attributes:
        modified: time of the last change by the file system's clock (ns since the epoch).
        is_flagged: whether its `done` file exists and is not older.
    """

    path: str
    inode: int
    size: int
    modified: int
    is_flagged: bool = False


class Arrivals:
    """The files of one condition that one process tracks."""

    def __init__(self, condition: FileArrives) -> None:
        self._condition = condition
        self._since: dict[Sighting, float] = {}
        self._handled: set[Sighting] = set()

    def update(self, found: Iterable[Sighting], *, now: float) -> list[tuple[Sighting, RecordedEvent]]:
        """Return the files that are complete and not yet handled.

        Args:
            found: all files that exist now, without the `done` files.
            now: ms on a monotonic clock.
        """
        since: dict[Sighting, float] = {}
        handled: set[Sighting] = set()
        complete: list[tuple[Sighting, RecordedEvent]] = []
        for seen in found:
            # Compared without the flag, because the `done` file may be removed.
            file = seen._replace(is_flagged=False)
            if file in self._handled:
                handled.add(file)
                continue
            since[file] = self._since.get(file, now)
            if now - since[file] >= self._condition.stable and (seen.is_flagged or not self._condition.done):
                complete.append((file, _build_event(file)))
        # Files that are gone are forgotten: the same path later is another file, or one that was moved back.
        self._since, self._handled = since, handled
        return complete

    def mark_handled(self, file: Sighting) -> None:
        """Mark a file as handled, here or by another process."""
        self._handled.add(file)
        self._since.pop(file, None)


def _build_event(file: Sighting) -> RecordedEvent:
    identity = f"{file.path}\n{file.inode}\n{file.size}\n{file.modified}"
    return RecordedEvent(
        hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:32],
        FileArrived(
            path=file.path, size=file.size, modified=datetime.fromtimestamp(file.modified / 1_000_000_000, UTC)
        ),
    )
