"""From what has happened to a job, or to a note of it; durable in either case."""

from typing import Final, NamedTuple

from msgspec.structs import replace

from taskmq.client.producer import Producer
from taskmq.contracts.stores import ScheduleStore
from taskmq.durable.service import is_interruption
from taskmq.errors import DuplicateJob, JobConflict, SendError, StateUnavailable, TooLarge
from taskmq.middleware.chain import Sending
from taskmq.model.keys import reaction_job_id, reaction_record_key
from taskmq.reactions.model.events import MessageArrived, ReactionEvent
from taskmq.reactions.model.pending import MOST_FIRINGS, RecordedEvent, note
from taskmq.reactions.pending_store import change_pending
from taskmq.reactions.reactions import Reaction
from taskmq.run.context import current_context
from taskmq.stored_jobs.new_jobs import under_derived_id

__all__ = ["REACTION_NAME", "Cause", "ReactionDelivery", "Refused"]

REACTION_NAME: Final = "taskmq.reactions"
"""Key of an envelope's `meta`: the reaction that has sent it."""

# A record is read and written as a whole, with each thing that happens.
_MOST_NOTED: Final = 64 * 1024


class Refused(SendError):
    """The app's own code has failed while the call was made."""


class Cause(NamedTuple):
    """The job whose end it is, and the one that it descends from."""

    job_id: str
    root: str


class ReactionDelivery:
    """Notes what happens and sends the tasks of an app that are called for it."""

    def __init__(self, app_name: str, producer: Producer) -> None:
        self._app_name = app_name
        self._producer = producer

    async def deliver(
        self, reaction: Reaction, number: int, noted: RecordedEvent, *, cause: Cause | None = None
    ) -> None:
        """Return once what has happened is a confirmed job, or counts in the state; may be called again.

        Args:
            number: of the condition.
            cause: the job whose end it is, if it is one.

        Raises:
            SendError: the broker has not confirmed it. `TooLarge`: it never will.
            StateUnavailable: the state could not be reached, or holds too many calls that wait for the broker.
        """
        if reaction.is_direct:
            await self.publish(reaction, noted.id, [noted.event], cause=cause)
            return
        event = noted.event
        if isinstance(event, MessageArrived) and len(event.body) > _MOST_NOTED:
            raise TooLarge(len(event.body), _MOST_NOTED, f"a message that reaction {reaction.name} has to remember")
        now = self._producer.sessions.clock.now_ms()
        has_room, _ = await change_pending(
            self._store(),
            reaction_record_key(self._app_name, reaction.name),
            lambda pending: note(pending, reaction.plan, number=number, noted=noted, now=now),
        )
        if not has_room:
            raise StateUnavailable(
                f"{MOST_FIRINGS} calls of reaction {reaction.name} wait for a beat, or for the broker"
            )

    async def publish(
        self, reaction: Reaction, event: str, events: list[ReactionEvent], *, cause: Cause | None = None
    ) -> None:
        """Return once the job is confirmed.

        A call of a task with `lane="store"` is a job of the store then. There is nothing to do if another job has the
        call's unique key, or if the store has the job from an earlier try.

        Raises:
            SendError: it is not. `TooLarge`: it never will be.
        """
        try:
            await self._producer.send_async(self._sending(reaction, event, events, cause))
        except (DuplicateJob, JobConflict):
            # The job that ended may have ended once more, at another instant: the same event with other arguments.
            return
        except (SendError, StateUnavailable):
            raise
        except BaseException as error:
            # Middleware and arguments are the app's own code, which may raise anything.
            if is_interruption(error):
                raise
            raise Refused(f"reaction {reaction.name}: the call is not made: {_words(error)}") from error

    def _sending(self, reaction: Reaction, event: str, events: list[ReactionEvent], cause: Cause | None) -> Sending:
        token = current_context.set(None)
        try:
            sending = reaction.task.sending(*reaction.arguments(events))
        finally:
            current_context.reset(token)
        job_id = reaction_job_id(self._app_name, reaction.name, event)
        sending.envelope = replace(
            sending.envelope,
            parent=None if cause is None else cause.job_id,
            root=None if cause is None else cause.root,
            meta={**(sending.envelope.meta or {}), REACTION_NAME: reaction.name},
        )
        if sending.submission is not None:
            under_derived_id(sending, job_id)
            return sending
        # Without a state no worker could tell that it is done.
        key = sending.envelope.key or (None if self._producer.sessions.state_url is None else job_id)
        sending.envelope = replace(sending.envelope, id=job_id, key=key)
        return sending

    def _store(self) -> ScheduleStore:
        schedules = self._producer.sessions.current().stores.schedules
        if schedules is None:
            raise StateUnavailable(
                "reactions that wait for several things need a state: TaskMQ(..., state='redis://...'), "
                "$TASKMQ_STATE, or local://PATH on one host"
            )
        return schedules


def _words(error: BaseException) -> str:
    try:
        return repr(error)
    except BaseException:  # noqa: BLE001 - a class of the app's own
        return type(error).__name__
