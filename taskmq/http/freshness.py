"""The age of lists and counts, which a server may read from a replica of its store."""

import contextlib
from collections.abc import Mapping
from math import floor
from time import monotonic


class Freshness:
    """The age of responses that a client accepts, and the age of the latest one. Clients of one connection share it.

    Reads are never older than the client's own latest change.

    Args:
        max_age: the largest accepted age in seconds; None accepts what the server is configured for.

    Attributes:
        age: seconds by which the latest read may be out of date; 0.0 if it is current.
    """

    def __init__(self, max_age: float | None) -> None:
        self.age = 0.0
        self._max_age = max_age
        self._changed: float | None = None

    def headers_of(self, method: str) -> dict[str, str]:
        """Return the headers of a request that demand new enough data."""
        own = None if self._changed is None else monotonic() - self._changed
        limits = [limit for limit in (self._max_age, own) if limit is not None]
        return {"cache-control": f"max-age={floor(min(limits))}"} if limits and method == "GET" else {}

    def note_end(self, method: str) -> None:
        """Note that a request has ended; a change may have been made, whatever its response."""
        if method != "GET":
            self._changed = monotonic()

    def note_response(self, method: str, headers: Mapping[str, str]) -> None:
        """Note the age of a successful response."""
        if method == "GET":
            self.age = 0.0
            with contextlib.suppress(ValueError):
                self.age = float(headers.get("age", "0"))
