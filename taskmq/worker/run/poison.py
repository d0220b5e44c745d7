"""Quarantine of runs that may be poison: redelivered messages of dead workers, and processes that die under a task.

A job has `most` starts. The first one is not recorded; each further one is counted when it starts and forgotten when
it ends, whatever its outcome. A job that used up all starts without an end becomes a dead letter as `worker_lost`:

    come back     starts counted    the run
    1st time      1                 as any other
    2nd time      2 = most - 1      alone in its process: nothing else starts until it has ended
    3rd time      3 = most          none: dead

A crash does not show which of the tasks in the process caused it; the last start does, because it is alone.
Prefetched messages have not started, so they are never counted. Isolation is limited on both sides: after `_PATIENCE`
seconds of waiting for others, or of running, the process resumes its other work.

Crashes of a stored job are counted by its scheduler, and its invitation says how many there were. Its messages never
run once they came back.

A message that is redelivered because its connection was lost, while its first run continues in this process, is not
counted. If the run continues in another process, that one takes its count back as soon as it sees that its delivery
is void. Processes of `executor="process"` are counted the same way, without another run to suspect. Tasks with early
acknowledgement are not redelivered.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from taskmq.contracts.broker import Delivery
from taskmq.contracts.broker_abilities import is_revoked
from taskmq.errors import WorkerLost
from taskmq.model.outcome import STOPPED, Dead, Interrupted, Outcome, Retried
from taskmq.worker.attempt import Attempt
from taskmq.worker.run.crash_counter import CrashCounter
from taskmq.worker.run.thread_runs import ThreadRuns

_log = logging.getLogger("taskmq.worker")

_PATIENCE: Final = 30.0
_LOOK: Final = 0.1
# Time for acknowledgements of the worker to reach the broker: they may be written a moment later.
_ON_ITS_WAY: Final = 0.05
# The same, with certainty.
_ARRIVED: Final = 5.0


class Quarantine:
    """Runs attempts that may be poison.

    Args:
        run: runs an attempt.
        starts: counts starts.
        most: starts of a job; at least 2.
        running: every delivery in a slot, by its task.
        threads: runs in slots without a task.
        resume: called when other deliveries may start again.

    Attributes:
        is_closed: whether one run is isolated: no other delivery may start.
        is_stopping: whether runs are being interrupted.
    """

    def __init__(
        self,
        run: Callable[[Attempt], Awaitable[Outcome]],
        starts: CrashCounter,
        *,
        most: int,
        running: Mapping["asyncio.Task[None]", Delivery],
        resume: Callable[[], None],
        threads: ThreadRuns | None = None,
    ) -> None:
        self._run = run
        self._starts = starts
        self._most = most
        self._running = running
        self._threads = threads
        self._resume = resume
        self._line = asyncio.Lock()
        self._in_line: set[asyncio.Task[Any]] = set()
        self._counted: dict[str, Delivery] = {}
        self._dead: dict[str, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None
        self.is_closed = False
        self.is_stopping = False

    async def run(self, attempt: Attempt) -> Outcome:
        """Run the attempt, isolated if it may be poison; return its outcome."""
        if (invitation := attempt.envelope.store) is not None:
            return await self._run_stored(attempt, invitation.crashes or 0)
        if attempt.delivery.redelivered and not self._runs_here(attempt.delivery):
            return await self._run_counted(attempt)
        return await self._run_on(attempt, started=0)

    def forget(self, attempt: Attempt) -> None:
        """Forget the starts of a job whose dead letter is durable; soon it may start as if it were new.

        Not immediately: if this process ended before the broker received the ack, the message would be redelivered,
        and must not start again.
        """
        job_id = attempt.job_id
        if (before := self._dead.get(job_id)) is not None:
            before.cancel()
        self._dead[job_id] = asyncio.create_task(self._forget(job_id), name="taskmq worker forgets a dead job")

    async def aclose(self) -> None:
        """Take back the counts of runs that do not end: the worker stops, it does not crash."""
        if self._watching is not None:
            self._watching.cancel()
        for task in self._dead.values():
            task.cancel()
        await asyncio.gather(*map(self._end, tuple(self._counted)), *map(self._starts.end, self._dead))
        await self._starts.aclose()

    async def _run_counted(self, attempt: Attempt) -> Outcome:
        admission = _Admission(self._line)
        try:
            # Sequentially: while one runs alone, those behind it have not started and are not charged.
            await self._enter(admission)
            if self.is_stopping:
                return Interrupted()
            count = await self._begin(attempt)
            if count >= self._most:
                self._counted.pop(attempt.job_id, None)
                return self._poison(attempt, count)
            if count == self._most - 1:
                await self._be_alone(admission)
            else:
                admission.release()
            return await self._run_on(attempt, started=count)
        finally:
            self._open(admission)
            await self._end(attempt.job_id)

    async def _run_stored(self, attempt: Attempt, crashes: int) -> Outcome:
        """Run a stored job, whose crashes the scheduler counts."""
        if crashes >= self._most:
            return self._poison(attempt, crashes)
        if crashes < self._most - 1:
            return await self._run_on(attempt, started=crashes)
        admission = _Admission(self._line)
        try:
            await self._enter(admission)
            if self.is_stopping:
                return Interrupted()
            await self._be_alone(admission)
            return await self._run_on(attempt, started=crashes)
        finally:
            self._open(admission)

    async def _run_on(self, attempt: Attempt, *, started: int) -> Outcome:
        """Run, and repeat while the task's own process dies and starts are left."""
        try:
            while True:
                outcome = await self._run(attempt)
                if attempt.task.plan.executor != "process" or not _is_lost(outcome):
                    return outcome
                if self.is_stopping:
                    return Interrupted(STOPPED)
                # If the state does not count, this worker does while it has the message.
                started = max(await self._begin(attempt), started + 1)
                if started >= self._most:
                    self._counted.pop(attempt.job_id, None)
                    return self._poison(attempt, started)
                _log.warning("job %s: its process ended, start %d of %d", attempt.job_id, started + 1, self._most)
        finally:
            await self._end(attempt.job_id)

    def _poison(self, attempt: Attempt, count: int) -> Dead:
        times = min(count, self._most)
        words = (
            f"task {attempt.envelope.task} was started {times} times and each time its process ended before it did"
        )
        return Dead("worker_lost", WorkerLost(words, starts=times))

    def _runs_here(self, delivery: Delivery) -> bool:
        """Return whether the message's earlier delivery still runs here: its connection was lost, not its worker."""
        message_id = delivery.message_id
        return message_id is not None and any(
            other is not delivery and other.message_id == message_id
            for other in (*self._running.values(), *(() if self._threads is None else self._threads.deliveries()))
        )

    async def _begin(self, attempt: Attempt) -> int:
        # Before it is counted: if this is cancelled meanwhile, the count may exist.
        self._counted[attempt.job_id] = attempt.delivery
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="taskmq worker looks for void deliveries")
        return await self._starts.begin(attempt.job_id)

    async def _forget(self, job_id: str) -> None:
        await asyncio.sleep(_ARRIVED)
        await self._starts.end(job_id)
        del self._dead[job_id]

    async def _end(self, job_id: str) -> None:
        if self._counted.pop(job_id, None) is not None:
            await self._starts.end(job_id)

    async def _watch(self) -> None:
        while self._counted:
            await asyncio.sleep(_LOOK)
            for job_id, delivery in tuple(self._counted.items()):
                if is_revoked(delivery):
                    # Another worker gets the message now, although nothing crashed.
                    await self._end(job_id)

    async def _enter(self, admission: "_Admission") -> None:
        me = _current_task()
        self._in_line.add(me)
        try:
            await admission.acquire()
        finally:
            self._in_line.discard(me)

    async def _be_alone(self, admission: "_Admission") -> None:
        """Return once nothing else runs here, or the other runs have proved harmless for long enough."""
        self.is_closed = True
        # Runs that start in this turn of the loop get in line.
        await asyncio.sleep(0)
        others: list[asyncio.Future[None]] = [*(self._running.keys() - self._in_line - {_current_task()})]
        if self._threads is not None:
            others += self._threads.ends()
        if others:
            _log.warning(
                "isolating one job, because its worker died while it ran; waiting for %d others", len(others)
            )
            await asyncio.wait(others, timeout=_PATIENCE)
            # Their work would be repeated.
            await asyncio.sleep(_ON_ITS_WAY)
        admission.timer = asyncio.get_running_loop().call_later(_PATIENCE, self._open, admission)

    def _open(self, admission: "_Admission") -> None:
        if admission.release() and self.is_closed:
            self.is_closed = False
            self._resume()


class _Admission:
    """The right of one job to start: released once, at the run's end or before."""

    def __init__(self, line: asyncio.Lock) -> None:
        self._line = line
        self._is_acquired = False
        self.timer: asyncio.TimerHandle | None = None

    async def acquire(self) -> None:
        await self._line.acquire()
        self._is_acquired = True

    def release(self) -> bool:
        """Release the admission; return whether it was acquired until now."""
        if not self._is_acquired:
            return False
        self._is_acquired = False
        self._line.release()
        if self.timer is not None:
            self.timer.cancel()
        return True


def _is_lost(outcome: Outcome) -> bool:
    return isinstance(outcome, Retried | Dead) and isinstance(outcome.error, WorkerLost)


def _current_task() -> "asyncio.Task[Any]":
    task = asyncio.current_task()
    assert task is not None
    return task
