"""Deliveries of `local://`."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import cast

import msgspec

from taskmq.contracts.broker import Delivery
from taskmq_local.broker.lease import LeasedRow
from taskmq_local.broker.ledger import HoldsDeliveries

_decode_headers = msgspec.json.Decoder(dict[str, str | int]).decode
_NO_HEADERS: Mapping[str, object] = {}


class LocalDelivery:
    """A leased row, and the object that settles it."""

    __slots__ = ("_queue", "_row", "_settler")

    def __init__(self, row: LeasedRow, queue: str, settler: HoldsDeliveries) -> None:
        self._row = row
        self._queue = queue
        self._settler: HoldsDeliveries | None = settler

    def __repr__(self) -> str:
        state = "settled" if self._settler is None else "unsettled"
        return f"<LocalDelivery {self.message_id} of {self._queue} {state}>"

    @property
    def body(self) -> bytes:
        return self._row[2]

    @property
    def content_type(self) -> str | None:
        return self._row[3]

    @property
    def queue(self) -> str:
        return self._queue

    @property
    def message_id(self) -> str | None:
        return self._row[4]

    @property
    def task(self) -> str | None:
        return self._row[5]

    @property
    def redelivered(self) -> bool:
        return self._row[1] > 0

    @property
    def headers(self) -> Mapping[str, object]:
        headers = self._row[6]
        return cast("Mapping[str, object]", _decode_headers(headers)) if headers else _NO_HEADERS

    def ack(self) -> None:
        settler, self._settler = self._settler, None
        if settler is not None:
            settler.ack(self._row[0])

    async def ack_confirmed(self) -> bool:
        settler, self._settler = self._settler, None
        return settler is not None and await settler.ack_confirmed(self._row[0])

    def requeue(self) -> None:
        settler, self._settler = self._settler, None
        if settler is not None:
            settler.requeue(self._row[0])


def deliver_all(deliveries: Iterable[Delivery], deliver: Callable[[Delivery], None]) -> None:
    """Call `deliver` for each, in order; an error of one goes to the loop's exception handler."""
    for delivery in deliveries:
        try:
            deliver(delivery)
        except Exception as error:  # noqa: BLE001 - a failed call must not affect later deliveries
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"deliver failed for {delivery!r}", "exception": error}
            )
