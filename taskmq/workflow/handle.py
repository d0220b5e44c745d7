"""Handle of a workflow that was sent."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection
from typing import Any, Final, Generic, Literal, TypeVar, cast

import msgspec

from taskmq.client.sessions import Sessions, blocking
from taskmq.contracts.stores import ErrorRecord
from taskmq.contracts.stores.flows import FlowRecord, FlowStore, NodeState
from taskmq.errors import FlowFailed, FlowNotFound, InvalidOption, JobCancelled, ResultTimeout, StateUnavailable
from taskmq.model.backoff import Backoff
from taskmq.model.keys import flow_end_id, flow_job_id, split_tenant_key
from taskmq.model.units import Duration, parse_duration
from taskmq.workflow.model.calls import (
    FlowHead,
    NodeCall,
    Source,
    decode_call,
    decode_failure,
    decode_head,
    nodes_before,
)
from taskmq.workflow.model.graph_builder import GraphBuilder
from taskmq.workflow.service import WorkflowService
from taskmq.workflow.shapes import Shape
from taskmq.workflow.step_call import CompleteStep, GraphNode
from taskmq.workflow.values import decode_tree, load_trees

__all__ = [
    "Flow",
    "FlowState",
    "FlowStateName",
    "FlowStep",
    "StepOutcome",
    "state_name",
]

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

_SHORTEST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5
_MANY: Final = 1000
_LONGEST_KEY: Final = 255
# Seconds after which waiters check that an end can still come.
_LOOK_AGAIN: Final = 15.0
_RAN: Final = (NodeState.SUCCEEDED, NodeState.FAILED, NodeState.CANCELLED)


FlowStateName = Literal["running", "succeeded", "failed", "cancelled"]


class FlowState(msgspec.Struct, frozen=True):
    """Progress of a workflow, as a whole and step by step.

    Attributes:
        state: `failed` if a step has failed that was not allowed to.
        steps: the state of every step by its name; steps of `each(...)` are followed by a number in brackets.
        cancelled: why it was cancelled.
    """

    state: FlowStateName
    steps: dict[str, NodeState]
    cancelled: str | None = None

    def count(self, state: NodeState | str) -> int:
        """Return how many steps are in this state."""
        return sum(each == state for each in self.steps.values())


class StepOutcome(msgspec.Struct, frozen=True):
    """The end of one step of a workflow.

    Attributes:
        value: its return value, as plain data if its task is unknown here.
        error: of a step that has failed.
    """

    name: str
    state: NodeState
    value: Any = None
    error: ErrorRecord | None = None


class FlowStep(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshot of a step of a workflow.

    Attributes:
        key: key of the step in the workflow; the ids of its jobs end with it.
        name: its name for people.
        task: its task's name; "" for one that only waits for others.
        after: the names of the steps before it.
        part_of: for a call of `each(...)` or a batch, the name of that step.
        attempts: number of attempts of its last run; None if it has not ended by a run, or its result is not kept.
        error: of a step that has failed.
    """

    key: str
    name: str
    task: str
    state: NodeState
    attempts: int | None = None
    error: ErrorRecord | None = None
    after: tuple[str, ...] = ()
    part_of: str | None = None


