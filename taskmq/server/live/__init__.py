"""Live events: one subscription of the server to the broker's, given to any number of streams.

    broker -> EventHub (one stream, the last 1,000 events) -> a bounded queue of each stream -> server-sent events

A stream that is slower than the events come misses the oldest, and is told how many. One that comes back with
`Last-Event-ID` gets what it has missed, as far as it is still here, else a `gap`. While the broker is away all
streams are told so, and go on when it is back. Nobody listens at the broker while there is no stream.
"""

from taskmq.server.live.hub import EventHub
from taskmq.server.live.stream import EVENT_HANDLERS

__all__ = ["EVENT_HANDLERS", "EventHub"]
