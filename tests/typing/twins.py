"""Both twins of the attributes of an app, and of handles: the blocking one has the signature of the other."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, assert_type

from taskmq import Job, TaskMQ, chain
from taskmq.contracts.jobs import DefinitionPage, JobPage, JobRecord
from taskmq.jobs.outcome import JobOutcome
from taskmq.model.jobs.definitions import Definition
from taskmq.model.jobs.pools import Sharing, TenantPool
from taskmq.model.jobs.quotas import Quota
from taskmq.model.states import Cancellation, JobState
from taskmq.reactions import ReactionStatus
from taskmq.schedules.status import SchedulePage
from taskmq.schedules.triggers import every
from taskmq.stored_jobs.task_catalogue import TaskPage
from taskmq.workflow.runs.handle import Run
from taskmq.workflow.runs.runs import RunList
from taskmq.workflow.runs.snapshots import RunStatus

app = TaskMQ("memory://", store="sqlite:///jobs.db")


@app.task
def render(number: int, size: int = 100) -> bytes:
    return bytes(number * size)


job = render.send(7)
run = chain(render.s(7)).send(name="one")


def call_blocking() -> None:
    assert_type(app.jobs.get("a", tenant="acme"), JobRecord)
    assert_type(app.jobs.list("status:failed", limit=5), JobPage)
    assert_type(app.jobs.count(cap=5), int)
    assert_type(app.jobs.change("a", priority=3, args=[7]), JobRecord)
    assert_type(app.jobs.cancel("a", note="why"), JobRecord)
    assert_type(app.jobs.retry("a", mode="new"), Job[Any])
    assert_type(app.jobs.submit_many(render, [(1,), (2,)]), list[Job[bytes]])
    assert_type(app.jobs.catalogue.list("shop."), TaskPage)
    assert_type(app.definitions.put("monthly", render, args=[7], priority=8), Definition)
    assert_type(app.definitions.list(), DefinitionPage)
    assert_type(app.pools.read(), Sharing)
    assert_type(app.pools.set("acme", weight=2), TenantPool)
    assert_type(app.pools.set_quota("acme", queued=5, on_limit="refuse"), Quota)
    assert_type(app.schedules.list("night"), SchedulePage)
    assert_type(app.schedules.next("nightly", count=3), Sequence[datetime])
    assert_type(app.schedules.run("nightly"), str)
    app.schedules.add("often", render, every("1h"), args=(7,), overlap="skip")
    assert_type(app.runs.list(workflow="one", limit=5), RunList)
    assert_type(app.reactions.status("arrived"), ReactionStatus)
    assert_type(job.result(timeout="5s"), bytes)
    assert_type(job.result_or_none(), bytes | None)
    assert_type(job.outcome(), JobOutcome[bytes])
    assert_type(job.state(), JobState)
    assert_type(job.cancel("why", remember="1d"), Cancellation)
    assert_type(run, Run[bytes])
    assert_type(run.result(5), bytes)
    assert_type(run.state(), RunStatus)


async def call_async() -> None:
    assert_type(await app.jobs.aget("a", tenant="acme"), JobRecord)
    assert_type(await app.jobs.asubmit_many(render, [(1,), (2,)]), list[Job[bytes]])
    assert_type(await app.jobs.catalogue.alist("shop."), TaskPage)
    assert_type(await app.definitions.aput("monthly", render, args=[7], priority=8), Definition)
    assert_type(await app.pools.aset("acme", weight=2), TenantPool)
    assert_type(await app.schedules.alist("night"), SchedulePage)
    assert_type(await app.runs.alist(workflow="one"), RunList)
    assert_type(await app.reactions.astatus("arrived"), ReactionStatus)
    assert_type(await job.aresult(timeout="5s"), bytes)
    assert_type(await run.aresult(5), bytes)
    assert_type(await chain(render.s(7)).asend(), Run[bytes])


app.jobs.get()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.jobs.get("a", tenent="acme")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.jobs.change("a", priority="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.jobs.retry("a", mode="again")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.definitions.put("monthly")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.pools.set("acme", wait=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.schedules.add("often", render)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.schedules.add("often", render, every("1h"), overlap="drop")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.runs.list(nme="one")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.reactions.status(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
job.result(wait=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
run.result(timeout=[])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
