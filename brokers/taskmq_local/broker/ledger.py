"""Messages that one broker object holds under its owner's name, and their settlement."""

import asyncio
from typing import Protocol

from taskmq_local.broker.lease import Settlement
from taskmq_local.database.database import Database


class HoldsDeliveries(Protocol):
    """An object that settles deliveries."""

    def ack(self, id_: int) -> None: ...

    async def ack_confirmed(self, id_: int) -> bool: ...

    def requeue(self, id_: int) -> None: ...


class Ledger:
    """Collects settlements and retries those that could not be written.

    Attributes:
        void: number of settlements without effect, because the message had been requeued before.
    """

    def __init__(self, database: Database, owner: str) -> None:
        self.owner = owner
        self.void = 0
        self._database = database
        self._open: Settlement | None = None
        self._failed: list[Settlement] = []
        self._is_closed = False

    def ack(self, id_: int) -> None:
        if self._is_closed:
            self.void += 1
        else:
            self._settlement().acks.append(id_)

    async def ack_confirmed(self, id_: int) -> bool:
        """Acknowledge durably; return whether the message was still held."""
        if self._is_closed:
            self.void += 1
            return False
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def on_end(settlement: Settlement, error: Exception | None) -> None:
            self.void += settlement.void
            if error is not None:
                self.requeue(id_)
            if not done.done():
                done.set_result(error is None and not settlement.void)

        # A separate settlement, so that its result concerns only this message.
        settlement = Settlement(self.owner, on_end)
        settlement.acks.append(id_)
        self._database.submit(settlement)
        return await done

    def requeue(self, id_: int) -> None:
        if self._is_closed:
            self.void += 1
        else:
            self._settlement().requeues.append(id_)

    def put_back(self, ids: list[int]) -> None:
        """Return messages that were leased but not delivered; they count no delivery."""
        if ids and not self._is_closed:
            self._settlement().untouched.extend(ids)

    def repeat(self) -> None:
        """Retry the settlements that could not be written."""
        failed, self._failed = self._failed, []
        for settlement in failed:
            target = self._settlement()
            target.acks += settlement.acks
            target.requeues += settlement.requeues
            target.untouched += settlement.untouched

    def close(self) -> None:
        """Make all further settlements void."""
        self._is_closed = True

    def _settlement(self) -> Settlement:
        if self._open is None or not self._open.is_open:
            self._open = Settlement(self.owner, self._on_end)
            self._database.submit(self._open)
        else:
            self._database.note_arrival()
        return self._open

    def _on_end(self, settlement: Settlement, error: Exception | None) -> None:
        if error is not None:
            self._failed.append(settlement)
        else:
            self.void += settlement.void
