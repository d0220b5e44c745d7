"""Live events: one subscription of the server to the broker's, given to any number of streams.

    broker -> EventHub (one stream, the last 1,000 events) -> a bounded queue of each stream -> server-sent events

A stream that is slower than the events come misses the oldest, and learns how many. One that comes back with
`Last-Event-ID` gets what it has missed, as far as it is still here, else a `gap`. While the broker is away all
streams learn of it, and go on when it is back. The server listens only while there is a stream.

Events from outside come the other way: `outside` takes them, of senders that `sources` knows, and each starts a job.
"""

from typing import Any, Final

from taskmq.server.live.hub import EventHub
from taskmq.server.live.outside_events import OUTSIDE_HANDLERS, identify_signed
from taskmq.server.live.sources import EventSource, read_sources
from taskmq.server.live.stream import STREAM_HANDLERS

__all__ = ["EVENT_HANDLERS", "EventHub", "EventSource", "identify_signed", "read_sources"]

EVENT_HANDLERS: Final[tuple[Any, ...]] = (*STREAM_HANDLERS, *OUTSIDE_HANDLERS)
