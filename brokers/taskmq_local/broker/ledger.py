"""What one broker object holds under its owner's name, and how it is let go of."""

import asyncio
from typing import Protocol

from taskmq_local.broker.lease import Settlement
from taskmq_local.database.database import Database

__all__ = ["HoldsDeliveries", "Ledger"]


class HoldsDeliveries(Protocol):
    """Where a delivery says how it ended."""

    def ack(self, id_: int) -> None: ...

    async def ack_confirmed(self, id_: int) -> bool: ...

    def requeue(self, id_: int) -> None: ...


class Ledger:
    """Gathers settlings, and repeats those that could not be written.

    Attributes:
        void: settlings without effect, because the message had been given back before.
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
        """Whether it was ours to acknowledge, once that is on the disk."""
        if self._is_closed:
            self.void += 1
            return False
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def ended(settlement: Settlement, error: Exception | None) -> None:
            self.void += settlement.void
            if error is not None:
                self.requeue(id_)
            if not done.done():
                done.set_result(error is None and not settlement.void)

        # By itself, so that what it says is about this one.
        settlement = Settlement(self.owner, ended)
        settlement.acks.append(id_)
        self._database.submit(settlement)
        return await done

    def requeue(self, id_: int) -> None:
        if self._is_closed:
            self.void += 1
        else:
            self._settlement().requeues.append(id_)

    def put_back(self, ids: list[int]) -> None:
        """Give back what was taken but not handed out: it does not count as a delivery."""
        if ids and not self._is_closed:
            self._settlement().untouched.extend(ids)

    def repeat(self) -> None:
        """Try again what could not be written."""
        failed, self._failed = self._failed, []
        for settlement in failed:
            target = self._settlement()
            target.acks += settlement.acks
            target.requeues += settlement.requeues
            target.untouched += settlement.untouched

    def close(self) -> None:
        """Whatever is settled from here on is void."""
        self._is_closed = True

    def _settlement(self) -> Settlement:
        if self._open is None or not self._open.is_open:
            self._open = Settlement(self.owner, self._done)
            self._database.submit(self._open)
        else:
            self._database.note_arrival()
        return self._open

    def _done(self, settlement: Settlement, error: Exception | None) -> None:
        if error is not None:
            self._failed.append(settlement)
        else:
            self.void += settlement.void
