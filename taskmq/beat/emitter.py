"""Building of messages for occurrences, and publishing them with confirms."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from taskmq.app import TaskMQ
from taskmq.errors import PartlySent, SendError
from taskmq.middleware.chain import Sending
from taskmq.model.keys import scheduled_job_id
from taskmq.run.context import leave_run
from taskmq.run.facts import SCHEDULE_LIMIT
from taskmq.schedules import ScheduleEntry
from taskmq.schedules.occurrence import occurrence_envelope
from taskmq.schedules.record import OccurrenceClaim


class Emission(msgspec.Struct, frozen=True, eq=False):
    """An occurrence that this replica claimed."""

    entry: ScheduleEntry
    claim: OccurrenceClaim


class Emitter:
    """Publishes occurrences, many at a time."""

    def __init__(self, app: TaskMQ) -> None:
        self._app = app
        self._templates: dict[str, tuple[ScheduleEntry, Sending]] = {}

    def job_id(self, emission: Emission) -> str:
        return scheduled_job_id(self._app.name, emission.entry.name, emission.claim.instant, emission.claim.run)

    async def publish(self, emissions: Sequence[Emission], *, now: int) -> dict[Emission, SendError]:
        """Publish emissions, pipelined; return those that were not confirmed, with their errors.

        It raises whatever a middleware raises; then the results are unknown.
        """
        sendings = [self._sending(emission, now) for emission in emissions]
        try:
            await self._app.producer.send_many_async(sendings)
        except PartlySent as error:
            failed = {emissions[at]: failure for at, failure in error.failures.items()}
            # Those after the attempted ones were not sent either.
            return dict.fromkeys(emissions[error.tried :], next(iter(error.failures.values()))) | failed
        except SendError as error:
            return dict.fromkeys(emissions, error)
        return {}

    def _sending(self, emission: Emission, now: int) -> Sending:
        entry, claim = emission.entry, emission.claim
        template = self._template(entry)
        job_id = self.job_id(emission)
        envelope = occurrence_envelope(template.envelope, entry, claim, job_id=job_id, key=job_id, now=now)
        meta = dict(envelope.meta or {})
        if entry.policy.overlap != "allow":
            meta[SCHEDULE_LIMIT] = str(entry.policy.max_concurrency)
        return Sending(replace(envelope, meta=meta), template.queue, template.content_type, dict(template.headers))

    def _template(self, entry: ScheduleEntry) -> Sending:
        known = self._templates.get(entry.name)
        if known is None or known[0] is not entry:
            with leave_run():
                known = (entry, entry.task.sending(*entry.args, **entry.kwargs))
            self._templates[entry.name] = known
        return known[1]
