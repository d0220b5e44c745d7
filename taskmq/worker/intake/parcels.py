"""Parcels: messages with several stored jobs, each of which has a delivery of its own here.

    parcel -> its parts -> each runs and is reported, or is returned to its scheduler by a report
                        -> the last one: the parcel is acknowledged

A part is never requeued, because that would return the parts that have run, too. If the worker stops and cannot
report a part, the whole parcel is requeued, and the next worker returns each of its jobs to the scheduler.

A parcel is little work. If some of its jobs have not begun after a second, runs are longer than the scheduler
expected, and those jobs are returned: another worker may be idle.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from taskmq.contracts.broker import Delivery
from taskmq.contracts.broker_abilities import is_revoked
from taskmq.errors import MalformedMessage
from taskmq.model.envelope import JSON, decode_envelope
from taskmq.model.jobs.reports import decode_parcel

_PATIENCE: Final = 1.0


class Parcels:
    """The parcels that one worker has in hand.

    Args:
        give_back: returns those of some deliveries that have not begun.
        return_part: reports a part as returned, and acknowledges it; returns False if it cannot be reported.
    """

    def __init__(
        self, *, give_back: Callable[[Iterable[Delivery]], None], return_part: "Callable[[ParcelPart], bool]"
    ) -> None:
        self._give_back = give_back
        self._return_part = return_part
        # In the order of their arrival.
        self._open: dict[_OpenParcel, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def unpack(self, delivery: Delivery) -> Sequence[Delivery]:
        """Return a delivery for each job of a parcel; the delivery itself if it cannot be read."""
        try:
            bodies = decode_parcel(delivery.body)
        except MalformedMessage:
            return (delivery,)
        parcel = _OpenParcel(delivery, self._settle)
        queue, redelivered = delivery.queue, delivery.redelivered
        parcel.parts = [ParcelPart(parcel, self._return_part, body, queue, redelivered) for body in bodies]
        parcel.left = len(bodies)
        loop = asyncio.get_running_loop()
        self._open[parcel] = loop.time() + _PATIENCE
        if self._timer is None:
            self._timer = loop.call_later(_PATIENCE, self._return_late)
        return parcel.parts

    def close(self) -> None:
        """Watch no parcel any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _return_late(self) -> None:
        """Return the jobs of parcels that have not begun in time."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        late: list[Delivery] = []
        for parcel, until in tuple(self._open.items()):
            if until > now:
                self._timer = loop.call_at(until, self._return_late)
                break
            del self._open[parcel]
            late += parcel.parts
        self._give_back(late)

    def _settle(self, parcel: "_OpenParcel") -> None:
        self._open.pop(parcel, None)
        parcel.parts = []
        if parcel.is_returned:
            parcel.delivery.requeue()
        else:
            parcel.delivery.ack()


class _OpenParcel:
    """A parcel whose parts are not settled yet.

    Attributes:
        left: number of these parts.
        is_returned: whether one of them could not be reported.
    """

    __slots__ = ("_settle", "delivery", "is_returned", "left", "parts")

    def __init__(self, delivery: Delivery, settle: "Callable[[_OpenParcel], None]") -> None:
        self.delivery = delivery
        self.parts: list[ParcelPart] = []
        self.left = 0
        self.is_returned = False
        self._settle = settle

    def leave(self) -> None:
        """Settle the parcel with its last part."""
        self.left -= 1
        if not self.left:
            self._settle(self)


class ParcelPart(msgspec.Struct, eq=False):
    """A `taskmq.contracts.broker.Delivery` of one job of a parcel."""

    _parcel: _OpenParcel
    _return: "Callable[[ParcelPart], bool]"
    body: bytes
    queue: str
    redelivered: bool
    _is_returning: bool = False
    _settled: bool = False

    def __repr__(self) -> str:
        return f"<ParcelPart {self.message_id} of {self._parcel.delivery!r}>"

    @property
    def content_type(self) -> str | None:
        return JSON

    @property
    def message_id(self) -> str | None:
        """The id of the job; that of the parcel if the part cannot be read."""
        try:
            return decode_envelope(self.body).id
        except MalformedMessage:
            return self._parcel.delivery.message_id

    @property
    def task(self) -> str | None:
        return self._parcel.delivery.task

    @property
    def headers(self) -> Mapping[str, object]:
        return self._parcel.delivery.headers

    @property
    def revoked(self) -> bool:
        """See `taskmq.contracts.broker_abilities.Revocable`."""
        return not self._settled and is_revoked(self._parcel.delivery)

    def ack(self) -> None:
        """Settle the part. The parcel is acknowledged with its last part."""
        if not self._settled:
            self._settled = True
            self._parcel.leave()

    async def ack_confirmed(self) -> bool:
        """Return False, because a single part cannot be acknowledged: its job must not run here."""
        return False

    def requeue(self) -> None:
        """Return the job to its scheduler by a report. If that is impossible, the parcel is requeued in the end."""
        if self._settled:
            return
        # A revoked parcel is redelivered, and its next worker returns each of its jobs.
        if not self._is_returning and not self.revoked:
            self._is_returning = True
            if self._return(self):
                return
        self._settled = True
        self._parcel.is_returned = True
        self._parcel.leave()
