"""From deliveries in hand to runs in slots, and from their outcomes to what is settled.

    deliver -> Backlog -> a slot: read -> (wait for resources) -> run -> settle -> the slot is free

What a run may have to wait for holds no slot: its turn in a shard, resources that others use. A job that was
cancelled while it waited is settled as cancelled when its turn comes; one that runs is asked to stop, and stopped
after a grace.
"""

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from taskmq.app import TaskMQ
from taskmq.contracts.broker import Delivery
from taskmq.errors import InvalidOption, MalformedMessage
from taskmq.executors import ThreadExecutor
from taskmq.model.envelope import decode_envelope
from taskmq.model.outcome import Cancelled, Dead, Interrupted, Outcome, Parked, Retried, Succeeded
from taskmq.model.topology import CLASSES, WorkQueue, is_shard
from taskmq.model.units import to_ms
from taskmq.options.task_options import ExecutorKind
from taskmq.run.context import current_context
from taskmq.run.execution import Executor
from taskmq.worker.attempt import Attempt
from taskmq.worker.config import WorkerConfig
from taskmq.worker.guards.base import Guards
from taskmq.worker.intake.backlog import Backlog
from taskmq.worker.intake.ordered_shards import OrderedShards
from taskmq.worker.intake.resources import ResourcePool
from taskmq.worker.long_runs.guard import LongRunGuard
from taskmq.worker.run.crash_counter import CrashCounter
from taskmq.worker.run.fast_path import FastPath, FastPathResult
from taskmq.worker.run.journal_service import JournalService
from taskmq.worker.run.poison import Quarantine
from taskmq.worker.run.processor import Processor
from taskmq.worker.run.settle import Settler
from taskmq.worker.run.stats import WorkerStats
from taskmq.worker.run.task_pool import LOOP_BUDGET, Continuation, Pause, TaskPool, WorkItem
from taskmq.worker.run.thread_runs import ThreadRuns

__all__ = ["Dispatcher"]

_log = logging.getLogger("taskmq.worker")

_INTERRUPT_TIMEOUT = 5.0


