"""Service of an app for runs in its job store: starts them and sends them events."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from taskmq.client.sessions import Sessions
from taskmq.contracts.broker_abilities import Broadcasting
from taskmq.contracts.jobs import RUNS_TOPIC, JobStore, NewInboxRow, NewRun, RunStore
from taskmq.errors import InvalidArguments, InvalidOption, RunClosed, RunNotFound, UnsupportedFeature
from taskmq.model.backoff import Backoff
from taskmq.model.envelope import new_job_id
from taskmq.model.keys import check_chosen_id, run_id_of, split_tenant_key, tenant_key
from taskmq.model.runs.fan_out import MOST_CALLS
from taskmq.model.runs.graphs import MOST_ACTIVE_RUNS, RunGraph, encode_workflow, load_graph
from taskmq.model.runs.records import RunRecord, StepKey, StepRecord
from taskmq.model.runs.rules import StepState
from taskmq.model.units import Duration, parse_duration, to_ms
from taskmq.model.values.light_values import LightValue, fill, open_value
from taskmq.model.values.schemas import find_misfit
from taskmq.workflow.model.contents import BATCH_STEP, RunPlan

_PAGE: Final = 500
_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-")
_SHORTEST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.25
# Schedulers answer within milliseconds; without one, the event stays in the inbox.
_PATIENCE: Final = 10.0


class RunService:
    """Operations that workflows and handles of runs call. A run is named by its public id."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions: Sessions = sessions

    @property
    def jobs(self) -> JobStore:
        """The job store of the running loop's session; raises `UnsupportedFeature` if the app has none."""
        return self.sessions.store("workflows need")

    @property
    def store(self) -> RunStore:
        """The runs of the job store."""
        return self.jobs.runs

    async def load_value(self, run_id: str, stored: bytes) -> bytes:
        """Return the value of a run or of a step, as the store has it, with all its parts.

        Raises:
            UnsupportedFeature: a part is kept elsewhere, and the app does not know where.
            ResultExpired, ResultDamaged: a part no longer exists, or differs from what was stored.
            StateUnavailable: the place of a part is unreachable.
        """
        value = open_value(stored)
        if not isinstance(value, LightValue):
            return stored
        if (large := self.sessions.current().large_values) is None:
            raise UnsupportedFeature(
                f"run {run_id}: a value of {value.size:,} bytes is kept elsewhere: set results_at= as its workers do"
            )
        return fill(value.value, {part.at: await large.fetch(run_id, part.blob) for part in value.parts})

    async def start(
        self,
        plan: RunPlan,
        *,
        run_id: str | None,
        tenant: str | None,
        name: str,
        timeout: Duration | None = None,
    ) -> str:
        """Start a run with its own content; return its public id. A known id starts nothing.

        Raises:
            InvalidOption: the store refuses it.
        """
        _, text = encode_workflow(plan.content)
        return await self.start_run(
            NewRun(id="", tenant=tenant or "", workflow=name, content=text, timeout=timeout_of_run(timeout)),
            run_id=run_id,
            tenant=tenant,
        )

    async def start_run(self, run: NewRun, *, run_id: str | None, tenant: str | None) -> str:
        """Start a run under this id, by default a new one; return its public id."""
        own_id = run_id or new_job_id(self.sessions.clock.now_ms(), os.urandom(10))
        public = tenant_key(tenant, own_id)
        run = msgspec.structs.replace(run, id=run_id_of(public))
        (started,) = await self.store.start([run])
        if started.refusal:
            raise InvalidOption(f"workflow {run.workflow}: {started.refusal}")
        self.wake([run.id])
        return public

    async def find(self, public: str) -> RunRecord:
        """Return a run as the store keeps it.

        Raises:
            RunNotFound: the store does not know it, or it belongs to another tenant.
        """
        record = await self.store.get(run_id_of(public))
        tenant, _ = split_tenant_key(public)
        if record is None or (tenant and record.tenant != tenant):
            raise RunNotFound(f"workflow {public} is unknown: it was never sent to this store, or has been deleted")
        return record

    async def add(self, public: str, calls: Sequence[bytes], *, key: str | None = None) -> None:
        """Add calls to an open batch.

        Args:
            key: of these calls: under the same one they are added once.

        Raises:
            RunClosed: it takes no more, or is no batch.
            RunNotFound: the store does not know it (any more).
        """
        record = await self.find(public)
        for row in _additions(calls, key=key):
            if row.id and await self.store.answer(record.id, row.id) == "added":
                continue
            if not await self._is_open(record) or await self.send(record, row) == "closed":
                raise RunClosed(
                    f"workflow {public} accepts no more jobs: it was closed or cancelled, or is not a batch", public
                )

    async def graph(self, record: RunRecord) -> RunGraph:
        """Return the graph of a run.

        Raises:
            RunNotFound: the run has been deleted.
        """
        text = await self.store.graph_text(record.version)
        if text is None:
            raise RunNotFound(f"workflow {record.id} has been deleted")
        return load_graph(text)

    async def steps(self, record: RunRecord) -> dict[str, StepRecord]:
        """Return the steps of a run by name, each after its upstream steps."""
        graph = await self.graph(record)
        found: dict[str, StepRecord] = {}
        after = ""
        while page := await self.store.steps(record.id, after=after, limit=_PAGE):
            found |= {step.key.name: step for step in page}
            after = page[-1].key.name
        return {name: found.get(name) or StepRecord(key=StepKey(name)) for name in graph.order}

    async def children(self, record: RunRecord, step: StepRecord) -> AsyncIterator[StepRecord]:
        """Yield the children of a step, in order."""
        after = -1
        while step.total and (page := await self.store.children(record.id, step.key.name, after=after, limit=_PAGE)):
            for child in page:
                yield child
            after = page[-1].key.child

    async def send(self, record: RunRecord, row: NewInboxRow) -> str | None:
        """Send an event to a run; return its effect, None if no scheduler applied it in time.

        Raises:
            RunNotFound: the run has been deleted.
        """
        sender = row.id or os.urandom(16).hex()
        if not await self.store.send(record.id, msgspec.structs.replace(row, id=sender)):
            raise RunNotFound(f"workflow {record.id} has been deleted")
        self.wake([record.id])
        backoff = Backoff(_SHORTEST_PAUSE, _LONGEST_PAUSE)
        loop = asyncio.get_running_loop()
        # In a test with its own clock, nothing happens before the test says so.
        end = loop.time() + (_PATIENCE if self.sessions.patience is None else 0.0)
        while (answer := await self.store.answer(record.id, sender)) is None and loop.time() < end:
            await asyncio.sleep(backoff.next())
        return answer

    async def close(self, public: str) -> None:
        """Close a batch to further jobs.

        Raises:
            RunClosed: it was cancelled before it was closed, or is not a batch.
            RunNotFound: the store does not know it (any more).
        """
        record = await self.find(public)
        content = (await self.graph(record)).content.steps.get(BATCH_STEP)
        if content is None or not content.batch or record.cancelled is not None:
            raise RunClosed(f"workflow {public} was cancelled, or is not a batch", public)
        await self.send(record, NewInboxRow(kind="close", step=BATCH_STEP))

    async def put_calls(self, public: str, calls: Sequence[bytes], *, key: str) -> None:
        """Send calls to a batch that was just started, without waiting for their effect; known ones are ignored."""
        for row in _additions(calls, key=key):
            await self.store.send(run_id_of(public), row)
        self.wake([run_id_of(public)])

    async def _is_open(self, record: RunRecord) -> bool:
        """Return whether a run is a batch that takes calls; one that has not begun does."""
        content = (await self.graph(record)).content.steps.get(BATCH_STEP)
        if content is None or not content.batch or record.cancelled is not None or record.ended is not None:
            return False
        step = next((step for step in await self.store.steps(record.id) if step.key.name == BATCH_STEP), None)
        return step is None or step.state is StepState.WAITING or step.is_open

    def wake(self, run_ids: Iterable[str]) -> None:
        """Have schedulers advance these runs now."""
        broker = self.sessions.current().broker
        if isinstance(broker, Broadcasting):
            broker.announce(RUNS_TOPIC, " ".join(run_ids).encode())


