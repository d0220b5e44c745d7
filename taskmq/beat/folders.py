"""Arriving files: polled once a second, and each reported once by all replicas together.

    look --> complete --> claim, by the file's identity --> deliver --> complete the claim, which is remembered
                            +- held, done: by another replica   died before: its lease ends, another takes over

Every replica reads its own file system. A report contains path, inode, size and time of a file: replicas that share a
file system see the same, and a file that is written again is another one.
"""

import asyncio
import glob
import logging
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from taskmq.beat.server_clock import passed_ms
from taskmq.contracts.stores import ClaimStore, Done, Granted
from taskmq.errors import SendError, StateUnavailable
from taskmq.model.keys import arrival_key, reaction_job_id
from taskmq.reactions import Arrivals, FileArrives, Reaction, ReactionDelivery, Sighting
from taskmq.reactions.model.pending import RecordedEvent

_log = logging.getLogger("taskmq.beat")

_LEASE: Final = 10.0
_SILENT: Final = 60.0
REMEMBERED: Final = 30 * 86_400.0
"""Seconds after which a file that is still there counts as a new one."""


class Folder:
    """Files for one condition of a reaction.

    Args:
        owner: this replica.
        passed: ms of a monotonic clock.
    """

    def __init__(
        self,
        reaction: Reaction,
        number: int,
        condition: FileArrives,
        *,
        app: str,
        delivery: ReactionDelivery,
        claims: ClaimStore,
        owner: str,
        passed: Callable[[], float] = passed_ms,
    ) -> None:
        self._reaction = reaction
        self._number = number
        self._condition = condition
        self._app = app
        self._delivery = delivery
        self._claims = claims
        self._owner = owner
        self._passed = passed
        self._arrivals = Arrivals(condition)
        self._complaint = ""

    async def look(self) -> None:
        """Report complete files; one that cannot be reported now is found again by the next look."""
        found = await _in_a_thread(lambda: scan(self._condition))
        for file, noted in self._arrivals.update(found, now=self._passed()):
            try:
                if await self._tell(noted):
                    self._arrivals.mark_handled(file)
                self._complaint = ""
            except (SendError, StateUnavailable) as error:
                self._complain(str(error))
                return

    async def _tell(self, noted: RecordedEvent) -> bool:
        """Report the file; return whether it is reported, by this replica or another one."""
        key = arrival_key(self._app, self._reaction.name, self._number, noted.id)
        job_id = reaction_job_id(self._app, self._reaction.name, noted.id)
        answer = await self._claims.claim(key, job_id=job_id, owner=self._owner, lease=_LEASE, ttl=_SILENT)
        if not isinstance(answer, Granted):
            return isinstance(answer, Done)
        try:
            await self._delivery.deliver(self._reaction, self._number, noted)
        except SendError:
            # Immediately, so that the next look may retry.
            await self._claims.release(key, token=answer.token)
            raise
        return await self._claims.complete(
            key, token=answer.token, job_id=job_id, content_type="", value=b"", ttl=REMEMBERED
        )

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            _log.warning("reaction %s: checking for files failed, will retry: %s", self._reaction.name, complaint)


def scan(condition: FileArrives) -> list[Sighting]:
    """Return the existing files, in the order of their paths; unreadable ones are left out."""
    found: list[Sighting] = []
    for path in glob.iglob(condition.pattern, recursive=True):  # noqa: PTH207 - takes absolute patterns, too
        if condition.done and path.endswith(condition.done):
            continue
        try:
            # A name that is not text cannot be reported.
            path.encode()
            facts = Path(path).stat()
            is_flagged = bool(condition.done) and _is_flagged(path + condition.done, facts.st_mtime_ns)
        except (OSError, UnicodeEncodeError):
            continue
        if stat.S_ISREG(facts.st_mode):
            found.append(Sighting(path, facts.st_ino, facts.st_size, facts.st_mtime_ns, is_flagged))
    return sorted(found)


def _is_flagged(flag: str, modified: int) -> bool:
    try:
        # An older flag belongs to an earlier file.
        return Path(flag).stat().st_mtime_ns >= modified
    except FileNotFoundError:
        return False


async def _in_a_thread(look: Callable[[], list[Sighting]]) -> list[Sighting]:
    """Run `look` in a thread: a file system that hangs delays nothing else, not even the end of the process."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[Sighting]] = loop.create_future()

    def tell(found: list[Sighting] | None, error: Exception | None) -> None:
        if answer.cancelled():
            return
        if found is None:
            answer.set_exception(error or OSError("nothing found"))
        else:
            answer.set_result(found)

    def run() -> None:
        found: list[Sighting] | None = None
        failure: Exception | None = None
        try:
            found = look()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, found, failure)

    threading.Thread(target=run, name="taskmq beat looks for files", daemon=True).start()
    return await answer
