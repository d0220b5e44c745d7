"""Calls of reactions that wait for several events or a time: leased, published and confirmed."""

import logging
from functools import partial
from typing import Final

from taskmq.errors import EncodeError, SendError, TooLarge
from taskmq.model.clock import Clock
from taskmq.model.keys import reaction_record_key
from taskmq.reactions.deliver import CallFailed, ReactionDelivery
from taskmq.reactions.model.pending import PendingReaction, ReactionCall, confirm, tick, wake_of
from taskmq.reactions.pending_store import PendingRecords, change_pending
from taskmq.reactions.reactions import Reaction

_GIVEN_UP: Final = (CallFailed, EncodeError, TooLarge)


class PendingCalls:
    """The calls of an app's reactions that one process publishes.

    Args:
        records: where the reactions keep their events.
        clock: the common time of all processes.
        owner: identifies this process.
        log: the log of its service.
    """

    def __init__(
        self,
        app_name: str,
        records: PendingRecords,
        delivery: ReactionDelivery,
        *,
        clock: Clock,
        owner: str,
        log: logging.Logger,
    ) -> None:
        self._app_name = app_name
        self._records = records
        self._delivery = delivery
        self._clock = clock
        self._owner = owner
        self._log = log

    async def fire(self, reaction: Reaction, pending: PendingReaction) -> int | None:
        """Publish the calls that are due; return when the next one may be (ms), if that is known.

        Raises:
            StateUnavailable, StoreUnavailable: the records could not be reached.
        """
        plan, now = reaction.plan, self._clock.now_ms()
        wake = wake_of(pending, plan, now=now)
        if pending.rule == plan.rule and (wake is None or wake > now):
            return wake
        name = reaction_record_key(self._app_name, reaction.name)
        taken, after = await change_pending(
            self._records, name, lambda pending: tick(pending, plan, now=now, owner=self._owner)
        )
        sent: set[str] = set()
        failed: set[str] = set()
        for firing in taken:
            await self._publish(reaction, firing, sent, failed)
        for ids, is_sent in ((sent, True), (failed, False)):
            if ids:
                at = self._clock.now_ms()
                _, after = await change_pending(
                    self._records, name, partial(confirm, ids=ids, now=at, is_sent=is_sent)
                )
        return wake_of(after, plan, now=now)

    async def _publish(self, reaction: Reaction, firing: ReactionCall, sent: set[str], failed: set[str]) -> None:
        try:
            await self._delivery.publish(reaction, firing.id, firing.events)
            sent.add(firing.id)
        except _GIVEN_UP as error:
            self._log.error("reaction %s: giving up a call: %s", reaction.name, error)
            failed.add(firing.id)
        except SendError as error:
            # Left to the end of its lease.
            self._log.warning("reaction %s: sending a call failed, will retry: %s", reaction.name, error)
