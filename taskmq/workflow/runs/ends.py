"""Announced ends of runs, for callers that wait for them."""

import asyncio
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

from taskmq.client.session import Session
from taskmq.contracts.broker_abilities import Broadcasting
from taskmq.contracts.jobs import RUN_ENDS_TOPIC
from taskmq.errors import BrokerUnavailable, TopologyMismatch

_FOREVER: Final = 86_400.0


class RunEnds:
    """Ends of runs that were announced to one session. Announcements may be lost, so waiters also ask the store.

    Attributes:
        is_listening: whether ends are announced to this session.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._has_begun = False
        self.is_listening: bool = False

    @contextmanager
    def waiter(self, run_id: str) -> Generator[asyncio.Event]:
        """Return an event that is set when the end of this run is announced, inside the block."""
        if not self._has_begun and isinstance(broker := self._session.broker, Broadcasting):
            self._has_begun = True
            self._session.start(self._listen(broker))
        event = asyncio.Event()
        self._waiting[run_id].add(event)
        try:
            yield event
        finally:
            self._waiting[run_id].discard(event)
            if not self._waiting[run_id]:
                del self._waiting[run_id]

    async def _listen(self, broker: Broadcasting) -> None:
        """Listen until the session closes; a user that may not listen asks the store instead."""
        try:
            listening = await broker.listen([RUN_ENDS_TOPIC], self._receive)
        except (BrokerUnavailable, TopologyMismatch):
            return
        self.is_listening = True
        try:
            while True:
                await asyncio.sleep(_FOREVER)
        finally:
            await listening.stop()

    def _receive(self, topic: str, body: bytes) -> None:
        del topic
        for event in self._waiting.get(body.decode(errors="replace"), ()):
            event.set()


_ends: Final[WeakKeyDictionary[Session, RunEnds]] = WeakKeyDictionary()


def ends_of(session: Session) -> RunEnds:
    """Return the announced ends of a session."""
    if (found := _ends.get(session)) is None:
        found = _ends[session] = RunEnds(session)
    return found