class Dispatcher:
    """The slots of one worker.

    Args:
        slots: what the worker has for tasks that need more than a slot.
        cancelled: why a job was cancelled, None when it was not; None where nothing can be.
        long_runs: for runs that take longer than the broker allows.
        guards: what some runs have to pass before they start.

    Attributes:
        concurrency: how many runs may go on at a time.
        monotonic: the app's clock, by which runs are timed.
        left_behind: runs that did not end even when they were cancelled; their jobs went back.
    """

    def __init__(
        self,
        app: TaskMQ,
        queues: Sequence[WorkQueue],
        config: WorkerConfig,
        executors: Mapping[ExecutorKind, Executor],
        *,
        worker: str,
        stats: WorkerStats,
        slots: ResourcePool,
        cancelled: Callable[[str], str | None] | None,
        long_runs: LongRunGuard | None = None,
        guards: Guards | None = None,
    ) -> None:
        self.concurrency = config.concurrency
        self.left_behind = 0
        self._config = config
        self.monotonic = app.sessions.clock.monotonic
        self._executors = executors
        self._stats = stats
        self._slots = slots
        self._cancelled = cancelled or _never
        self._long_runs = long_runs
        self._guards = guards or Guards(())
        in_threads = executors.get("thread")
        self._threads: ThreadRuns | None = None
        if isinstance(in_threads, ThreadExecutor):
            self._threads = ThreadRuns(in_threads, stats, self, self.monotonic)
        self._pool: TaskPool[Delivery] = TaskPool(
            config.concurrency,
            take=self._take,
            more=self._more,
            done=self._freed,
            aside=() if self._threads is None else self._threads.going,
        )
        if isinstance(in_threads, ThreadExecutor):
            in_threads.on_told(self._pool.call)
        # What settles a run that has ended in a thread does not inherit what that has set.
        self._variables = contextvars.copy_context()
        self._first: deque[tuple[Delivery, WorkItem]] = deque()
        self._over: set[Delivery] = set()
        self._is_open = True
        self._backlog = Backlog(
            queues,
            slots=config.concurrency,
            weights=dict(zip(CLASSES, config.weights, strict=True)),
            strict=config.strict,
            starvation_limit=config.starvation_limit,
            limits=config.queue_slots,
            shares=config.queue_shares,
        )
        self._shards = OrderedShards(
            app.sessions.clock,
            unknown_attempts=config.unknown_attempts,
            unknown_delay=config.unknown_delay,
            again=self._again,
            passed=self._passed,
        )
        self._recorder = JournalService(app)
        self._processor = Processor(app, executors, config, journal_writer=self._recorder)
        self._settler = Settler(app, worker=worker, result_limit=config.result_limit)
        self._at_once = FastPath(
            app,
            stats,
            keeps_results=self._settler.keeps_results,
            cancelled=cancelled,
            journal_writer=self._recorder,
            long_way=self,
            threads=self._threads,
        )
        self._quarantine: Quarantine | None = None
        if config.max_crashes:
            self._quarantine = Quarantine(
                self._processor.run,
                CrashCounter(app),
                most=config.max_crashes,
                running=self._pool.busy,
                threads=self._threads,
                resume=self._pool.call,
            )

    @property
    def running(self) -> int:
        """How many slots are taken."""
        return len(self._pool.busy) + (0 if self._threads is None else len(self._threads.going))

    @property
    def waiting(self) -> int:
        """How many deliveries in hand have no slot."""
        return len(self._backlog) + len(self._slots)

    @property
    def is_busy(self) -> bool:
        """Whether anything runs, or waits here for something else than a slot."""
        return bool(self.running) or bool(self._slots) or bool(self._first) or self._shards.is_holding

    def deliver(self, delivery: Delivery) -> None:
        """Take a delivery; one that comes before the consumer has stopped, too: it goes back with the rest."""
        self._backlog.put(delivery, now=self.monotonic())
        self._pool.call()

    def resize(self, concurrency: int) -> None:
        """Have so many slots from now on; runs beyond them go on to their end.

        Raises:
            InvalidOption: below 1.
        """
        if concurrency < 1:
            raise InvalidOption("concurrency: at least 1")
        self.concurrency = self._pool.size = concurrency
        self._backlog.resize(concurrency)
        self._pool.call()

    def shed(self, queue: str, *, keep: int) -> None:
        """Give back what waits of a physical queue beyond the first `keep`."""
        for delivery in self._backlog.shed(queue, keep=keep):
            delivery.requeue()

    def waiting_deliveries(self) -> list[Delivery]:
        """Those in hand that have not begun."""
        return [*self._backlog.deliveries(), *(attempt.delivery for attempt in self._slots.attempts())]

    def give_back_some(self, deliveries: Iterable[Delivery]) -> None:
        """Give back those of these that have not begun; none of a shard."""
        unwanted = set(deliveries)
        if not unwanted:
            return
        given = self._backlog.retract(unwanted)
        for attempt in self._slots.attempts():
            if attempt.delivery in unwanted and (removed := self._slots.remove(attempt.job_id)) is not None:
                given.append(removed.delivery)
        for delivery in given:
            delivery.requeue()

    def replace(self, old: Delivery, new: Delivery) -> None:
        """Settle `new` instead of `old` from now on."""
        for task, delivery in self._pool.busy.items():
            if delivery is old:
                self._pool.busy[task] = new

    def stop_taking(self) -> None:
        """Start nothing from here on."""
        self._is_open = False

    def give_back(self) -> None:
        """Give back everything that has not begun."""
        self._is_open = False
        waiting = [attempt.delivery for attempt in self._slots.clear()]
        for delivery in (*self._shards.close(), *waiting, *self._backlog.clear()):
            delivery.requeue()

    async def finished(self) -> None:
        """Return once nothing runs."""
        while self.running:
            ends = () if self._threads is None else self._threads.ends()
            await asyncio.wait((*self._pool.busy, *ends))

    async def interrupt(self) -> None:
        """Interrupt what runs and give it back; what is being settled is settled."""
        running = self._pool.busy
        _log.warning("interrupting %d running tasks; they go back to their queues", self.running)
        self._processor.is_interrupting = True
        if self._quarantine is not None:
            self._quarantine.is_stopping = True
        self._settler.stop_trying()
        for task, delivery in tuple(running.items()):
            if delivery not in self._over:
                task.cancel()
        if self._threads is not None:
            for attempt in tuple(self._threads.going):
                self._threads.give_up(attempt)
        if running:
            await asyncio.wait(tuple(running), timeout=_INTERRUPT_TIMEOUT)
        for delivery in running.values():
            delivery.requeue()
        self.left_behind = len(running)

    async def aclose(self) -> None:
        """Nothing runs any more: let go."""
        if self._threads is not None:
            self._threads.close()
        self._pool.close()
        await self._pool.closed()
        await self._recorder.aclose()
        if self._quarantine is not None:
            await self._quarantine.aclose()

    # Slots -------------------------------------------------------------------------------------------------

    def _more(self) -> int:
        return len(self._backlog) + len(self._slots) + len(self._first)

    def _take(self) -> tuple[Delivery, WorkItem] | Pause | None:
        """What to do next; what the broker has given to somebody else meanwhile is passed over.

        Plain runs that never wait are carried out here, up to the first other one.
        """
        if self._first:
            return self._first.popleft()
        if not self._is_open or (self._quarantine is not None and self._quarantine.is_closed):
            return None
        began = now = self.monotonic()
        room = self._pool.room
        if self._slots and (taken := self._take_granted(now)) is not None:
            return taken
        while room and (delivery := self._backlog.take(now=now)) is not None:
            if _is_void(delivery):
                self._backlog.leave(delivery.queue, now=now)
                self._backlog.release(delivery.queue, now=now)
                continue
            content_type = delivery.content_type
            try:
                envelope = decode_envelope(delivery.body, content_type)
            except MalformedMessage as error:
                return delivery, self._process(delivery, Parked(str(error)))
            step = self._at_once.run(delivery, envelope, content_type, now=now)
            if step is FastPathResult.DECLINED:
                return delivery, self._process(delivery, self._processor.identify(delivery, envelope))
            if not isinstance(step, FastPathResult):
                return delivery, step
            if step is FastPathResult.BEGUN:
                room -= 1
                now = self.monotonic()
                continue
            self._backlog.leave(delivery.queue, now=now)
            if step is FastPathResult.UNCLEAN:
                return Pause.LEAVE
            now = self._at_once.ended
            if now - began > LOOP_BUDGET:
                return Pause.TURN
        return None

    def _take_granted(self, now: float) -> tuple[Delivery, WorkItem] | None:
        while (fits := self._slots.next(now=now)) is not None:
            attempt, grant = fits
            attempt.grant = grant
            if not _is_void(attempt.delivery):
                self._backlog.enter(attempt.delivery.queue)
                return attempt.delivery, self._run(attempt)
            self._slots.give_back(grant)
            self._backlog.release(attempt.delivery.queue, now=now)
        return None

    def _freed(self, delivery: Delivery, error: BaseException | None) -> None:
        self._over.discard(delivery)
        now = self.monotonic()
        if error is not None:
            if not isinstance(error, asyncio.CancelledError):
                _log.critical("a delivery could not be settled; it goes back to its queue", exc_info=error)
            # Otherwise it was interrupted before its first step.
            delivery.requeue()
        self._backlog.leave(delivery.queue, now=now)
        if not self._shards.holds(delivery) and not (self._slots and self._slots.has(delivery)):
            self._backlog.release(delivery.queue, now=now)

    def _again(self, delivery: Delivery) -> None:
        now = self.monotonic()
        self._backlog.release(delivery.queue, now=now)
        self._backlog.put(delivery, now=now, first=True)
        self._pool.call()

    def _passed(self, delivery: Delivery) -> None:
        self._backlog.release(delivery.queue, now=self.monotonic())
        self._pool.call()

    # One delivery ------------------------------------------------------------------------------------------

    async def _process(self, delivery: Delivery, read: Attempt | Parked) -> bool:
        if is_shard(delivery.queue):
            waits = self._shards.take(delivery, read)
            if waits is None:
                return True
            read = waits
        if isinstance(read, Parked):
            self._stats.park(delivery, read)
            await self._settler.park(delivery, read)
            return True
        # Keepers have waited for their time, and so have one: what has none is not asked for its headers.
        if read.envelope.eta is not None and self._long_runs is not None and not await self._long_runs.admits(read):
            return True
        needs = read.task.plan.needs
        if needs is not None and self._cancelled(read.job_id) is None:
            now = self.monotonic()
            read.grant = self._slots.take(needs, now=now)
            if read.grant is None:
                self._slots.wait(read, needs, now=now)
                return True
        return await self._run(read)

    async def _run(self, attempt: Attempt) -> bool:
        try:
            attempt.cancelled = self._cancelled(attempt.job_id)
            outcome: Outcome | None = None
            if attempt.task.plan.is_guarded or attempt.envelope.key is not None or attempt.envelope.flow is not None:
                outcome = await self._guards.acquire(attempt)
                attempt.cancelled = self._cancelled(attempt.job_id)
            if attempt.cancelled is not None:
                outcome = Cancelled(attempt.cancelled)
            if outcome is None:
                self._stats.start(attempt, now=self.monotonic())
                outcome = await self._outcome(attempt, self._ways_of(attempt)(attempt))
        finally:
            if attempt.grant is not None:
                self._slots.give_back(attempt.grant)
        return await self._conclude(attempt, outcome)

    def go_on(self, attempt: Attempt, rest: Coroutine[Any, Any, Any], waits_for: object) -> WorkItem:
        """See `taskmq.worker.run.fast_path.LongWay`."""
        return self._go_on(attempt, Continuation(rest, waits_for))

    def conclude(self, attempt: Attempt, outcome: Outcome) -> WorkItem:
        """See `taskmq.worker.run.fast_path.LongWay`."""
        return self._conclude(attempt, outcome)

    def failed(self, attempt: Attempt, error: BaseException) -> Outcome:
        """See `taskmq.worker.run.fast_path.LongWay`."""
        return self._processor.failed(attempt, error)

    async def _go_on(self, attempt: Attempt, rest: Continuation) -> bool:
        assert attempt.execution is not None
        outcome = await self._processor.go_on(attempt, attempt.execution, rest)
        return await self._conclude(attempt, self._unless_cancelled(attempt, outcome))

    def settled(self, delivery: Delivery, error: BaseException | None, /, *, now: float) -> None:
        """See `taskmq.worker.run.thread_runs.Slots`."""
        if error is None:
            self._backlog.leave(delivery.queue, now=now)
        else:
            self._freed(delivery, error)

    def ended(self, attempt: Attempt, value: object, error: BaseException | None, /) -> None:
        """See `taskmq.worker.run.thread_runs.Slots`."""
        delivery, execution = attempt.delivery, attempt.execution
        assert execution is not None
        failure: BaseException | None = None
        try:
            outcome = Succeeded(value) if error is None else self._processor.raised(attempt, execution, error)
            outcome = self._unless_cancelled(attempt, outcome)
            if not self._is_concluded(attempt, outcome):
                variables = self._variables.copy()
                variables.run(current_context.set, execution.context)
                self._pool.carry_out(delivery, self._settle(attempt, outcome), variables)
                return
        except BaseException as unexpected:  # noqa: BLE001 - as in a member of the pool
            failure = unexpected
        self._freed(delivery, failure)
        self._pool.call()

    async def _conclude(self, attempt: Attempt, outcome: Outcome) -> bool:
        return attempt.is_clean if self._is_concluded(attempt, outcome) else await self._settle(attempt, outcome)

    def _is_concluded(self, attempt: Attempt, outcome: Outcome) -> bool:
        """The run is over. Whether it is also settled, since that needed nothing to be waited for."""
        self._stats.end(attempt, outcome, now=self.monotonic())
        execution = attempt.execution
        if (execution is None or execution.context.journal is None) and self._settler.settle_at_once(
            attempt, outcome
        ):
            return True
        # From here on a stopping worker lets it be settled instead of interrupting it.
        self._over.add(attempt.delivery)
        return False

    async def _settle(self, attempt: Attempt, outcome: Outcome) -> bool:
        journal = None if attempt.execution is None else attempt.execution.context.journal
        if journal is not None:
            await self._recorder.finish(journal)
        is_done = await self._end(attempt, outcome)
        if journal is not None and is_done:
            await self._recorder.end(journal, outcome)
        if is_done and self._quarantine is not None and isinstance(outcome, Dead) and outcome.reason == "worker_lost":
            self._quarantine.forget(attempt)
        return attempt.is_clean

    def _ways_of(self, attempt: Attempt) -> Callable[[Attempt], Awaitable[Outcome]]:
        plan, quarantine = attempt.task.plan, self._quarantine
        if (
            quarantine is not None
            and (attempt.delivery.redelivered or plan.executor == "process")
            and plan.ack == "late"
        ):
            return quarantine.run
        return self._processor.run

    async def _outcome(self, attempt: Attempt, run: Awaitable[Outcome]) -> Outcome:
        try:
            outcome = await run
        except asyncio.CancelledError:
            if attempt.cancelled is None:
                self._stats.forget(attempt)
                raise
            # Before its first step, so that nobody below could tell what it meant.
            outcome = Cancelled(attempt.cancelled)
        except BaseException:
            self._stats.forget(attempt)
            raise
        return self._unless_cancelled(attempt, outcome)

    def _unless_cancelled(self, attempt: Attempt, outcome: Outcome) -> Outcome:
        if attempt.cancelled is not None and not isinstance(outcome, Interrupted):
            # However it ended: nobody wants it any more.
            return Cancelled(attempt.cancelled)
        return outcome

    async def _end(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Settle what was run; whether its message was taken off the broker."""
        if not is_shard(attempt.delivery.queue):
            return await self._settler.settle(attempt, outcome)
        if self._shards.keep(attempt, outcome):
            if not await self._settler.release_permits(attempt, outcome):
                return False
            if isinstance(outcome, Retried):
                self._settler.note_retry(attempt, to_ms(outcome.delay), outcome.error)
            return False
        is_done = await self._settler.settle(attempt, outcome)
        if is_done:
            self._shards.forget(attempt.delivery)
        return is_done

    # Cancelling --------------------------------------------------------------------------------------------

    def cancel(self, job_id: str, reason: str) -> bool:
        """Stop a job's run: a coroutine at once, a thread or process after it was asked and a grace has passed.

        One that waits for resources is settled now. What waits for its slot is settled when it gets one. Whether
        there was a run to stop, or one that waited.
        """
        if self._slots and (held := self._slots.remove(job_id)) is not None:
            held.cancelled = reason
            self._backlog.enter(held.delivery.queue)
            self._first.append((held.delivery, self._settle_cancelled(held, reason)))
            self._pool.call()
            return True
        found = [attempt for attempt in self._stats.running if attempt.job_id == job_id and attempt.cancelled is None]
        for attempt in found:
            self._stop(attempt, reason)
        return bool(found)

    async def _settle_cancelled(self, attempt: Attempt, reason: str) -> bool:
        outcome: Outcome = Cancelled(reason)
        if attempt.task.plan.is_guarded or attempt.envelope.key is not None or attempt.envelope.flow is not None:
            outcome = await self._guards.acquire(attempt) or outcome
        self._over.add(attempt.delivery)
        self._stats.end(attempt, outcome, now=self.monotonic())
        await self._end(attempt, outcome)
        return True

    def _stop(self, attempt: Attempt, reason: str) -> None:
        attempt.cancelled = reason
        kind = attempt.task.plan.executor
        if attempt.execution is not None:
            self._executors[kind].ask_to_stop(attempt.execution)
        if kind == "async" or attempt.execution is None:
            self._cancel_task(attempt)
        else:
            asyncio.get_running_loop().call_later(self._config.cancel_grace, self._cancel_task, attempt)

    def _cancel_task(self, attempt: Attempt) -> None:
        if self._threads is not None:
            self._threads.give_up(attempt)
        for task, delivery in self._pool.busy.items():
            if delivery is attempt.delivery and delivery not in self._over:
                task.cancel()


def _never(_: str) -> None:
    """Without a state nothing can be cancelled."""


def _is_void(delivery: Delivery) -> bool:
    """Whether the broker gives the message to a consumer again, so that running it here could only be too much."""
    return getattr(delivery, "revoked", False) is True
