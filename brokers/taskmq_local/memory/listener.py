"""Listeners of `memory://NAME`: they hear at once and keep a bounded number of pending messages."""

from collections import deque
from collections.abc import Callable, Collection
from typing import Final

from taskmq_local.database.loop_wakeup import LoopWakeup
from taskmq_local.memory.data import MemoryData
from taskmq_local.rules.topics import matcher

_MOST: Final = 10_000


class MemoryListener:
    """A `taskmq.contracts.broker.Listening`; the newest 10,000 messages wait for its loop, older ones are dropped."""

    def __init__(self, data: MemoryData, patterns: Collection[str], receive: Callable[[str, bytes], None]) -> None:
        self._data = data
        self._fits = matcher(patterns)
        self._receive = receive
        self._heard: deque[tuple[str, bytes]] = deque(maxlen=_MOST)
        self._wakeup = LoopWakeup(self._pass_on)
        self._is_stopped = False
        data.listen(self.hear)

    def hear(self, topic: str, body: bytes) -> None:
        """Keep a matching message; called from any thread, one at a time."""
        if self._fits(topic):
            self._heard.append((topic, body))
            self._wakeup.fire()

    async def stop(self) -> None:
        self.end()

    def end(self) -> None:
        """Stop listening. May be called twice."""
        self._is_stopped = True
        self._data.stop_listening(self.hear)
        self._heard.clear()

    def _pass_on(self) -> None:
        while self._heard and not self._is_stopped:
            self._receive(*self._heard.popleft())