class Flow(Generic[R_co]):
    """Handle of a sent workflow: waits for it, lists its steps, cancels and redrives it.

    Attributes:
        id: its id; the jobs of its steps have ids that begin with it.
    """

    __slots__ = ("_names", "_service", "_shape", "id")

    def __init__(
        self,
        flow_id: str,
        *,
        service: WorkflowService,
        shape: Shape | None = None,
        names: dict[str, Source] | None = None,
    ) -> None:
        self.id: str = flow_id
        self._service = service
        self._shape = shape
        self._names = names or {}

    @property
    def _sessions(self) -> Sessions:
        return self._service.sessions

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        """Return the value of the workflow, waiting for it without limit, or for `timeout`.

        A step that was skipped, or allowed to fail and did, has None as its value.

        Raises:
            FlowFailed: a step failed that was not allowed to. All others have ended, too.
            JobCancelled: it was cancelled.
            ResultTimeout: it has not ended in time; it continues.
            FlowNotFound: the state does not know it (any more).
            StateUnavailable: the state could not be reached.
        """
        head = await self._wait_finished(timeout)
        if head.output is not None:
            (tree,) = await load_trees(self._store, self.id, [head.output])
            return cast("R_co", decode_tree(tree, self._shape, head.content_type))
        trees = await load_trees(self._store, self.id, [*head.leaves.values()])
        shapes = self._shape if isinstance(self._shape, dict) else {}
        found = {
            name: decode_tree(tree, shapes.get(name), head.content_type)
            for name, tree in zip(head.leaves, trees, strict=True)
        }
        return cast("R_co", found)

    result = blocking(aresult)

    async def aresult_of(self, node: GraphNode[T], timeout: Duration | None = None) -> T:
        """Return the value of one step of a `dag`, once the whole has ended; None if it has no value.

        Raises as `result` does.
        """
        source = self._names.get(node.name)
        if source is None:
            raise InvalidOption(f"{node!r} is not of workflow {self.id}, or this handle was made from its id")
        head = await self._wait_finished(timeout)
        (tree,) = await load_trees(self._store, self.id, [source])
        return cast("T", decode_tree(tree, None, head.content_type))

    result_of = blocking(aresult_of)

    async def astate(self) -> FlowState:
        """Return the progress of the workflow, step by step.

        Raises:
            FlowNotFound: the state does not know it (any more).
            StateUnavailable: the state could not be reached.
        """
        record = await self._look()
        head = decode_head(record.head)
        states = await self._store.states(self.id)
        named = {_name(key, head): state for key, state in states.items() if _is_shown(key, head)}
        failed = {key.partition(".")[0] for key, state in states.items() if state is NodeState.FAILED}
        return FlowState(state_name(record, head, failed), named, record.cancelled)

    state = blocking(astate)

    async def astream(self) -> AsyncGenerator[StepOutcome, None]:
        """Yield each step as soon as it has ended, until all have: `async for step in flow.astream()`.

        A step that ended before a `redrive` is yielded again when it has ended again.

        Raises:
            FlowNotFound: the state does not know it (any more).
            StateUnavailable: the state could not be reached.
        """
        offset, backoff = 0, Backoff(_SHORTEST_PAUSE, _LONGEST_PAUSE, growth=1.5)
        while True:
            # Before the ends: once nothing is left, all of them are complete.
            record = await self._look()
            head = decode_head(record.head)
            keys = await self._store.ended_keys(self.id, offset=offset, limit=_MANY)
            offset += len(keys)
            for outcome in await self._outcomes([key for key in keys if _is_shown(key, head)], head):
                yield outcome
            if keys:
                backoff.reset()
                continue
            if not record.unfinished:
                return
            await asyncio.sleep(backoff.next())

    async def acancel(self, reason: str = "cancelled by its sender") -> bool:
        """Cancel the workflow: steps that have not started never will; running ones are stopped like by `Job.cancel`.

        Returns:
            False if it has ended already.

        Raises:
            FlowNotFound: the state does not know it (any more).
            StateUnavailable: the state could not be reached; it may be cancelled in part: call it again.
        """
        record = await self._look()
        return bool(record.unfinished) and await self._service.cancel(self.id, reason=reason)

    cancel = blocking(acancel)

    async def aadd(self, *jobs: CompleteStep, key: str | None = None) -> None:
        """Add jobs to a batch; returns when the broker has confirmed those that may start.

        Args:
            jobs: steps with all their arguments.
            key: of these jobs, for as long as the flow is kept: a caller that repeats the call with the same key
                after an error adds only the missing jobs.

        Raises:
            FlowClosed: it accepts no more jobs; with more than 100 jobs, some may have been added.
            FlowNotFound: the state does not know it (any more).
            InvalidArguments, InvalidOption, EncodeError: a job is invalid; nothing was added.
            SendError, StateUnavailable: as for `send`; some may have been added, and will run.
        """
        if key is not None and not 1 <= len(key) <= _LONGEST_KEY:
            raise InvalidOption(f"key={key!r}: 1 to {_LONGEST_KEY} characters")
        record = await self._look()
        tenant, _ = split_tenant_key(self.id)
        builder = GraphBuilder(decode_head(record.head).content_type, tenant=tenant)
        calls = [builder.child(job.call) for job in jobs]
        if calls:
            await self._service.append(self.id, calls, name=None if key is None else f"={key}")

    add = blocking(aadd)

    async def aclose(self) -> None:
        """Close the batch to further jobs: it ends once all its jobs have ended. May be called again.

        Raises:
            FlowClosed: it was cancelled before it was closed, or is not a batch.
            FlowNotFound: the state does not know it (any more).
            SendError, StateUnavailable: as for `send`; call it again.
        """
        await self._service.append(self.id, [], closes=True)

    close = blocking(aclose)

    async def aredrive(self) -> int:
        """Run steps again that have not succeeded, and those that wait for them; return their number.

        Steps that succeeded are not run again, and their values are used. Returns 0, and does nothing, if the flow
        has not ended, or everything has succeeded. A repeated call after an error continues. The dead letters of
        these steps are removed from their dead-letter queues.

        Raises:
            FlowNotFound: the state does not know it (any more).
            SendError, StateUnavailable: as for `send`.
        """
        await self._look()
        return (await self._service.redrive(self.id)).steps

    redrive = blocking(aredrive)

    async def asteps(self) -> list[FlowStep]:
        """Return each step with its task and its end, in the order of the graph.

        Raises:
            FlowNotFound: the state does not know it (any more).
            StateUnavailable: the state could not be reached.
        """
        record = await self._look()
        head = decode_head(record.head)
        everything = await self._store.states(self.id)
        states = {key: state for key, state in everything.items() if _is_shown(key, head)}
        before = await self._before([key for key in everything if "." not in key], head)
        indexes = {key: index for index, key in enumerate(head.names)}
        keys = sorted(states, key=lambda key: (indexes[key.partition(".")[0]], int(key.partition(".")[2] or -1)))
        found: list[FlowStep] = []
        for first in range(0, len(keys), _MANY):
            found += await self._steps(keys[first : first + _MANY], states, head, before, record.run)
        return found

    steps = blocking(asteps)

    async def _before(self, keys: list[str], head: FlowHead) -> dict[str, tuple[str, ...]]:
        keys = sorted(keys, key=int)
        calls: dict[str, NodeCall] = {}
        for first in range(0, len(keys), _MANY):
            some = keys[first : first + _MANY]
            found = await self._store.calls(self.id, some)
            calls |= {key: decode_call(call) for key, call in zip(some, found, strict=True) if call}
        return nodes_before(calls, head.names)

    async def _steps(
        self,
        keys: list[str],
        states: dict[str, NodeState],
        head: FlowHead,
        before: dict[str, tuple[str, ...]],
        run: int,
    ) -> list[FlowStep]:
        calls = await self._store.calls(self.id, keys)
        ends = await self._store.outcomes(self.id, keys)
        attempts = await asyncio.gather(*(self._attempts_of(key, states[key], run) for key in keys))
        return [
            FlowStep(
                key=key,
                name=_name(key, head),
                task=decode_call(call).task if call else "",
                state=states[key],
                attempts=count,
                error=decode_failure(end.value) if end is not None and end.state is NodeState.FAILED else None,
                after=tuple(_name(each, head) for each in before.get(key, ())),
                part_of=_name(key.partition(".")[0], head) if "." in key else None,
            )
            for key, call, end, count in zip(keys, calls, ends, attempts, strict=True)
        ]

    async def _attempts_of(self, key: str, state: NodeState, run: int) -> int | None:
        if state not in _RAN:
            return None
        for number in range(run, -1, -1):
            record = await self._service.find_result(flow_job_id(self.id, key, number))
            if record is not None:
                return record.attempt
        return None

    @property
    def _store(self) -> FlowStore:
        return self._service.flow_store()

    async def _look(self) -> FlowRecord:
        record = await self._store.look(self.id)
        if record is None:
            raise FlowNotFound(f"workflow {self.id} is unknown: it was never sent to this state, or has expired")
        return record

    async def _wait_finished(self, timeout: Duration | None) -> FlowHead:
        limit = None if timeout is None else parse_duration(timeout, what="timeout")
        record = await self._look()
        if record.unfinished:
            seconds = None if limit is None else limit.total_seconds()
            if not await self._until_ended(record.run, seconds):
                raise ResultTimeout(f"workflow {self.id} has not ended within {seconds:g} s; it goes on")
        # From its own end, not from the awaited record, which is kept for a shorter time.
        head, state = decode_head(record.head), await self.astate()
        if state.state == "cancelled":
            raise JobCancelled(f"workflow {self.id} was cancelled: {state.cancelled}")
        if state.state == "failed":
            raise FlowFailed(self.id, await self._failures(head))
        # It may have been redriven at the same moment.
        return head if state.state == "succeeded" else await self._wait_finished(timeout)

    async def _until_ended(self, run: int, seconds: float | None) -> bool:
        """Wait for the end of one run of it; return False if it did not come in time.

        Raises:
            FlowNotFound: the state has lost or deleted it, so no end will come.
        """
        waits = asyncio.ensure_future(self._service.wait_for_result(flow_end_id(self.id, run), seconds))
        try:
            while True:
                await asyncio.wait((waits,), timeout=_LOOK_AGAIN)
                if waits.done():
                    return waits.result() is not None
                # Waiters keep waiting while the state cannot be asked.
                with contextlib.suppress(StateUnavailable):
                    if not (await self._look()).unfinished:
                        return True
        finally:
            if waits.cancel():
                await asyncio.wait((waits,))

    async def _failures(self, head: FlowHead) -> dict[str, str]:
        states = await self._store.states(self.id)
        keys = [
            key
            for key, state in states.items()
            if state is NodeState.FAILED and key.partition(".")[0] not in head.may_fail
        ]
        # A map fails because one of its calls does, whose error says more.
        maps = {key.partition(".")[0] for key in keys if "." in key}
        shown = [key for key in keys if key not in maps][:_MANY]
        found = await self._store.outcomes(self.id, shown)
        errors = [None if one is None else decode_failure(one.value) for one in found]
        return {
            _name(key, head): "" if error is None else f"{error.type_name}: {error.message}"
            for key, error in zip(shown, errors, strict=True)
        }

    async def _outcomes(self, keys: list[str], head: FlowHead) -> list[StepOutcome]:
        found = await self._store.outcomes(self.id, keys) if keys else []
        outcomes: list[StepOutcome] = []
        for key, one in zip(keys, found, strict=True):
            if one is None:
                # Redriven since: it will end again.
                continue
            name = _name(key, head)
            if one.state is NodeState.SUCCEEDED:
                outcomes.append(StepOutcome(name, one.state, decode_tree(one.value, None, head.content_type)))
            elif one.state is NodeState.FAILED:
                outcomes.append(StepOutcome(name, one.state, error=decode_failure(one.value)))
            else:
                outcomes.append(StepOutcome(name, one.state))
        return outcomes


def state_name(record: FlowRecord, head: FlowHead, failed: Collection[str]) -> FlowStateName:
    """Return the state of a flow, some of whose nodes have failed."""
    if record.unfinished:
        return "running"
    if record.cancelled is not None:
        return "cancelled"
    return "succeeded" if head.may_fail.issuperset(failed) else "failed"


def _is_shown(key: str, head: FlowHead) -> bool:
    return key.partition(".")[0] in head.names


def _name(key: str, head: FlowHead) -> str:
    first, _, number = key.partition(".")
    name = head.names.get(first, first)
    return f"{name}[{number}]" if number else name
