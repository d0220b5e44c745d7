"""Random runs on a store, compared with the reference `taskmq.testing.run_model.RunModel`.

Several stores advance the run, some of them at the same time, and may dispatch its jobs at once. Some calls are cut
off at any statement, before or after their commit; another holder of the partition takes over what they dispatched.
Ends are reported twice. Another run takes the only place of some workflows. Submissions fill the quota of a tenant,
so that its steps wait. Whatever happens, the run must be as in the model.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from taskmq.contracts.jobs import DispatchedJob, NewInboxRow, PartitionHold
from taskmq.model.envelope import JSON
from taskmq.model.jobs.quotas import Quota, Quotas, usage_name
from taskmq.model.jobs.reports import ReportKind
from taskmq.model.runs.graphs import load_graph
from taskmq.model.runs.records import InboxRow, RunState, StepKey, StepRecord
from taskmq.model.runs.rules import StepState
from taskmq.testing.job_store_suite.case import JobStoreCase, MovedClockCase
from taskmq.testing.job_store_suite.driver import report
from taskmq.testing.job_store_suite.runs.filler import LIMITED, QuotaFiller
from taskmq.testing.job_store_suite.runs.kit import RunDriver, content_of
from taskmq.testing.run_graphs import PARAMS, random_params, random_steps, random_value
from taskmq.testing.run_model import RunModel
from taskmq.testing.runner import CancelPoint, cancel_at, case

_PAST: Final = "2000-01-01T00:00:00Z"
_SLEEPS: Final = (_PAST, 0)
# Due at once, or never in this test.
_TIMEOUTS: Final = (0, "10h")
_ENDS: Final[dict[ReportKind, StepState]] = {
    "succeeded": StepState.SUCCEEDED,
    "failed": StepState.FAILED,
    "expired": StepState.FAILED,
    "cancelled": StepState.CANCELLED,
}
_RUN_ENDS: Final[dict[RunState, StepState]] = {
    RunState.SUCCEEDED: StepState.SUCCEEDED,
    RunState.FAILED: StepState.FAILED,
    RunState.CANCELLED: StepState.CANCELLED,
}
_LAST_TURN: Final = 40
# A transition has as many statements at most.
_LAST_WAKEUP: Final = 20
_PATIENCE: Final = 30.0
# One of so many comparisons, and the last one, reads all children again.
_WHOLE: Final = 10


class RandomRuns(JobStoreCase):
    """Cases that compare runs of random graphs with the model.

    Attributes:
        graphs: number of random graphs.
        largest: maximum of steps in one.
        first_graph: seed of the first graph.
        cuts: numbers of transitions, by the await at which the last check cut them off; 0: any turn of the loop.
    """

    graphs: int = 4
    largest: int = 10
    first_graph: int = 0
    cuts: Counter[int]

    async def _check(self, drivers: Sequence[RunDriver], filler: QuotaFiller | None = None) -> None:
        self.cuts = Counter()
        for seed in range(self.first_graph, self.first_graph + self.graphs):
            history = _History(Random(seed), drivers, self.largest, f"graph {seed}", filler)
            await history.check()
            self.cuts += history.cuts


class RunsByModel(RandomRuns):
    """Guarantees for any graph and any sequence of events."""

    @case
    async def test_random_runs_end_as_in_the_model(self) -> None:
        await self._check([RunDriver(self.store()) for _ in range(3)])


class LimitedRunsByModel(RandomRuns, MovedClockCase):
    """Guarantees for runs whose quota is full at times, for stores whose clock only `advance` moves.

    Where transactions run at the same time, a step may also wait a moment because another one counts jobs.
    """

    @case
    async def test_random_runs_with_a_quota_that_submissions_fill_end_as_in_the_model(self) -> None:
        drivers = [RunDriver(self.store()) for _ in range(3)]
        # More than the steps of one graph use themselves.
        room = 100 + 10 * self.largest
        quotas = {usage_name(LIMITED): Quota(tenant=LIMITED, queued=room)}
        assert await drivers[0].store.limit(Quotas(version=1, quotas=quotas))
        await self._check(drivers, QuotaFiller(drivers[0], room, self.advance))


class _History:
    """A random graph with random events, for the store and for the model."""

    def __init__(
        self, random: Random, drivers: Sequence[RunDriver], largest: int, name: str, filler: QuotaFiller | None
    ) -> None:
        self.filler = filler
        self.tenant = "" if filler is None else LIMITED
        self.random = random
        self.drivers = drivers
        self.name = name
        self.run = ""
        self.hold = PartitionHold(0, 0)
        size = random.randint(1, largest)
        steps = random_steps(random, size, sleeps=_SLEEPS, timeouts=_TIMEOUTS)
        self.most = random.choice((None, 1))
        if self.most:
            # A batch takes calls from its start.
            steps |= {name: {"task": "t"} for name, step in steps.items() if "batch" in step}
        self.content = content_of(steps, params=PARAMS, max_active_runs=self.most)
        # The run that has the place.
        self.other = ""
        self.graph = load_graph(self.content)
        self.params = random_params(random)
        self.model = RunModel(self.graph, self.params)
        self.jobs: dict[str, DispatchedJob] = {}
        # Steps as last read; None after a transition.
        self.steps: dict[StepKey, StepRecord] | None = None
        # Jobs and ends that equalled the model's, and do not change.
        self.compared: set[str | tuple[StepKey, int]] = set()
        # By the name of a step, its record and children as last read. No child changes without that record.
        self.children: dict[str, tuple[StepRecord, list[StepRecord]]] = {}
        self.compares = 0
        self.cuts: Counter[int] = Counter()

    async def check(self) -> None:
        self.hold = await self.driver.hold()
        inner = content_of({"i": {"task": "t"}}, params={"a": {}, "b": {}}, output="${steps.i.result}")
        await self.driver.runs.put_workflow(self.tenant, "w", inner)
        if self.most:
            await self._take_place()
        self.run = await self.driver.start(
            content=self.content, params=msgspec.json.encode(self.params), tenant=self.tenant
        )
        for _ in range(2 * len(self.graph.order) + 10):
            for _ in range(self.random.randint(1, 5)):
                await self._event()
            if self.random.random() < 0.7:
                await self._settle()
                await self._compare()
        await self._settle()
        await self._finish()
        self.compared.clear()
        self.children.clear()
        await self._compare()

    @property
    def driver(self) -> RunDriver:
        return self.drivers[0]

    async def _settle(self) -> None:
        """Advance all runs, and dispatch their jobs."""
        while pending := await self.driver.runs.pending(limit=10):
            runs = self.random.sample(pending, self.random.randint(1, len(pending)))
            await self._advance(runs)
        while (batch := await self.driver.try_dispatch()) is not None:
            self._keep(batch.jobs)
        if not self.other:
            self.model.apply(InboxRow(number=0, kind="begin", generation=self.model.generation))

    def _keep(self, dispatched: Iterable[DispatchedJob]) -> None:
        self.jobs |= {job.id: job for job in dispatched}

    async def _take_over(self) -> None:
        """Hold the partition anew, with all that calls dispatched whose answers are lost."""
        partition = self.hold.partition
        self.hold = PartitionHold(partition, await self.driver.next_epoch(partition))
        for batch in await self.driver.schedulers.take_over(*self.hold):
            self._keep(batch.jobs)

    async def _take_place(self) -> None:
        content = content_of({"s": {"wait": "go"}}, max_active_runs=1)
        self.other = await self.driver.start(content=content, tenant=self.tenant)
        await self._settle()

    async def _free_place(self) -> None:
        await self.driver.runs.send(self.other, NewInboxRow(kind="signal", name="go"))
        self.other = ""
        await self._settle()

    async def _advance(self, runs: Sequence[str]) -> None:
        self.steps = None
        hold = self.random.choice((None, self.hold))
        call = self.random.choice(self.drivers).advance(*runs, hold=hold)
        way = self.random.randint(0, 9)
        match way:
            case 0 | 1:
                # Most transitions have few awaits, and those of a file have one.
                turns, last = self.random.randint(1, _LAST_TURN), self.random.randint(1, _LAST_WAKEUP)
                wakeups = self.random.randint(1, last)
                point = CancelPoint(wakeups=wakeups) if way else CancelPoint(turns=turns)
                is_cut = await cancel_at(point, call, within=_PATIENCE) is None
                self.cuts[point.wakeups] += is_cut
            case 2:
                await asyncio.gather(call, *(driver.advance(*runs, hold=hold) for driver in self.drivers))
            case _:
                await call
        for driver in self.drivers:
            self._keep(driver.dispatched)
            driver.dispatched.clear()
        if hold is not None and way <= 1:
            await self._take_over()

    async def _finish(self) -> None:
        """End all running steps, and close the open batches."""
        if self.other:
            await self._free_place()
        await self._fill(is_full=False)
        for _ in range(3 * len(self.graph.order)):
            await self._fire()
            for key, step in (await self._running()).items():
                content = self.graph.step(key.name)
                if content.batch and not key.is_child:
                    await self._send("close", step=key.name)
                elif content.wait:
                    await self._send("signal", name=content.wait, roles=("finance",), value=b"1")
                elif step.job:
                    await self._end(key, step)
            await self._settle()
            if self.model.has_ended:
                return
        raise AssertionError(f"{self.name}: running still: {await self._running()}")

    async def _running(self) -> dict[StepKey, StepRecord]:
        if self.steps is None:
            self.steps = await self._read_steps()
        return {key: step for key, step in self.steps.items() if step.state is StepState.RUNNING}

    async def _read_steps(self) -> dict[StepKey, StepRecord]:
        """Read the steps, and the children of those that have changed since their children were read."""
        found: dict[StepKey, StepRecord] = {}
        for step in (await self.driver.runs.steps_of({self.run: self.graph.order}))[self.run]:
            name = step.key.name
            found[step.key] = step
            if not self.graph.step(name).has_children:
                continue
            if name not in self.children or self.children[name][0] != step:
                self.children[name] = step, await self.driver.runs.children(self.run, name)
            found |= {child.key: child for child in self.children[name][1]}
        return found

    async def _event(self) -> None:
        name = self.random.choice(self.graph.order)
        match self.random.choices(
            ("end", "fire", "signal", "add", "close", "cancel", "redrive", "place", "fill"),
            (60, 6, 8, 8, 2, 1, 4, 6, 0 if self.filler is None else 10),
        )[0]:
            case "end":
                running = [(key, step) for key, step in (await self._running()).items() if step.job]
                if running:
                    await self._end(*self.random.choice(running))
            case "fire":
                await self._settle()
                await self._fire()
            case "signal":
                await self._send(
                    "signal",
                    name=f"go-{name}",
                    step=self.random.choice(("", name)),
                    roles=self.random.choice((None, ("finance",), ("other",))),
                    generation=self.random.choice((None, None, 0, 1)),
                    value=msgspec.json.encode(random_value(self.random)),
                )
            case "add" if self.graph.step(name).batch:
                calls = [{"task": "t", "args": [random_value(self.random)]} for _ in range(self.random.randint(1, 4))]
                await self._send(
                    "add", step=name, calls=tuple(msgspec.Raw(msgspec.json.encode(call)) for call in calls)
                )
            case "close" if self.graph.step(name).batch:
                await self._send("close", step=name)
            case "cancel":
                await self._cancel()
            case "place" if self.other:
                await self._free_place()
            case "place" if self.most and self.model.has_ended:
                await self._settle()
                await self._take_place()
            case "fill":
                await self._fill(is_full=self.random.random() < 0.5)
            case "redrive":
                await self._send("redrive", step=self.random.choice(("", "", name)))
            case _:
                pass

    async def _send(self, kind: Any, **fields: Any) -> None:
        sent = NewInboxRow(kind=kind, id=f"{self.random.getrandbits(64):x}", **fields)
        for _ in range(self.random.choice((1, 1, 2))):
            assert await self.driver.runs.send(self.run, sent)
        self.model.apply(InboxRow(number=0, kind=kind, **fields))

    async def _fill(self, *, is_full: bool) -> None:
        """Fill the quota, or give it room."""
        if self.filler is None or self.filler.is_full is is_full:
            return
        await self._settle()
        if is_full:
            await self.filler.fill()
        else:
            await self.filler.free()
            await self._fire()
        self.model.fill(is_full=is_full)

    async def _fire(self) -> None:
        """Fire the due timers, whose steps run."""
        for key, step in (await self._running()).items():
            content = self.graph.step(key.name)
            if content.sleep is not None or (content.wait and content.timeout == 0):
                self.model.apply(InboxRow(number=0, kind="timer", step=key.name, generation=step.generation))
        self.steps = None
        # Once: a call that was cut off may still advance the run, which would begin more sleeps.
        await self.random.choice(self.drivers).runs.fire_timers()
        await self._settle()

    async def _end(self, key: StepKey, step: StepRecord) -> None:
        is_run = bool(self.graph.step(key.name).workflow)
        job = (await self.driver.step(step.job, "i")).job if is_run else step.job
        if job not in self.jobs:
            return
        # A run with a cancelled step has not failed.
        kind = self.random.choice(("succeeded", "succeeded", "failed", *(() if is_run else ("expired", "cancelled"))))
        value = msgspec.json.encode(random_value(self.random))
        fields: dict[str, Any] = {"content_type": JSON, "result": value} if kind == "succeeded" else {}
        accepted = False
        for _ in range(self.random.choice((1, 1, 2))):
            (applied,) = await self.driver.schedulers.apply([report(self.jobs[job], kind, **fields)])
            accepted = accepted or applied.outcome == "accepted"
        if not accepted:
            return
        state = _ENDS[kind]
        if is_run:
            await self._settle()
            state = _RUN_ENDS[(await self.driver.run(step.job)).state]
        self._end_in_model(key, step, state, value if state is StepState.SUCCEEDED else b"null")

    async def _cancel(self) -> None:
        # The model starts all children at once, and the machine those that it had room for.
        await self._settle()
        jobless = [(key, step) for key, step in (await self._running()).items() if await self._is_jobless(step)]
        await self._send("cancel", error="stop")
        if jobless:
            await self._settle()
        for key, step in jobless:
            self._end_in_model(key, step, StepState.CANCELLED)

    def _end_in_model(self, key: StepKey, step: StepRecord, state: StepState, value: bytes = b"null") -> None:
        row = InboxRow(number=0, kind="end", step=key.name, child=key.child, state=state, value=value)
        self.model.apply(replace(row, generation=step.generation))

    async def _is_jobless(self, step: StepRecord) -> bool:
        """Whether a step runs another run, whose job waits for the quota."""
        is_run = bool(self.graph.step(step.key.name).workflow)
        return is_run and not (await self.driver.step(step.job, "i")).job

    async def _compare(self) -> None:
        self.compares += 1
        if self.compares % _WHOLE == 0:
            self.children.clear()
        self.steps = steps = await self._read_steps()
        run = await self.driver.run(self.run)
        found = {name: steps.get(StepKey(name), StepRecord(key=StepKey(name))).state for name in self.graph.order}
        assert found == {name: step.state for name, step in self.model.steps.items()}, self.name
        assert run.state == self.model.state, self.name
        running = self.model.running()
        assert {key: step.generation for key, step in steps.items() if step.state is StepState.RUNNING} == {
            key: step.generation for key, step in running.items()
        }, self.name
        for key, step in running.items():
            job = steps[key].job
            if step.call is not None and not self.graph.step(key.name).workflow and job not in self.compared:
                assert msgspec.json.decode((await self.driver.read(job)).body) == list(step.call), (self.name, key)
                self.compared.add(job)
        for name, step in self.model.steps.items():
            for index, child in enumerate(step.children):
                if child.state is not StepState.WAITING:
                    assert steps[StepKey(name, index)].state == child.state, (self.name, name, index)
        ended = {StepKey(name): step for name, step in self.model.steps.items() if step.state is StepState.SUCCEEDED}
        new = [key for key, step in ended.items() if (key, step.generation) not in self.compared]
        values = await self.driver.runs.values(self.run, new) if new else {}
        assert {key: msgspec.json.decode(value) for key, value in values.items()} == {
            key: ended[key].value for key in new
        }, self.name
        self.compared.update((key, ended[key].generation) for key in new)
        if self.model.has_ended and self.model.state is RunState.SUCCEEDED:
            assert await self.driver.run_value(self.run) == self.model.value, self.name
