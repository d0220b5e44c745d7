"""Advances of runs.

    a timer is due --------------------+-> fire timers -> pending runs -+
    half a second has passed ----------+                                |
    a program starts or changes a run ----------------------------------+-> advance, 500 rows a transaction -> jobs
    a report ends a job of a run ---------------------------------------+

After a minute without pending runs, it is every 5 s.

A transaction advances up to 50 runs; a single run usually takes one statement, and often a read before it. A run that
has more to do afterwards is advanced alone, in turn with the others. If nothing else waits in the partition of a
single run's next job, and the partition is held here, the statement also dispatches the job.

Every scheduler advances any run: the store skips runs that another one advances. If a scheduler dies, its transaction
has no effect, and another one repeats it.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import islice
from math import inf
from typing import Final

from taskmq.app import TaskMQ
from taskmq.contracts.jobs import MOST_RUNS, RUN_ENDS_TOPIC, Advanced, JobStore, NewJob, PartitionHold
from taskmq.durable.service import is_interruption, pause
from taskmq.errors import StoreRefused, StoreUnavailable
from taskmq.model.backoff import Backoff
from taskmq.scheduler.firing.due_loop import StoreClock
from taskmq.scheduler.runs.step_jobs import StepJobs, UnloadedTask
from taskmq.scheduler.wakeups import Wakeups

_log = logging.getLogger("taskmq.scheduler")

_POLL: Final = 0.5
# Without a pending run for a minute, programs and timers wake this service.
_IDLE_AFTER: Final = 60.0
_IDLE_POLL: Final = 5.0
_SHORT: Final = 0.05
_LONGEST_PAUSE: Final = 5.0
_PORTION: Final = 200
# Transactions at a time.
_TOGETHER: Final = 2


class RunAdvances:
    """A service that advances pending runs and fires their timers.

    Args:
        clock: clock of the store.
        most: maximum of runs to remember as pending; a search finds the others.

    Attributes:
        next_timer: instant of the next timer, ms since the epoch; None if there is none.
    """

    def __init__(
        self, app: TaskMQ, store: JobStore, wakeups: Wakeups, *, clock: StoreClock, most: int = 10_000
    ) -> None:
        self._app = app
        self._runs = store.runs
        self._wakeups = wakeups
        self._clock = clock
        self._most = most
        session = app.sessions.current()
        self._jobs = StepJobs(app, longest=session.broker.max_message_bytes, arguments=session.arguments)
        # Runs with something to do, the earliest first: those to advance alone, and the others.
        self._large: dict[str, None] = {}
        self._known: dict[str, None] = {}
        self._busy: set[str] = set()
        self._is_turn_of_large = False
        # When all runs are looked for, by the loop's clock.
        self._next_search = 0.0
        self._last_found = -inf
        # Last run of a search that may have left some out, where the next one continues.
        self._search_after = ""
        # When runs that could not be advanced are tried again, by the loop's clock.
        self._failed: dict[str, float] = {}
        self.next_timer: int | None = None
        self._is_stopping = asyncio.Event()
        self._woken = asyncio.Event()
        self._backoff = Backoff(_POLL, _LONGEST_PAUSE)

    def advance_soon(self, run_ids: Collection[str]) -> None:
        """Advance these runs at once: each has something to do."""
        if run_ids:
            self._remember(run_ids)
            self._woken.set()

    @property
    def pending(self) -> int:
        """Return the number of runs that are remembered as pending."""
        return len(self._known)

    def _remember(self, run_ids: Iterable[str]) -> None:
        self._known |= dict.fromkeys(islice(run_ids, max(0, self._most - self.pending)))

    def stop(self) -> None:
        """See `Service`."""
        self._is_stopping.set()
        self._woken.set()

    async def run(self) -> None:
        """Advance runs until `stop`."""
        while not self._is_stopping.is_set():
            self._woken.clear()
            try:
                await self._clock.measure()
                await self._advance_known()
                self._backoff.reset()
            except StoreUnavailable as error:
                if not self._backoff.failures:
                    _log.warning("store unavailable, runs of workflows wait: %s", error)
                await pause(self._is_stopping, self._backoff.next())
                continue
            await pause(self._woken, self._seconds_to_search())

    def _seconds_to_search(self) -> float:
        seconds = self._next_search - asyncio.get_running_loop().time()
        if self.next_timer is not None:
            seconds = min(seconds, (self.next_timer - self._clock.now_ms()) / 1000)
        return max(0.0, seconds)

    def _search_within(self, seconds: float) -> None:
        self._next_search = min(self._next_search, asyncio.get_running_loop().time() + seconds)

    async def advance_all(self) -> int:
        """Fire due timers and advance pending runs until nothing is left; return the number of transactions."""
        count = 0
        while not self._is_stopping.is_set():
            self._next_search = 0.0
            if not (done := await self._advance_known()):
                break
            count += done
        return count

    async def _advance_known(self) -> int:
        """Advance the runs that are known to be pending; look for others when it is time to.

        Returns the number of transactions.
        """
        if not self._known and not self._large and self._seconds_to_search():
            return 0
        counts = await asyncio.gather(*(self._work() for _ in range(_TOGETHER)), return_exceptions=True)
        for each in counts:
            if isinstance(each, BaseException):
                raise each
        return sum(each for each in counts if isinstance(each, int))

    async def _work(self) -> int:
        """Advance known runs until all are done; return the number of transactions."""
        count = 0
        while not self._is_stopping.is_set():
            if not self._seconds_to_search():
                await self._search()
            if ids := self._take():
                await self._advance(ids)
                count += 1
            if self._search_after and not self._known:
                self._search_within(0)
            elif not ids and self._busy:
                self._woken.clear()
                await self._woken.wait()
            elif not ids:
                break
        return count

    async def _search(self) -> None:
        """Fire due timers, and find pending runs."""
        now = asyncio.get_running_loop().time()
        # Set before the search: a wake-up during it is for the next one.
        self._next_search = now + (_POLL if now - self._last_found < _IDLE_AFTER else _IDLE_POLL)
        self.next_timer = await self._runs.fire_timers()
        found = await self._runs.pending(limit=_PORTION, after=self._search_after)
        self._search_after = found[-1] if len(found) == _PORTION else ""
        self._failed = {run_id: until for run_id, until in self._failed.items() if until > now}
        self._remember(run_id for run_id in found if run_id not in self._failed)
        if self._known:
            self._last_found = now

    def _take(self) -> list[str]:
        """Return the runs to advance next: in turn several, and one that has much to do."""
        now = asyncio.get_running_loop().time()
        for group in (self._large, self._known) if self._is_turn_of_large else (self._known, self._large):
            most = 1 if group is self._large else MOST_RUNS
            ready = (each for each in group if each not in self._busy and self._failed.get(each, now) <= now)
            if ids := list(islice(ready, most)):
                self._is_turn_of_large = group is self._known
                for each in ids:
                    self._known.pop(each, None)
                    self._large.pop(each, None)
                self._busy.update(ids)
                return ids
        return []

    async def _advance(self, run_ids: Sequence[str]) -> None:
        """Advance runs in one transaction; if it fails because of one of them, each in its own."""
        try:
            advanced = await self._transact(run_ids)
        except UnloadedTask as error:
            await self._jobs.load(error.name)
            self._known |= dict.fromkeys(run_ids)
        except StoreUnavailable:
            raise
        except Exception as error:
            if is_interruption(error):
                raise
            if len(run_ids) > 1:
                self._large |= dict.fromkeys(run_ids)
            else:
                _log.exception("run %s cannot be advanced, will retry", run_ids[0])
                self._failed[run_ids[0]] = asyncio.get_running_loop().time() + _LONGEST_PAUSE
        else:
            for run_id in run_ids:
                if (one := advanced.get(run_id)) is None:
                    # The scheduler that advances it may have read its inbox before the last row.
                    self._search_within(_SHORT)
                else:
                    self._follow(run_id, one)
        finally:
            self._busy.difference_update(run_ids)
            self._woken.set()

    async def _transact(self, run_ids: Sequence[str]) -> dict[str, Advanced]:
        """Advance runs in one transaction, and publish a job that it dispatched."""
        holds: list[PartitionHold] = []

        def find_hold(job: NewJob) -> PartitionHold | None:
            if (hold := self._wakeups.find_hold(job)) is not None:
                holds.append(hold)
            return hold

        try:
            make_job = partial(self._jobs.make, now=self._clock.now_ms())
            advanced = await self._runs.advance(run_ids, make_job, find_hold)
        except BaseException as error:
            is_undone = isinstance(error, StoreRefused) or (isinstance(error, StoreUnavailable) and error.is_certain)
            if not is_undone:
                # The next holder of the partition publishes a job that was dispatched all the same.
                for hold in holds:
                    self._wakeups.give_up(hold)
            raise
        else:
            for batch in [one.batch for one in advanced.values() if one.batch is not None]:
                # The call may have been repeated after a collision.
                self._wakeups.launch(holds[-1], batch)
            return advanced
        finally:
            for hold in holds:
                self._wakeups.end_hold(hold)

    def _follow(self, run_id: str, advanced: Advanced) -> None:
        """Wake all that the progress of a run concerns."""
        self._wakeups.wake_lanes(advanced.lanes)
        if advanced.ended is not None:
            self._announce_end(run_id)
        for job_id in advanced.asked:
            self._app.jobs.sent.announce_cancellation(job_id)
        if advanced.timer is not None:
            self.next_timer = min(advanced.timer, self.next_timer or advanced.timer)
        self.advance_soon(advanced.woken)
        if advanced.has_more:
            self._large[run_id] = None

    def _announce_end(self, run_id: str) -> None:
        """Tell callers that wait for the run."""
        if (announcer := self._app.sessions.current().announcer) is not None:
            announcer.announce(RUN_ENDS_TOPIC, run_id.encode())
