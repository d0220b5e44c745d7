"""Ages of deliveries, measured by periodic checks instead of a note for each delivery. Pure."""

from collections.abc import Iterable

from taskmq.contracts.broker import Delivery


class DeliveryAges:
    """Deliveries by the last check before they were first seen: they cannot have arrived earlier.

    Instants are of a monotonic clock, in seconds.

    Args:
        now: a time before any delivery arrived.
    """

    def __init__(self, *, now: float) -> None:
        self._last = now
        self._since: dict[Delivery, float] = {}

    def look(self, here: Iterable[Delivery], *, now: float) -> None:
        """Record a check: exactly these deliveries are here."""
        since = self._since
        self._since = {delivery: since.get(delivery, self._last) for delivery in here}
        self._last = now

    def most(self, delivery: Delivery, *, now: float) -> float:
        """Return an upper bound of a delivery's age in seconds; the error is at most the time between two checks."""
        return now - self._since.get(delivery, self._last)
