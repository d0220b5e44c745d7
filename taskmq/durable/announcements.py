"""Subscription to announcements of other processes for the lifetime of this process."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from taskmq.contracts.broker_abilities import Broadcasting, Listening
from taskmq.durable.service import pause
from taskmq.errors import BrokerUnavailable, TopologyMismatch
from taskmq.model.backoff import Backoff

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0


async def listen(
    broker: Broadcasting,
    topics: Collection[str],
    receive: Callable[[str, bytes], None],
    *,
    stop: asyncio.Event,
    complain: Callable[[Exception], None],
    first_pause: float = _FIRST_PAUSE,
) -> Listening | None:
    """Listen to announcements as soon as the broker permits it; return None if `stop` is set first.

    Args:
        complain: called with the broker's refusal, and again if the reason changes.
        first_pause: seconds until the second attempt; the pauses grow up to a minute.
    """
    backoff, complaint = Backoff(first_pause, _LONGEST_PAUSE), ""
    while not stop.is_set():
        try:
            return await broker.listen(topics, receive)
        except (BrokerUnavailable, TopologyMismatch) as error:
            if str(error) != complaint:
                complaint = str(error)
                complain(error)
            await pause(stop, backoff.next())
    return None
