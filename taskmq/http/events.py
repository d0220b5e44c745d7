"""Server-sent events: from lines to events."""

from typing import Any

import msgspec

__all__ = ["EventLines", "LiveEvent"]


class LiveEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that has happened.

    Attributes:
        id: to come back with; "" for what is about the stream itself.
        kind: `job` or `worker`; `gap` (some may be missing), `missed` (`count` were dropped, as this client was
            slow), `broker` (`is_connected`).
        data: its fields; docs/events.md has them.
    """

    id: str
    kind: str
    data: dict[str, Any]


class EventLines:
    """Puts the lines of one stream together."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def add(self, line: str) -> LiveEvent | None:
        """Take one more line; the event that ends with it, if one does."""
        if line:
            name, _, value = line.partition(":")
            # A comment has no name: the server says that it lives.
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
