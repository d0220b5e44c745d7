"""Jobs whose invitation a worker got a second time, and jobs whose worker is gone.

    the job ended, or was dispatched anew  -> nothing
    a worker reported its start            -> it runs without its message (`detached`) while that worker is heard
    otherwise                              -> published again under its token

The end that is reported first is the accepted one. The jobs are in another batch of the store before their reports
are acknowledged, so the partition's next holder publishes what this one did not.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from taskmq.contracts.jobs import DispatchBatch, DispatchStore, ReturnedJob
from taskmq.model.jobs.reports import Report
from taskmq.scheduler.partition import PartitionState
from taskmq.scheduler.partitions import HeldLease


class ReturnedJobs:
    """Publishes the jobs of one partition again.

    Args:
        locate: adds to the jobs of a batch the nodes that they were placed on.
        publish: publishes a batch, beside everything else.
    """

    def __init__(
        self,
        store: DispatchStore,
        state: PartitionState,
        *,
        lease: HeldLease,
        locate: Callable[[DispatchBatch], Awaitable[DispatchBatch]],
        publish: Callable[[DispatchBatch], None],
    ) -> None:
        self._store = store
        self._state = state
        self._lease = lease
        self._locate = locate
        self._publish = publish

    async def take(self, reports: Sequence[Report]) -> list[Report]:
        """Publish those jobs again that no worker is known to run; return what is left to apply.

        A run that goes on is left as `detached`. A job that the store does not dispatch again, because its end was
        asked for or the partition has another holder, is left as its worker reported it.

        Raises:
            StoreUnavailable: the jobs are unchanged, or a second call has the same effect.
        """
        ledger, now = self._state.ledger, asyncio.get_running_loop().time()
        waiting: list[Report] = []
        left: list[Report] = []
        for report in reports:
            if (flight := ledger.find(report.id, report.token)) is None:
                continue
            if ledger.waits(report.id, report.token):
                if not flight.runs_once:
                    ledger.come_back(report.id, now=now)
                waiting.append(report)
            elif ledger.last_heard(report.id) is None:
                left.append(
                    Report(
                        id=report.id,
                        token=report.token,
                        proof=report.proof,
                        kind="detached",
                        attempt=report.attempt,
                        worker=ledger.worker_of(report.id),
                    )
                )
        done = await self.dispatch_again([ReturnedJob(id=each.id, token=each.token) for each in waiting])
        return left + [each for each in waiting if each.id not in done]

    async def dispatch_again(self, jobs: Sequence[ReturnedJob]) -> frozenset[str]:
        """Publish these jobs again under their tokens; return the ids of those that are under way.

        Raises:
            StoreUnavailable: the jobs are unchanged, or a second call has the same effect.
        """
        if not jobs:
            return frozenset()
        batch = await self._store.dispatch_again(self._lease.partition, self._lease.epoch, jobs)
        if batch is None:
            return frozenset()
        if any(self._state.rules.is_placed(job.queue) for job in batch.jobs):
            batch = await self._locate(batch)
        self._state.add([batch], now=asyncio.get_running_loop().time())
        self._publish(batch)
        return frozenset(job.id for job in batch.jobs)
