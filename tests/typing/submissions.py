"""Calls to the job store: by `submit` of a task, and by `app.jobs.submit`."""

from typing import Any, assert_type

from taskmq import Job, TaskMQ
from taskmq.tasks.call import Call

app = TaskMQ("memory://", store="sqlite:///jobs.db")
session: Any = None


@app.task
def render(number: int, size: int = 100) -> bytes:
    return bytes(number * size)


@app.task
async def tidy() -> None: ...


@app.task
def label(name: str, number: int, color: str) -> str:
    return name * number + color


first = render.submit(7)
assert_type(first, Job[bytes])
assert_type(render.options(connection=session, depends_on=[first], labels={"a": "b"}).submit(7, size=3), Job[bytes])
assert_type(render.options(depends_on=[(first, "ended"), "other"], held=True, owner="ann").submit(7), Job[bytes])
assert_type(label.options(place={"labels": {"zone": "a"}}, resources={"cpu": 2}).submit("a", 1, "b"), Job[str])
assert_type(tidy.options(description="nightly", preemptible=True).submit(), Job[None])

render.submit()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
render.submit("seven")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
render.submit(7, prioritty=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
render.options(connection=session).submit("seven")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
render.options(connection=session).submit()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
render.options(conection=session)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
render.options(depends_on=first)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
render.options(depends_on=[(first, "dead")])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
render.options(labels={"a": 1})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]

assert_type(app.jobs.submit(render, 7), Job[bytes])
assert_type(app.jobs.submit(render, 7, size=3), Job[bytes])
assert_type(app.jobs.submit(render, 7, priority=3, connection=session, depends_on=[first]), Job[bytes])
assert_type(app.jobs.submit(render, 7, 3, job_id="a", tenant=None), Job[bytes])
assert_type(app.jobs.submit(tidy, delay="5m"), Job[None])
assert_type(app.jobs.submit(label, "a", 1, "b", labels={"a": "b"}), Job[str])
assert_type(app.jobs.submit(render.options(queue="q"), 7, held=True), Job[bytes])
assert_type(app.jobs.submit("monthly-eu", "2027-01", priority=8, region="eu"), Job[Any])

app.jobs.submit(render)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue]
app.jobs.submit(render, "seven")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
app.jobs.submit(render, "seven", priority=3)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
app.jobs.submit(render, priority=3)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue]
app.jobs.submit(render, 7, prioritty=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.jobs.submit(render, 7, priority="high")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.jobs.submit(label, "a", 1, held=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.jobs.submit("monthly-eu", priority="high")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]

app.definitions.put("monthly", render, args=[7], priority=8, expires="1h", labels={"a": "b"}, tenant="acme")
app.definitions.put("monthly", render, prioritty=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.definitions.put("monthly", render, priority="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.definitions.put("monthly", render, held=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def submit_any(call: Call[..., int], either: Call[..., int] | str) -> None:
    assert_type(app.jobs.submit(call, 7, 8, priority=3), Job[int])
    assert_type(app.jobs.submit(either, 7, priority=3), Job[int] | Job[Any])


async def submit_by_coroutines() -> None:
    assert_type(await render.asubmit(7), Job[bytes])
    assert_type(await render.options(connection=session).asubmit(7), Job[bytes])
    assert_type(await app.jobs.asubmit(render, 7), Job[bytes])
    assert_type(await app.jobs.asubmit(render, 7, connection=session), Job[bytes])
    assert_type(await app.jobs.asubmit("monthly-eu"), Job[Any])

    await render.options(connection=session).asubmit("seven")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await app.jobs.asubmit(render, "seven")  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await app.jobs.asubmit(render, 7, prioritty=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
