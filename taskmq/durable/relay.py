"""Relay: publishes the messages of an outbox.

    take under a lease -> publish -> wait for the confirms -> done -> take, until nothing is due
                             | the broker is unavailable: returned, and retried after a pause
                             | the message's own fault: left to the end of its lease

Any number of processes may have a relay for one outbox and share the work: no other relay gets a taken message before
its lease ends. A relay that is killed in between leaves its messages to another one; each may then be published
twice, under the same job id, and is never lost. Messages whose queue does not exist go to `taskmq.unroutable`.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from msgspec.structs import replace

from taskmq.contracts.broker import Outgoing
from taskmq.contracts.stores import Outbox
from taskmq.durable.service import pause, unless_set
from taskmq.errors import BrokerBlocked, BrokerUnavailable, PublishUnknown, SendError, StateUnavailable, Unroutable
from taskmq.model import headers as header
from taskmq.model.backoff import Backoff
from taskmq.model.clock import Clock
from taskmq.model.topology import UNROUTABLE

_log = logging.getLogger("taskmq")

T = TypeVar("T")

_BATCH: Final = 200
# Not everything is announced: a lease expires silently, and an announcement may get lost.
_LOOK: Final = 1.0
# Between two batches, so that relays which wake for the same message spread their calls.
_BREATH: Final = 0.01
_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
# Time of a batch beyond that of a publish.
_LEASE_MARGIN: Final = 5.0
# Faults of the broker, not of the message.
_OUTAGES: Final = (BrokerUnavailable, BrokerBlocked, PublishUnknown)


class Relay(Generic[T]):
    """Publishes the messages of one outbox: a `Service`.

    Args:
        what: names the messages in log lines, in the plural: "delayed jobs".
        outgoing: returns the message of an entry of the outbox.
        publish: publishes messages, waits for their confirms, and returns the errors.
        seconds: maximum seconds of a publish.
    """

    def __init__(
        self,
        what: str,
        outbox: Outbox[T],
        *,
        outgoing: Callable[[T], Outgoing],
        publish: Callable[[Sequence[Outgoing]], Awaitable[list[SendError | None]]],
        seconds: float,
        clock: Clock,
    ) -> None:
        self._what = what
        self._outbox = outbox
        self._outgoing = outgoing
        self._publish_now = publish
        self._clock = clock
        self._lease = seconds + _LEASE_MARGIN
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()
        self._backoff = Backoff(_PAUSE, _LONGEST_PAUSE, draw=lambda pause: pause * random.uniform(0.5, 1))

    def stop(self) -> None:
        """Have `run` return once the current batch has ended."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> None:
        """Publish until `stop`. Waits while the broker or the state is unavailable."""
        stop_listening = self._outbox.listen(self._wake.set)
        try:
            while not self._stopping.is_set():
                self._wake.clear()
                try:
                    if not await self._relay():
                        await self._sleep_until_due()
                        continue
                    self._well()
                    await asyncio.sleep(_BREATH)
                except (StateUnavailable, SendError) as error:
                    await self._trouble(error)
                except Exception:  # noqa: BLE001 - a bug in an adapter must not leave them where they are for ever
                    _log.critical("publishing %s failed", self._what, exc_info=True)
                    await self._trouble(None)
        finally:
            stop_listening()

    async def _relay(self) -> bool:
        """Publish one batch of due messages; return whether there were any."""
        taken = await self._outbox.take(now=self._clock.now_ms(), limit=_BATCH, lease=self._lease)
        if not taken:
            return False
        end = asyncio.get_running_loop().time() + self._lease
        errors = await self._publish([self._outgoing(one) for one in taken])
        await self._settle(taken, errors, end)
        return True

    async def _publish(self, messages: Sequence[Outgoing]) -> list[SendError | None]:
        errors = await self._publish_now(messages)
        lost = [index for index, error in enumerate(errors) if isinstance(error, Unroutable)]
        if lost:
            letters = [messages[index] for index in lost]
            _log.error("moving %d %s to %s: %s", len(lost), self._what, UNROUTABLE, errors[lost[0]])
            headers = [{**letter.headers, header.QUEUE: letter.queue} for letter in letters]
            moved = [
                replace(letter, queue=UNROUTABLE, headers=header)
                for letter, header in zip(letters, headers, strict=True)
            ]
            for index, error in zip(lost, await self._publish_now(moved), strict=True):
                errors[index] = error
        return errors

    async def _settle(self, taken: Sequence[T], errors: Sequence[SendError | None], end: float) -> None:
        """Delete published messages; return the others, unless that is the message's own fault."""
        verdicts = list(zip(taken, errors, strict=True))
        await self._forget([one for one, error in verdicts if error is None], end)
        outages = [error for error in errors if isinstance(error, _OUTAGES)]
        for one, error in verdicts:
            if error is not None and not isinstance(error, _OUTAGES):
                # It is retried when its lease ends, after other due messages.
                message = self._outgoing(one)
                _log.error("job %s: publishing to %s failed, will retry: %s", message.job_id, message.queue, error)
        if outages:
            await self._outbox.give_back([one for one, error in verdicts if isinstance(error, _OUTAGES)])
            raise outages[0]

    async def _forget(self, done: Sequence[T], end: float) -> None:
        loop = asyncio.get_running_loop()
        while done:
            try:
                await self._outbox.mark_done(done)
            except StateUnavailable:
                # There is time as long as no other taker may have them.
                if self._stopping.is_set() or loop.time() + _PAUSE > end:
                    _log.warning(
                        "%d %s may run twice: the state could not record them as published", len(done), self._what
                    )
                    raise
                await asyncio.sleep(_PAUSE)
            else:
                return

    async def _sleep_until_due(self) -> None:
        due = await self._outbox.next_due()
        self._well()
        if due is None:
            await pause(self._wake, _LOOK)
        else:
            await unless_set(self._wake, self._clock.sleep_until(due), timeout=_LOOK)

    async def _trouble(self, error: Exception | None) -> None:
        if error is not None and not self._backoff.failures:
            _log.warning("publishing %s failed, will retry: %s", self._what, error)
        await pause(self._stopping, self._backoff.next())

    def _well(self) -> None:
        if self._backoff.failures:
            _log.warning("%s are published again", self._what)
        self._backoff.reset()