def check_active_runs(most: int | None) -> None:
    """Check the option `max_active_runs` of a workflow; raises `InvalidOption`."""
    if most is not None and not 1 <= most <= MOST_ACTIVE_RUNS:
        raise InvalidOption(f"max_active_runs={most}: must be from 1 to {MOST_ACTIVE_RUNS}")


def timeout_of_run(timeout: Duration | None) -> int | None:
    """Return the option `timeout` of a run in milliseconds.

    Raises:
        InvalidOption: it is not a duration.
    """
    return None if timeout is None else to_ms(parse_duration(timeout, what="timeout"))


def check_form(
    graph: RunGraph, run: RunRecord, signal: str, value: Any, *, step: str = "", checks_formats: bool = True
) -> None:
    """Check the value of a signal against the forms of the steps that wait for it; without such a step it fits.

    Args:
        value: as plain data of JSON.
        step: the only step that may take it; "": any.
        checks_formats: see `find_misfit`.

    Raises:
        InvalidArguments: it fits none of them.
        UnsupportedFeature: there is a form, and the schema validator is not installed.
    """
    flaws: list[str] = []
    for name in graph.waits.get(signal, ()):
        if step in ("", name):
            form = graph.step(name).form
            flaw = (
                ""
                if form is None
                else find_misfit(form, value, purpose="forms of signals", checks_formats=checks_formats)
            )
            if not flaw:
                return
            flaws.append(f"step {name}: {flaw}")
    if flaws:
        raise InvalidArguments(f"run {run.id}: signal {signal!r} does not fit its form: {'; '.join(flaws)}")


def check_run_id(run_id: str) -> str:
    """Return `run_id` if a sender may choose it as the id of a run.

    Raises:
        InvalidOption: it may not.
    """
    if not 1 <= len(run_id) <= 128 or not _CHARACTERS.issuperset(run_id):
        raise InvalidOption(f"run_id={run_id[:80]!r}: 1 to 128 characters of A-Z a-z 0-9 _ . : -")
    return check_chosen_id(run_id, tenant=None, what="run_id")


def _additions(calls: Sequence[bytes], *, key: str | None) -> Iterator[NewInboxRow]:
    for first in range(0, len(calls), MOST_CALLS):
        piece = tuple(map(msgspec.Raw, calls[first : first + MOST_CALLS]))
        sender = "" if key is None else f"add:{key}:{first}"
        yield NewInboxRow(kind="add", id=sender, step=BATCH_STEP, calls=piece)
