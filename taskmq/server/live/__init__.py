"""Live events: one subscription of the server to the broker's events, shared by any number of streams.

    broker -> EventHub (one stream, the last 1,000 events) -> a bounded queue per stream -> server-sent events

A stream that is slower than the events loses the oldest, and reports how many. A client that reconnects with
`Last-Event-ID` receives the missed events that are still buffered, otherwise a `gap`. If the broker is unreachable,
all streams report it, and continue once it is back. The server only listens while a stream is open.

External events flow the other way: `outside` accepts them from the senders in `sources`, and each starts a job.
"""

from typing import Any, Final

from taskmq.server.live.hub import EventHub
from taskmq.server.live.outside_events import OUTSIDE_HANDLERS, identify_signed
from taskmq.server.live.sources import EventSource, read_sources
from taskmq.server.live.stream import STREAM_HANDLERS

__all__ = ["EVENT_HANDLERS", "EventHub", "EventSource", "identify_signed", "read_sources"]

EVENT_HANDLERS: Final[tuple[Any, ...]] = (*STREAM_HANDLERS, *OUTSIDE_HANDLERS)
