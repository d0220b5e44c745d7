"""Delivery of events: each becomes a published job or a record in the state, durable in both cases."""

from typing import Final, NamedTuple

from msgspec.structs import replace

from taskmq.client.producer import Producer
from taskmq.durable.service import is_interruption
from taskmq.errors import DuplicateJob, JobConflict, SendError, StateUnavailable, StoreUnavailable, TooLarge
from taskmq.middleware.chain import Sending
from taskmq.model.keys import reaction_job_id, reaction_record_key
from taskmq.reactions.model.events import MessageArrived, ReactionEvent
from taskmq.reactions.model.pending import MOST_FIRINGS, RecordedEvent, record_event
from taskmq.reactions.pending_store import PendingRecords, change_pending
from taskmq.reactions.reactions import Reaction
from taskmq.run.context import leave_run
from taskmq.stored_jobs.new_jobs import set_derived_id

REACTION_NAME: Final = "taskmq.reactions"
"""Key of an envelope's `meta` with the name of the reaction that sent it."""

# Each event reads and writes the whole record.
_MOST_RECORDED: Final = 64 * 1024


class CallFailed(SendError):
    """Raised when the app's own code fails while the call is built."""


class Cause(NamedTuple):
    """The job whose end caused the event, and the root job that it descends from."""

    job_id: str
    root: str


class ReactionDelivery:
    """Delivery of events to the reactions of an app."""

    def __init__(self, app_name: str, producer: Producer, *, stored: PendingRecords | None = None) -> None:
        self._app_name = app_name
        self._producer = producer
        self._stored = stored

    async def deliver(
        self, reaction: Reaction, number: int, recorded: RecordedEvent, *, cause: Cause | None = None
    ) -> None:
        """Deliver an event. Returns when its job is confirmed, or when the state has recorded the event.

        Delivering the same event again has no further effect.

        Args:
            number: number of the condition within the expression.
            cause: the job whose end caused the event, if any.

        Raises:
            SendError: the broker has not confirmed the job. `TooLarge`: it never will.
            StateUnavailable: the state could not be reached, or too many calls already wait for the broker.
        """
        if reaction.is_direct:
            await self.publish(reaction, recorded.id, [recorded.event], cause=cause)
            return
        event = recorded.event
        if isinstance(event, MessageArrived) and len(event.body) > _MOST_RECORDED:
            raise TooLarge(len(event.body), _MOST_RECORDED, f"a message that reaction {reaction.name} has to record")
        now = self._producer.sessions.clock.now_ms()
        has_room, _ = await change_pending(
            self._records(reaction),
            reaction_record_key(self._app_name, reaction.name),
            lambda pending: record_event(pending, reaction.plan, number=number, recorded=recorded, now=now),
        )
        if not has_room:
            raise StateUnavailable(
                f"{MOST_FIRINGS} calls of reaction {reaction.name} wait for a beat, or for the broker"
            )

    async def publish(
        self, reaction: Reaction, event: str, events: list[ReactionEvent], *, cause: Cause | None = None
    ) -> None:
        """Publish the job of a call. Returns when it is confirmed.

        A task with `lane="store"` is submitted to the store. If another job has the call's unique key, or the store
        already has the job, nothing is sent.

        Raises:
            SendError: the job is not confirmed. `TooLarge`: it never will be.
        """
        try:
            await self._producer.send_async(self._sending(reaction, event, events, cause))
        except (DuplicateJob, JobConflict):
            # The job may have ended a second time, at another instant: the same event with other arguments.
            return
        except (SendError, StateUnavailable):
            raise
        except BaseException as error:
            # Middleware and argument types are the app's own code, which may raise anything.
            if is_interruption(error):
                raise
            raise CallFailed(f"reaction {reaction.name}: building its call failed: {_safe_repr(error)}") from error

    def _sending(self, reaction: Reaction, event: str, events: list[ReactionEvent], cause: Cause | None) -> Sending:
        with leave_run():
            build = reaction.task.submission if reaction.is_dynamic else reaction.task.sending
            sending = build(*reaction.arguments(events))
        job_id = reaction_job_id(self._app_name, reaction.name, event)
        sending.envelope = replace(
            sending.envelope,
            parent=None if cause is None else cause.job_id,
            root=None if cause is None else cause.root,
            meta={**(sending.envelope.meta or {}), REACTION_NAME: reaction.name},
        )
        if sending.submission is not None:
            set_derived_id(sending, job_id)
            return sending
        # A key needs a state, in which workers record that the job ran.
        key = sending.envelope.key or (None if self._producer.sessions.state_url is None else job_id)
        sending.envelope = replace(sending.envelope, id=job_id, key=key)
        return sending

    def _records(self, reaction: Reaction) -> PendingRecords:
        if reaction.is_dynamic:
            if self._stored is None:
                raise StoreUnavailable(f"reaction {reaction.name} is kept in the store, and the app has none")
            return self._stored
        schedules = self._producer.sessions.current().stores.schedules
        if schedules is None:
            raise StateUnavailable(
                "reactions that wait for several events need a state: TaskMQ(..., state='redis://...'), "
                "$TASKMQ_STATE, or local://PATH on one host"
            )
        return schedules


def _safe_repr(error: BaseException) -> str:
    try:
        return repr(error)
    except BaseException:  # noqa: BLE001 - a class of the app's own
        return type(error).__name__
