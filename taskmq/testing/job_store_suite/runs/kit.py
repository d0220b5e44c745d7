"""Driver of runs: starts them, advances them, and ends the jobs of their steps."""

from typing import Any

import msgspec

from taskmq.contracts.jobs import (
    Advanced,
    DispatchedJob,
    JobDetail,
    JobStore,
    NewInboxRow,
    NewJob,
    NewRun,
    PartitionHold,
    RunStore,
    StartedRun,
)
from taskmq.errors import InvalidOption
from taskmq.model.envelope import JSON
from taskmq.model.jobs.reports import ReportKind
from taskmq.model.jobs.uniqueness import UniqueKey
from taskmq.model.runs.graphs import encode_workflow
from taskmq.model.runs.records import RunRecord, StepJob, StepKey, StepRecord
from taskmq.model.runs.validation import validate_workflow
from taskmq.testing.job_store_suite.driver import HOUR, QUEUE, JobDriver, after, new_id, report

REFUSED_TASK = "refused"
"""A task for which no job can be made."""


def content_of(steps: dict[str, Any], **fields: Any) -> bytes:
    """Return the text of a valid content."""
    content, faults = validate_workflow(
        {"steps": steps, **fields}, options=("queue", "held", "expires", "after", "unique", "owner")
    )
    assert content is not None, [str(fault) for fault in faults]
    return encode_workflow(content)[1]


class RunDriver(JobDriver):
    """Starts and advances runs as a scheduler does, and ends their jobs as workers do.

    Attributes:
        runs: the store's operations on runs.
        asked: ids of jobs whose workers were asked to stop them.
        dispatched: jobs that transactions of runs dispatched at once, in order.
        ended: runs that ended, in order.
    """

    def __init__(self, store: JobStore) -> None:
        super().__init__(store)
        self.runs: RunStore = store.runs
        self.asked: list[str] = []
        self.dispatched: list[DispatchedJob] = []
        self.ended: list[RunRecord] = []

    async def new_run(self, steps: dict[str, Any] | None = None, **fields: Any) -> NewRun:
        """Return a run that is not started yet."""
        if steps is not None:
            fields["content"] = content_of(steps, params=fields.pop("schemas", {}))
        given: dict[str, Any] = {"id": new_id(await self.store.now_ms()), "workflow": "w", **fields}
        return NewRun(**given)

    async def start(self, steps: dict[str, Any] | None = None, **fields: Any) -> str:
        """Start a run and return its id."""
        new = await self.new_run(steps, **fields)
        (started,) = await self.runs.start([new])
        assert started == StartedRun(id=new.id, is_new=True, version=started.version)
        return new.id

    async def hold(self) -> PartitionHold:
        """Return the hold of the partition of `QUEUE`, which this driver has from now on."""
        partition = self.schedulers.partition_of(QUEUE)
        return PartitionHold(partition, await self.epoch(partition))

    async def advance(self, *run_ids: str, hold: PartitionHold | None = None) -> dict[str, Advanced]:
        """Advance runs in one transaction.

        Args:
            hold: under which a new job may be dispatched at once.
        """
        advanced = await self.runs.advance(run_ids, make_job, lambda job: hold if job.queue == QUEUE else None)
        for one in advanced.values():
            self.asked += one.asked
            self.dispatched += [] if one.batch is None else one.batch.jobs
            self.ended += [] if one.ended is None else [one.ended]
        return advanced

    async def settle(self) -> None:
        """Advance all runs until none has anything to do."""
        while pending := await self.runs.pending(limit=10):
            await self.advance(*pending)

    async def run(self, run_id: str) -> RunRecord:
        """Return the run's current record."""
        found = await self.runs.get(run_id)
        assert found is not None
        return found

    async def step(self, run_id: str, name: str, child: int = -1) -> StepRecord:
        """Return a step or child; one without a record waits."""
        key = StepKey(name, child)
        found = await self.runs.steps(run_id) if child < 0 else await self.runs.children(run_id, name)
        return next((step for step in found if step.key == key), StepRecord(key=key))

    async def states(self, run_id: str) -> dict[str, str]:
        """Return the states of the steps that have a record."""
        return {step.key.name: str(step.state) for step in await self.runs.steps(run_id)}

    async def value(self, run_id: str, name: str, child: int = -1) -> Any:
        """Return the value of a step or child."""
        key = StepKey(name, child)
        return msgspec.json.decode((await self.runs.values(run_id, [key]))[key])

    async def run_value(self, run_id: str) -> Any:
        """Return the value of a run; None if it has none."""
        found = await self.runs.run_value(run_id)
        return None if found is None else msgspec.json.decode(found)

    async def arguments(self, run_id: str, name: str, child: int = -1) -> list[Any]:
        """Return the arguments with which the job of a step was submitted: args, kwargs, and the parts they lack."""
        job = await self.read((await self.step(run_id, name, child)).job)
        found: list[Any] = msgspec.json.decode(job.body)
        return found

    async def finish(
        self,
        run_id: str,
        name: str,
        kind: ReportKind = "succeeded",
        *,
        child: int = -1,
        value: Any = None,
        **fields: Any,
    ) -> None:
        """Let a worker end the job of a step, and advance all runs."""
        record = await self.read((await self.step(run_id, name, child)).job)
        if not record.token:
            await self.dispatch(queue=record.queue)
            record = await self.read(record.id)
        if kind == "succeeded":
            fields = {"content_type": JSON, "result": msgspec.json.encode(value), **fields}
        (applied,) = await self.schedulers.apply([report(record, kind, **fields)])
        assert applied.outcome == "accepted"
        assert applied.run == ("" if kind == "started" else run_id)
        await self.settle()

    async def send(self, run_id: str, row: NewInboxRow) -> str:
        """Send a row with an id, and return its effect."""
        assert row.id
        assert await self.runs.send(run_id, row)
        await self.settle()
        found = await self.runs.answer(run_id, row.id)
        assert found is not None
        return found


def make_job(run: RunRecord, job: StepJob) -> NewJob:
    """Build the job of a step; its body has the arguments only, and the parts that they lack."""
    if job.task == REFUSED_TASK:
        raise InvalidOption(f"task {REFUSED_TASK!r} is unknown")
    unique = job.options.get("unique")
    body = msgspec.json.encode([msgspec.Raw(job.args), msgspec.Raw(job.kwargs), *([job.parts] if job.parts else [])])
    return NewJob(
        id=job.id,
        tenant=run.tenant,
        task=job.task,
        queue=job.options.get("queue", QUEUE),
        held=job.options.get("held", False),
        expires=job.options.get("expires"),
        detail=_detail_of(job),
        unique=None if unique is None else UniqueKey(name=unique, until="running", replaces=True, ttl=HOUR),
        body=body,
    )


def _detail_of(job: StepJob) -> JobDetail | None:
    if "owner" in job.options:
        return JobDetail(owner=job.options["owner"])
    return after(job.options["after"]) if "after" in job.options else None
