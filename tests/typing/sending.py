"""Calls, options of calls, jobs and results."""

from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from taskmq import Context, Job, JobState, TaskMQ

app = TaskMQ("memory://")


@app.task
def sell(item: str, count: int = 1) -> tuple[str, int]:
    return item, count


@app.task
async def deliver(ctx: Context, address: str) -> None: ...


job = sell.send("a", 2)
assert_type(job, Job[tuple[str, int]])
assert_type(job.id, str)
assert_type(job.task, str)
assert_type(job.result(), tuple[str, int])
assert_type(job.result(timeout=10), tuple[str, int])
assert_type(job.result(timeout="10s"), tuple[str, int])
assert_type(job.state(), JobState)
assert_type(deliver.send("here").result(), None)

sell.send()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
sell.send("a", "b")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
sell.send("a", amount=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
sell.send("a", 2, queue="x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
job.result(timeout=[1])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
job.result(None).upper()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def one_call() -> None:
    job = await sell.asend("a", count=2)
    assert_type(job, Job[tuple[str, int]])
    assert_type(await job.aresult(timeout=timedelta(seconds=1)), tuple[str, int])
    assert_type(await job.astate(), JobState)
    assert_type(await deliver.asend("here"), Job[None])

    await sell.asend(2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await deliver.asend()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await sell.send("a")  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]


assert_type(sell.send_many([("a",), ("b", 2)]), list[Job[tuple[str, int]]])
assert_type(sell.send_many(("a", i) for i in range(3)), list[Job[tuple[str, int]]])
assert_type(sell.options(queue="q").send_many([["a"]]), list[Job[tuple[str, int]]])

sell.send_many([1])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
sell.send_many("a", "b")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def many_calls() -> None:
    assert_type(await deliver.asend_many([("a",)]), list[Job[None]])


# Options of a call

assert_type(
    sell.options(
        queue="q",
        priority=9,
        delay="10m",
        expires=datetime.now(UTC),
        job_id="7",
        tenant="acme",
        meta={"a": "b"},
        headers={"a": 1, "b": "c"},
    ).send("a"),
    Job[tuple[str, int]],
)
assert_type(sell.options(eta=datetime.now(UTC)).delay("a", 2), Job[tuple[str, int]])

sell.options(delay=5).send(2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
sell.options(delay=5).send("a", amount=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
sell.options(dealy=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
sell.options(timeout=5, max_attempts=2, retry={"base": "1s"}, guarantee="at_least_once")
sell.options(retry={"bace": 5})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
sell.options(guarantee="once")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
sell.options(eta="tomorrow")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
sell.options(priority="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
sell.options(headers={"a": 1.5})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
sell.options(delay=5)("a")  # type: ignore[operator]  # pyright: ignore[reportCallIssue]


assert_type(sell.delay("a", count=2), Job[tuple[str, int]])
assert_type(sell.apply_async(("a",), {"count": 2}, countdown=10, queue="q"), Job[tuple[str, int]])

sell.delay(2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
sell.apply_async(("a",), dealy=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


assert_type(app.job("7"), Job[Any])

_wider: Job[object] = job
_narrower: Job[tuple[str, bool]] = job  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
job.id = 3  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
