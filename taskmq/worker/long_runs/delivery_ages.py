"""How long deliveries have been here, at the cost of a look now and then instead of a note for each. Pure."""

from collections.abc import Iterable

from taskmq.contracts.broker import Delivery

__all__ = ["DeliveryAges"]


class DeliveryAges:
    """Deliveries by the last look before they were first seen: they cannot have come earlier than that.

    Instants are of a monotonic clock, in seconds.

    Args:
        now: nothing is here yet.
    """

    def __init__(self, *, now: float) -> None:
        self._last = now
        self._since: dict[Delivery, float] = {}

    def look(self, here: Iterable[Delivery], *, now: float) -> None:
        """These are here, and no others."""
        since = self._since
        self._since = {delivery: since.get(delivery, self._last) for delivery in here}
        self._last = now

    def most(self, delivery: Delivery, *, now: float) -> float:
        """How many seconds a delivery may have been here; at most by the time between two looks too many."""
        return now - self._since.get(delivery, self._last)
