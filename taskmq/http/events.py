"""Server-sent events, parsed from lines."""

from typing import Any

import msgspec


class LiveEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A live event of the server's stream.

    Attributes:
        id: the id to resume after; "" for messages about the stream itself.
        kind: `job` or `worker`; `gap` (events may be missing), `missed` (`count` events were dropped, because this
            client was slow), `broker` (`is_connected`).
        data: the fields, described in docs/events.md.
    """

    id: str
    kind: str
    data: dict[str, Any]


class EventLines:
    """A parser for the lines of one stream."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def add(self, line: str) -> LiveEvent | None:
        """Parse one more line. Returns the event it completes, if any."""
        if line:
            name, _, value = line.partition(":")
            # Comments have no name; the server sends them as heartbeats.
            if name:
                value = value.removeprefix(" ")
                before = self._fields.get("data")
                self._fields[name] = f"{before}\n{value}" if name == "data" and before is not None else value
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        data = msgspec.json.decode(fields["data"], type=dict[str, Any])
        return LiveEvent(id=fields.get("id", ""), kind=fields.get("event", "message"), data=data)
