"""Helpers shared by the tests of the Redis state."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.stores import (
    KeptRecord,
    PlaceDemand,
    RateDemand,
    RecordChange,
    ResultRecord,
    State,
    WaitingMessage,
)
from taskmq.errors import StateUnavailable
from taskmq.model.states import JobState
from taskmq.testing.state_suite.progress import progress_record
from taskmq_redis import RedisState, open_state
from tests.servers.waiting import until

PATIENCE = 20.0
DUE = 1_700_000_000_000


def run(main: Callable[[], Coroutine[Any, Any, None]], *, within: float = 50) -> None:
    """Run a test's coroutine; no task may be left, and the loop's exception handler must not have been called."""
    complaints: list[str] = []

    async def run_with_timeout() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: complaints.append(f"{context.get('message')}: {context.get('exception')!r}")
        )
        async with asyncio.timeout(within):
            await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run_with_timeout())
    assert complaints == []


@asynccontextmanager
async def open_redis(url: str, *, name: str = "test") -> AsyncGenerator[RedisState, None]:
    state = open_state(url, BrokerOptions(name=name))
    try:
        yield state
    finally:
        await state.aclose()


def record(job_id: str = "job", *, value: bytes = b"1") -> ResultRecord:
    return ResultRecord(
        job_id=job_id,
        task="t",
        state=JobState.SUCCEEDED,
        attempt=1,
        content_type="application/json",
        value=value,
        finished=1,
    )


def waiting(job_id: str = "job", *, due: int = DUE, body: bytes = b"{}") -> WaitingMessage:
    return WaitingMessage(job_id=job_id, task="t", queue="q", due=due, body=body, content_type="application/json")


_RATE = RateDemand(key="rate:a", interval=60.0)
_PLACES = PlaceDemand(key="places:a", places=1)


def change_of(name: str) -> RecordChange:
    return RecordChange(name, "", KeptRecord("0123456789abcdef", b"{}"))


def calls_of(state: RedisState) -> dict[str, Callable[[], Coroutine[Any, Any, object]]]:
    """Return every call of a state, by name."""
    return {
        "put": lambda: state.results.put(record(), ttl=60),
        "get": lambda: state.results.get("job"),
        "wait": lambda: state.results.wait("job", timeout=0),
        "begin": lambda: state.starts.begin("job", ttl=60),
        "end": lambda: state.starts.end("job"),
        "report": lambda: state.progress.report(progress_record("job"), ttl=60),
        "progress": lambda: state.progress.find("job"),
        "begin run": lambda: state.checkpoints.begin("job", attempt=1, ttl=60),
        "save": lambda: state.checkpoints.save("job", "a", b"1", token=1, ttl=60),
        "forget": lambda: state.checkpoints.forget("job", token=1),
        "claim key": lambda: state.claims.claim("key", job_id="job", owner="w", lease=60, ttl=60),
        "find key": lambda: state.claims.find("key"),
        "renew keys": lambda: state.claims.renew({"key": 1}, lease=60),
        "complete key": lambda: state.claims.complete(
            "key", token=1, job_id="job", content_type="", value=b"", ttl=60
        ),
        "release key": lambda: state.claims.release("key", token=1),
        "lock": lambda: state.leases.acquire("lock", owner="w", seconds=60),
        "keep lock": lambda: state.leases.renew("lock", token=1, seconds=60),
        "look at lock": lambda: state.leases.find("lock"),
        "unlock": lambda: state.leases.release("lock", token=1),
        "enter limits": lambda: state.limits.acquire("job", [_RATE, _PLACES], hold="h", seconds=60, patience=0),
        "wait for limits": lambda: state.limits.acquire("late", [_RATE, _PLACES], hold="i", seconds=60, patience=0),
        "keep places": lambda: state.limits.renew([("h", _PLACES)], seconds=60),
        "look at limit": lambda: state.limits.usage(_PLACES.key),
        "withdraw": lambda: state.limits.withdraw("other", [_RATE.key, _PLACES.key]),
        "leave limits": lambda: state.limits.release("other", [_PLACES.key], held=1.0),
        "revoke": lambda: state.revocations.revoke("job", reason="no", ttl=60),
        "revoked": lambda: state.revocations.since(0, limit=9),
        "read records": lambda: state.schedules.read(["tick"]),
        "swap records": lambda: state.schedules.swap([change_of("tick")], ttl=60),
        "define": lambda: state.schedules.define("shop", "tick", before=None, after=b"{}"),
        "tell": lambda: state.schedules.tell("shop", ["tick"]),
        "changed": lambda: state.schedules.list_changed("shop", 0, limit=9),
        "delay": lambda: state.delays.put(waiting()),
        "take": lambda: state.delays.take(now=DUE, limit=10, lease=60),
        "done": lambda: state.delays.mark_done([]),
        "next due": state.delays.next_due,
        "count": state.delays.count,
        "find": lambda: state.delays.find("job"),
        "list": lambda: state.delays.list(limit=10),
        "cancel": lambda: state.delays.cancel("job"),
        "swap": lambda: state.delays.swap(waiting(), waiting(due=DUE + 1)),
    }


async def answers(state: State, *, within: float = PATIENCE) -> None:
    """Wait until the state answers again."""

    async def answers_now() -> bool:
        try:
            await state.results.get("nothing")
        except StateUnavailable:
            return False
        return True

    await until(answers_now, within=timedelta(seconds=within))
