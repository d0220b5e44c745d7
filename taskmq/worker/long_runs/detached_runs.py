"""Detached runs: long runs of stored jobs, which the scheduler supervises without a message.

    1 report   `detached`, confirmed. From here on the scheduler is responsible for the job
    2 ack      the delivery
    3 report   `alive`, every ten seconds, while the run continues
    4 report   the outcome, as for any run; or `interrupted` if the worker stops

A run whose message the broker took back, because its connection was cut, begins at 3: the worker that gets the
message returns it to the scheduler. If the scheduler has received no report for a minute, or the worker is absent, it
publishes the job again under the same token, and the first end counts. No state is needed.

    at 3  a report that is not confirmed in time is sent anew ten seconds later
    at 4  tried until the worker stops; an `interrupted` that is not confirmed is silence, which the scheduler notices
"""

import logging
from typing import Final

from msgspec.structs import replace

from taskmq.contracts.broker import Delivery
from taskmq.durable.lease_keeper import LeaseKeeper
from taskmq.durable.task_set import TaskSet
from taskmq.model.envelope import Invitation
from taskmq.model.jobs.reports import INTERRUPTED
from taskmq.model.outcome import STOPPED, ErrorRecord
from taskmq.worker.attempt import Attempt
from taskmq.worker.intake.slots import Slots
from taskmq.worker.long_runs.leased_delivery import LeasedDelivery
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.settlement.reports import ReportSender

_log = logging.getLogger("taskmq.worker")

# The lease keeper renews at a third of this.
_SECONDS: Final = 30.0


class DetachedRuns:
    """Detached runs of one worker."""

    def __init__(self, reports: ReportSender, slots: Slots, stats: WorkerStats) -> None:
        self._reports = reports
        self._slots = slots
        self._stats = stats
        self._running: dict[Attempt, Invitation] = {}
        self._keeper = LeaseKeeper("detached jobs", seconds=_SECONDS, renew=self._say_alive)
        self._tasks = TaskSet("worker reports a detached job", failure="a detached job was not reported")

    async def detach(self, attempt: Attempt, delivery: Delivery, invitation: Invitation) -> None:
        """Let the run continue without its message, once the scheduler has confirmed it."""
        report = self._reports.about(attempt, invitation, "detached")
        if not await self._reports.send(invitation, report):
            # The worker stops.
            return
        # Otherwise the run ended meanwhile, and reported its outcome.
        if attempt in self._stats.running and attempt.delivery is delivery:
            self.go_on(attempt, invitation)
            delivery.ack()

    def go_on(self, attempt: Attempt, invitation: Invitation) -> None:
        """Report a run without a message as alive from now on."""
        delivery = attempt.delivery
        handed = LeasedDelivery(delivery, lambda is_done: self._settle(attempt, invitation, is_done=is_done))
        self._slots.replace(delivery, handed)
        attempt.delivery = handed
        _log.info("job %s of task %s continues without its message", attempt.job_id, attempt.envelope.task)
        self._running[attempt] = invitation
        self._keeper.watch()

    async def aclose(self, *, grace: float) -> None:
        """Stop reporting, after pending reports had `grace` seconds."""
        await self._keeper.aclose()
        await self._tasks.aclose(grace=grace)

    async def _say_alive(self) -> bool:
        if not len(self._tasks):
            # Sequentially: while one report waits for the broker, a second one would not arrive earlier.
            for attempt, invitation in self._running.items():
                self._tasks.start(self._say(attempt, invitation))
        return bool(self._running)

    async def _say(self, attempt: Attempt, invitation: Invitation) -> None:
        await self._reports.send(invitation, self._reports.about(attempt, invitation, "alive"))

    def _settle(self, attempt: Attempt, invitation: Invitation, *, is_done: bool) -> None:
        self._running.pop(attempt, None)
        if not is_done:
            self._tasks.start(self._give_back(attempt, invitation))

    async def _give_back(self, attempt: Attempt, invitation: Invitation) -> None:
        """Return the job to another worker: immediately, or once the scheduler has missed reports for a minute."""
        why = ErrorRecord(type_name=INTERRUPTED, message=STOPPED)
        report = replace(self._reports.about(attempt, invitation, "interrupted"), error=why)
        if not await self._reports.send(invitation, report):
            _log.warning("job %s: reporting its interruption failed; the scheduler will run it again", attempt.job_id)
