"""Which files of a folder are complete: by what was seen of them, look after look."""

import hashlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from taskmq.reactions.model.conditions import FileArrives
from taskmq.reactions.model.events import FileArrived
from taskmq.reactions.model.pending import RecordedEvent

__all__ = ["Arrivals", "Sighting"]


class Sighting(NamedTuple):
    """A file as one look has found it.

    Attributes:
        modified: in ns since the epoch, by the file system's clock.
        is_flagged: whether the file that says so is beside it, and not older.
    """

    path: str
    inode: int
    size: int
    modified: int
    is_flagged: bool = False


class Arrivals:
    """The files of one condition, as one process sees them."""

    def __init__(self, condition: FileArrives) -> None:
        self._condition = condition
        self._since: dict[Sighting, float] = {}
        self._told: set[Sighting] = set()

    def look(self, found: Iterable[Sighting], *, now: float) -> list[tuple[Sighting, RecordedEvent]]:
        """The files that are complete and not reported yet.

        Args:
            found: all files that are there now, without those that are flags.
            now: ms on a clock that only goes forward.
        """
        since: dict[Sighting, float] = {}
        told: set[Sighting] = set()
        complete: list[tuple[Sighting, RecordedEvent]] = []
        for seen in found:
            # Recognised by what it is; the flag beside it may go.
            file = seen._replace(is_flagged=False)
            if file in self._told:
                told.add(file)
                continue
            since[file] = self._since.get(file, now)
            if now - since[file] >= self._condition.stable and (seen.is_flagged or not self._condition.done):
                complete.append((file, _noted(file)))
        # What has gone is forgotten: the same path, seen later, is another file, or one that was moved back.
        self._since, self._told = since, told
        return complete

    def told(self, file: Sighting) -> None:
        """Everything about this one is done, here or elsewhere."""
        self._told.add(file)
        self._since.pop(file, None)


def _noted(file: Sighting) -> RecordedEvent:
    told = f"{file.path}\n{file.inode}\n{file.size}\n{file.modified}"
    return RecordedEvent(
        hashlib.sha256(told.encode(errors="surrogateescape")).hexdigest()[:32],
        FileArrived(
            path=file.path, size=file.size, modified=datetime.fromtimestamp(file.modified / 1_000_000_000, UTC)
        ),
    )
