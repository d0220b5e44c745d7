"""Handle of a run."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.jobs import NewInboxRow
from taskmq.durable.service import pause
from taskmq.errors import InvalidOption, JobCancelled, ResultTimeout, RunFailed, StoreUnavailable, UnsupportedFeature
from taskmq.model.backoff import Backoff
from taskmq.model.envelope import JSON
from taskmq.model.keys import run_id_of
from taskmq.model.runs.records import RunRecord, RunState, StepKey, StepRecord
from taskmq.model.runs.redrives import find_revived
from taskmq.model.runs.rules import StepState
from taskmq.model.units import Duration, parse_duration
from taskmq.model.values.return_type import PLAIN
from taskmq.workflow.model.contents import batch_call
from taskmq.workflow.runs.ends import ends_of
from taskmq.workflow.runs.service import RunService, check_form
from taskmq.workflow.runs.snapshots import EndedStep, RunStatus, RunStep, name_step, snapshot_step
from taskmq.workflow.shapes import Shape, decode_shape
from taskmq.workflow.step_call import CompleteStep, GraphNode

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

_SHORTEST_PAUSE: Final = 0.01
_LONGEST_PAUSE: Final = 0.5
_MOST_FAILURES: Final = 1_000
_LONGEST_KEY: Final = 200
_TOGETHER: Final = 20


class Run(Generic[R_co]):
    """Handle of a run: waits for it, lists its steps, cancels and redrives it, and sends it signals."""

    __slots__ = ("_service", "_shape", "id")

    def __init__(self, run_id: str, *, service: RunService, shape: Shape | None = None) -> None:
        self.id: str = run_id
        self._service = service
        self._shape = shape

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    @property
    def _sessions(self) -> Sessions:
        return self._service.sessions

    async def aget(self) -> RunRecord:
        """Return the run as the store keeps it.

        Raises:
            RunNotFound: the store does not know it (any more).
            StoreUnavailable: the store could not be reached.
        """
        return await self._service.find(self.id)

    get = blocking(aget)

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        """Return the value of the run, waiting for it without limit, or for `timeout`.

        A step that was skipped, or allowed to fail and did, has None as its value.

        Raises:
            RunFailed: a step failed that was not allowed to. All others have ended, too.
            JobCancelled: it was cancelled.
            ResultTimeout: it has not ended in time; it continues.
            RunNotFound: the store does not know it (any more).
            StoreUnavailable: the store could not be reached.
            UnsupportedFeature, ResultExpired, ResultDamaged, StateUnavailable: a large part of it cannot be loaded.
        """
        while True:
            await self._until_ended(timeout)
            value = await self._service.store.run_value((await self.aget()).id)
            # It may have been redriven at the same moment.
            if value is not None:
                return cast("R_co", decode_shape(await self._service.load_value(self.id, value), self._shape))

    result = blocking(aresult)

    async def aresult_of(self, node: GraphNode[T], timeout: Duration | None = None) -> T:
        """Return the value of one step of a `dag`, once the run has ended; None if it has no value.

        Raises as `result` does.
        """
        record = await self._until_ended(timeout)
        if node.name not in (await self._service.graph(record)).rules:
            raise InvalidOption(f"{node!r} is not of workflow {self.id}")
        values = await self._service.store.values(record.id, [StepKey(node.name)])
        return cast("T", await self._decode_value(values.get(StepKey(node.name))))

    result_of = blocking(aresult_of)

    async def astate(self) -> RunStatus:
        """Return the progress of the run, step by step.

        Raises:
            RunNotFound: the store does not know it (any more).
            StoreUnavailable: the store could not be reached.
        """
        record = await self.aget()
        states: dict[str, StepState] = {}
        for name, step in (await self._service.steps(record)).items():
            states[name] = step.state
            async for child in self._service.children(record, step):
                states[name_step(child)] = child.state
        return RunStatus(record.state, states, record.cancelled)

    state = blocking(astate)

    async def asteps(self) -> list[RunStep]:
        """Return each step with its task, its job and its end, in the order of the graph.

        Raises:
            RunNotFound: the store does not know it (any more).
            StoreUnavailable: the store could not be reached.
        """
        record = await self.aget()
        graph = await self._service.graph(record)
        found: list[RunStep] = []
        for name, step in (await self._service.steps(record)).items():
            content, after = graph.step(name), graph.upstream[name]
            found.append(snapshot_step(step, content.task, after))
            found += [snapshot_step(child, content.task, ()) async for child in self._service.children(record, step)]
        for first in range(0, len(found), _TOGETHER):
            some = found[first : first + _TOGETHER]
            found[first : first + _TOGETHER] = await asyncio.gather(*map(self._with_attempts, some))
        return found

    steps = blocking(asteps)

    async def astream(self) -> AsyncGenerator[EndedStep, None]:
        """Yield each step as soon as it has ended, until all have: `async for step in run.astream()`.

        A step that ended before a `redrive` is yielded again when it has ended again.

        Raises:
            RunNotFound: the store does not know it (any more).
            StoreUnavailable: the store could not be reached.
        """
        seen: dict[StepKey, tuple[int, int | None]] = {}
        backoff = Backoff(_SHORTEST_PAUSE, _LONGEST_PAUSE, growth=1.5)
        while True:
            # Before the ends: once the run has ended, all of them are complete.
            record = await self.aget()
            ended: list[StepRecord] = []
            for step in (await self._service.steps(record)).values():
                ended += [child async for child in self._service.children(record, step) if child.state.has_ended]
                ended += [step] if step.state.has_ended else []
            new = [step for step in ended if seen.get(step.key) != (step.generation, step.ended)]
            seen |= {step.key: (step.generation, step.ended) for step in new}
            values = await self._service.store.values(record.id, [step.key for step in new]) if new else {}
            for step in sorted(new, key=lambda step: step.ended or 0):
                value = await self._decode_value(values.get(step.key))
                yield EndedStep(name_step(step), step.state, value, step.error)
            if record.ended is not None:
                return
            if new:
                backoff.reset()
            await asyncio.sleep(backoff.next())

    async def acancel(self, reason: str = "cancelled by its sender") -> bool:
        """Cancel the run: steps that have not started never will; running ones are stopped as by `Job.cancel`.

        Returns:
            False if it has ended already.

        Raises:
            RunNotFound: the store does not know it (any more).
            StoreUnavailable: the store could not be reached; it may be cancelled: call it again.
        """
        record = await self.aget()
        if record.ended is not None:
            return False
        return await self._service.send(record, NewInboxRow(kind="cancel", error=reason)) != "ended"

    cancel = blocking(acancel)

    async def aredrive(self, step: str = "") -> int:
        """Run steps again that have not succeeded, and those that wait for them; return their number.

        Steps that succeeded are not run again, and their values are used. Returns 0, and does nothing, if the run has
        not ended, or everything has succeeded.

        Args:
            step: run this step and all that wait for it again instead, whatever their ends.

        Raises:
            RunNotFound: the store does not know it (any more).
            InvalidOption: there is no such step.
            StoreUnavailable: the store could not be reached.
        """
        record = await self.aget()
        graph = await self._service.graph(record)
        if step and step not in graph.rules:
            raise InvalidOption(f"workflow {self.id} has no step {step!r}")
        steps = await self._service.steps(record)
        again = find_revived(graph, steps, step)
        if record.ended is None or not again:
            return 0
        answer = await self._service.send(record, NewInboxRow(kind="redrive", step=step))
        return 0 if answer is not None and answer.startswith("refused") else len(again)

    redrive = blocking(aredrive)

    async def ahold(self, reason: str = "held by its sender") -> bool:
        """Hold the run and its child runs: running jobs end, and no step starts until the run is released.

        Returns:
            False if it has ended already.

        Raises:
            RunNotFound: the store does not know it (any more).
            StoreUnavailable: the store could not be reached; it may be held: call it again.
        """
        return await self._service.send(await self.aget(), NewInboxRow(kind="hold", error=reason)) != "ended"

    hold = blocking(ahold)

    async def arelease(self) -> bool:
        """Release the run: the steps that became ready meanwhile start.

        Returns:
            False if it stays held because a run above it is held.

        Raises:
            RunNotFound: the store does not know it (any more).
            StoreUnavailable: the store could not be reached: call it again.
        """
        return await self._service.send(await self.aget(), NewInboxRow(kind="release")) != "held above"

    release = blocking(arelease)

    async def aadd(self, *jobs: CompleteStep, key: str | None = None) -> None:
        """Add jobs to a batch.

        Args:
            jobs: steps with all their arguments.
            key: of these jobs, for as long as the run is kept: a caller that repeats the call with the same key after
                an error adds only the missing jobs.

        Raises:
            RunClosed: it accepts no more jobs; with more than 200 jobs, some may have been added.
            RunNotFound: the store does not know it (any more).
            InvalidArguments, InvalidOption, EncodeError: a job is invalid; nothing was added.
            StoreUnavailable: some may have been added, and will run.
        """
        if key is not None and not 1 <= len(key) <= _LONGEST_KEY:
            raise InvalidOption(f"key={key[:80]!r}: 1 to {_LONGEST_KEY} characters")
        calls = [batch_call(job.call) for job in jobs]
        if calls:
            await self._service.add(self.id, calls, key=key)

    add = blocking(aadd)

    async def aclose(self) -> None:
        """Close the batch to further jobs: it ends once all its jobs have ended. May be called again.

        Raises:
            RunClosed: it was cancelled before it was closed, or is not a batch.
            RunNotFound: the store does not know it (any more).
            StoreUnavailable: call it again.
        """
        await self._service.close(self.id)

    close = blocking(aclose)

    async def asignal(self, name: str, value: Any = None, *, signal_id: str | None = None, step: str = "") -> None:
        """Send a signal to the run; one that no step waits for yet is kept for it.

        Args:
            value: anything that has a form in JSON.
            signal_id: of this signal: a second one with the same id has no effect.
            step: the only step that may consume it; "": any.

        Raises:
            InvalidOption: the run refuses it; the message says why.
            InvalidArguments: the value does not fit the form of the step that waits for it.
            EncodeError: the value has no form in JSON.
            RunNotFound: the store does not know it (any more).
            StoreUnavailable: the store could not be reached.
        """
        row = NewInboxRow(
            kind="signal",
            id="" if signal_id is None else f"signal:{signal_id}",
            step=step,
            name=name,
            value=PLAIN.encode(value, JSON),
        )
        run = await self.aget()
        graph = await self._service.graph(run)
        # Without the validator, or with a schema that is not one, only the task behind the step checks it.
        with suppress(UnsupportedFeature, ValueError):
            # A type accepts more than the format of its schema, for example durations with parts of a second.
            check_form(graph, run, name, PLAIN.decode(row.value, JSON), step=step, checks_formats=False)
        answer = await self._service.send(run, row)
        if answer is not None and answer.startswith("refused"):
            raise InvalidOption(f"workflow {self.id}, signal {name}: {answer}")

    signal = blocking(asignal)

    async def _decode_value(self, stored: bytes | None) -> Any:
        return None if stored is None else PLAIN.decode(await self._service.load_value(self.id, stored), JSON)

    async def _until_ended(self, timeout: Duration | None) -> RunRecord:
        """Return the run once it has succeeded."""
        limit = None if timeout is None else parse_duration(timeout, what="timeout").total_seconds()
        patience = self._sessions.patience
        if limit is None and patience is not None:
            limit = patience.seconds
        loop, backoff = asyncio.get_running_loop(), Backoff(_SHORTEST_PAUSE, _LONGEST_PAUSE, growth=1.5)
        end = None if limit is None else loop.time() + limit
        ends = ends_of(self._sessions.current())
        with ends.waiter(run_id_of(self.id)) as has_ended:
            is_told = ends.is_listening
            record = await self.aget()
            while record.ended is None:
                left = _LONGEST_PAUSE if end is None else end - loop.time()
                if left <= 0:
                    if timeout is None and patience is not None:
                        raise ResultTimeout(f"workflow {self.id} has not ended: {patience.advice}")
                    raise ResultTimeout(f"workflow {self.id} has not ended within {limit:g} s; it goes on")
                await pause(has_ended, min(_LONGEST_PAUSE if is_told else backoff.next(), left))
                has_ended.clear()
                # An end before the session listens is only in the store.
                is_told = ends.is_listening
                try:
                    record = await self.aget()
                except StoreUnavailable:
                    # Waiters keep waiting while the store cannot be asked.
                    continue
        if record.state is RunState.CANCELLED:
            raise JobCancelled(f"workflow {self.id} was cancelled: {record.cancelled}")
        if record.state is RunState.FAILED:
            raise RunFailed(self.id, await self._failures(record))
        return record

    async def _failures(self, record: RunRecord) -> dict[str, str]:
        graph = await self._service.graph(record)
        found: dict[str, str] = {}
        for name, step in (await self._service.steps(record)).items():
            if not step.has_failed or graph.step(name).may_fail or len(found) >= _MOST_FAILURES:
                continue
            # A step with children fails because one of them does, whose error says more.
            children = [child async for child in self._service.children(record, step) if child.has_failed]
            found |= {name_step(each): each.error for each in children or [step]}
        if record.is_timed_out:
            found["timeout"] = record.error
        return found or {"output": record.error}

    async def _with_attempts(self, step: RunStep) -> RunStep:
        job = await self._service.jobs.get(step.job) if step.job else None
        return step if job is None else msgspec.structs.replace(step, attempts=job.attempt)
