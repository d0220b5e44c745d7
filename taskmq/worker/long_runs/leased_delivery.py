"""Deliveries whose settling needs more than one message to the broker."""

from collections.abc import Callable, Mapping

from taskmq.contracts.broker import Delivery


class _Copy:
    """The contents of a message, independent of its settlement."""

    def __init__(self, original: Delivery) -> None:
        self.body = original.body
        self.content_type = original.content_type
        self.queue = original.queue
        self.message_id = original.message_id
        self.task = original.task
        self.redelivered = original.redelivered
        self.headers: Mapping[str, object] = original.headers
        self.settled = False


class LeasedDelivery(_Copy):
    """Replaces a delivery that was acknowledged before the end of its run.

    Args:
        settle: called once, with whether the run is done.

    Attributes:
        revoked: whether the lease is lost: another worker runs the job.
    """

    def __init__(self, original: Delivery, settle: "Callable[[bool], None]") -> None:
        super().__init__(original)
        self.revoked = False
        self._settle = settle

    def ack(self) -> None:
        """See `taskmq.contracts.broker.Delivery`."""
        self._end(is_done=True)

    async def ack_confirmed(self) -> bool:
        """See `taskmq.contracts.broker.Delivery`."""
        self.ack()
        return not self.revoked

    def requeue(self) -> None:
        """See `taskmq.contracts.broker.Delivery`."""
        self._end(is_done=False)

    def _end(self, *, is_done: bool) -> None:
        if not self.settled:
            self.settled = True
            self._settle(is_done)


class RecoveredDelivery(_Copy):
    """A standby message whose job was lost and runs again; it may have crashed its worker.

    Args:
        done: called when it is acknowledged.
    """

    def __init__(self, standby: Delivery, done: Callable[[], object]) -> None:
        super().__init__(standby)
        self.redelivered = True
        self._standby = standby
        self._done = done

    @property
    def revoked(self) -> bool:
        """See `taskmq.contracts.broker_abilities.Revocable`."""
        return getattr(self._standby, "revoked", False) is True

    def ack(self) -> None:
        """See `taskmq.contracts.broker.Delivery`."""
        if not self.settled:
            self.settled = True
            self._standby.ack()
            self._done()

    async def ack_confirmed(self) -> bool:
        """See `taskmq.contracts.broker.Delivery`."""
        if self.settled:
            return False
        self.settled = True
        is_acked = await self._standby.ack_confirmed()
        self._done()
        return is_acked

    def requeue(self) -> None:
        """See `taskmq.contracts.broker.Delivery`."""
        if not self.settled:
            self.settled = True
            self._standby.requeue()
