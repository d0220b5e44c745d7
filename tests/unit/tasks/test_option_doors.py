"""Options of a task at each door that creates its jobs: each is accepted, or refused with a message."""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pytest

from taskmq import TaskMQ, WorkQueue, chain
from taskmq.errors import DuplicateJob, InvalidOption, PartlySent, UnsupportedFeature
from taskmq.model.envelope import Envelope, decode_envelope
from taskmq.operations.send import send_by_name
from taskmq.options.task_options import TaskOptions
from taskmq.reactions import JobEnded, job
from taskmq.schedules.triggers import every
from taskmq.tasks.task import Task
from taskmq.testing import Harness
from tests.nightly import nightly_except

AnyTask = Task[..., Any]
Door = Callable[[TaskMQ, AnyTask, Harness], None]

_HOUR: Final = 3_600_000
# The sender acts on these; on all others the worker does, which has the task's options from its own code.
_OF_SENDERS: Final[Mapping[str, Any]] = {
    "queue": "reports",
    "priority": 8,
    "lane": "store",
    "order_key": "number",
    "delay": "1h",
    "expires": "2h",
    "tenant": "acme",
    "meta": {"colour": "blue"},
    "unique": True,
}
_OF_WORKERS: Final = frozenset({
    "retry", "timeout", "soft_timeout", "ack", "resources", "preemptible", "worker_concurrency", "rate_limit",
    "concurrency", "executor", "result", "result_ttl", "name",
    # It computes the key itself if the message has none.
    "idempotency_key", "idempotency_scope", "idempotency_ttl",
    # They refine `unique`.
    "unique_for", "unique_policy", "unique_ttl",
})  # fmt: skip


def _schedule(app: TaskMQ, task: AnyTask, harness: Harness) -> None:
    app.schedules.add("hourly", task, every("1h"), args=(7,))
    harness.advance("90m")


def _by_hand(app: TaskMQ, task: AnyTask, harness: Harness) -> None:
    app.schedules.add("hourly", task, every("1000h"), args=(7,))
    app.schedules.run("hourly")
    app.schedules.run("hourly")


def _by_name(app: TaskMQ, task: AnyTask, harness: Harness) -> None:
    # A worker has declared the queues by then.
    harness.drain()
    raws = msgspec.Raw(b"[7]"), msgspec.Raw(b"{}")
    asyncio.run(_sent_by_name(app, task.name, raws))


async def _sent_by_name(app: TaskMQ, name: str, raws: tuple[msgspec.Raw, msgspec.Raw]) -> None:
    await send_by_name(app, name, args=raws[0], kwargs=raws[1])
    await send_by_name(app, name, args=raws[0], kwargs=raws[1])


def _definition(app: TaskMQ, task: AnyTask, harness: Harness) -> None:
    app.definitions.put("template", task, args=[7], tenant=task.call_plan.tenant or "")
    for _ in range(2):
        app.jobs.submit("template", tenant=task.call_plan.tenant)


def _once(call: Callable[[TaskMQ, AnyTask], object]) -> Door:
    def door(app: TaskMQ, task: AnyTask, harness: Harness) -> None:
        call(app, task)

    return door


def _twice(call: Callable[[TaskMQ, AnyTask], object]) -> Door:
    def door(app: TaskMQ, task: AnyTask, harness: Harness) -> None:
        for _ in range(2):
            call(app, task)

    return door


_DOORS: Final[Mapping[str, Door]] = {
    "send": _twice(lambda _, task: task.send(7)),
    "send_many": _once(lambda _, task: task.send_many([(7,), (7,)])),
    "send_stream": _once(lambda _, task: list(task.send_stream([(7,), (7,)]))),
    "schedule": _schedule,
    "schedule by hand": _by_hand,
    "taskmq send": _by_name,
}
_DOORS_OF_A_STORE: Final[Mapping[str, Door]] = {
    **_DOORS,
    "submit": _twice(lambda app, task: app.jobs.submit(task, 7)),
    "submit by name": _twice(lambda app, task: app.jobs.submit(task.name, 7)),
    "submit of a task": _twice(lambda _, task: task.options().submit(7)),
    "submit_many": _once(lambda app, task: app.jobs.submit_many(task, [(7,), (7,)])),
    "definition": _definition,
    "step": _twice(lambda _, task: chain(task.si(7)).send()),
    "map": _once(lambda _, task: task.map([7, 7]).send()),
}
_ALL: Final = [(name, False) for name in _DOORS] + [(name, True) for name in _DOORS_OF_A_STORE]
_MAIN: Final = {("send", False), ("schedule", False), ("taskmq send", False)} | {
    (name, True) for name in ("send_many", "submit", "definition", "step")
}


def test_each_task_option_belongs_to_senders_or_to_workers() -> None:
    assert set(TaskOptions.__annotations__) == set(_OF_SENDERS) | _OF_WORKERS


@pytest.mark.parametrize("option", _OF_SENDERS)
@pytest.mark.parametrize(
    ("door", "has_store"),
    nightly_except(
        _MAIN,
        _ALL,
        pytest.mark.nightly(
            "tests/unit/tasks/test_option_doors.py::test_an_option_is_accepted_or_refused_at_every_door"
        ),
    ),
)
def test_an_option_is_accepted_or_refused_at_every_door(door: str, has_store: bool, option: str) -> None:
    queues = [WorkQueue("reports"), WorkQueue("work", ordered=4) if option == "order_key" else WorkQueue("work")]
    app = TaskMQ(queues=queues, default_queue="work")
    ran: list[int] = []

    @app.task(name="work", **{option: _OF_SENDERS[option]})
    async def work(number: int) -> None:
        ran.append(number)

    with Harness(app, store=has_store) as harness:
        try:
            _DOORS_OF_A_STORE[door](app, work, harness)
        except (DuplicateJob, PartlySent, InvalidOption, UnsupportedFeature) as error:
            refusal = f"{type(error).__name__}: {error}"
        else:
            refusal = ""
        if refusal:
            words = {"order_key": "ordered", "lane": "store", "unique": "uni|Duplicate|Partly"}.get(option, option)
            assert re.search(words, refusal)
            return
        harness.advance("1ms")
        found = _messages(app, harness, has_store=has_store)
        assert found, "no job was created"
        for envelope, queue, is_stored in found:
            _check(option, envelope, queue, is_stored=is_stored)


@pytest.mark.parametrize("option", sorted(set(_OF_SENDERS) - {"order_key", "unique"}))
@pytest.mark.parametrize("has_store", [False, True])
def test_an_option_is_accepted_or_refused_by_reactions(has_store: bool, option: str) -> None:
    app = TaskMQ(queues=[WorkQueue("reports"), WorkQueue("work")], default_queue="work")

    @app.task(name="load")
    async def load() -> None: ...

    @app.on(job(load))
    @app.task(name="work", **{option: _OF_SENDERS[option]})
    async def work(ended: JobEnded) -> None: ...

    with Harness(app, store=has_store) as harness:
        load.send()
        if option == "lane" and not has_store:
            with pytest.raises(UnsupportedFeature, match="the app has no store: work"):
                harness.advance("1s")
            return
        harness.advance("1s")
        found = [one for one in _messages(app, harness, has_store=has_store) if one[0].task == "work"]
        assert found, "no job was created"
        for envelope, queue, is_stored in found:
            _check(option, envelope, queue, is_stored=is_stored)


def test_headers_of_a_call_to_the_store_are_refused() -> None:
    app = TaskMQ(default_queue="work")

    @app.task(name="work")
    async def work(number: int) -> None: ...

    with Harness(app, store=True):
        for call in (work.options(headers={"x": 1}).submit, work.options(headers={"x": 1}, lane="store").send):
            with pytest.raises(InvalidOption, match="headers= belong to a message, but this call goes to the store"):
                call(7)


def _messages(app: TaskMQ, harness: Harness, *, has_store: bool) -> list[tuple[Envelope, str, bool]]:
    """Return each call with its queue, and whether it went to the store."""
    if has_store and (jobs := app.jobs.list().jobs):
        records = [app.jobs.get(one.id) for one in jobs]
        return [(_with_times(decode_envelope(one.body), one), one.queue, True) for one in records]
    return [(one.envelope, one.queue, False) for one in harness.sent]


def _with_times(envelope: Envelope, record: Any) -> Envelope:
    return msgspec.structs.replace(envelope, eta=record.scheduled_for, enqueued=record.submitted)


def _check(option: str, envelope: Envelope, queue: str, *, is_stored: bool) -> None:
    made = envelope.enqueued or 0
    match option:
        case "queue":
            assert queue == "reports"
        case "priority":
            assert envelope.priority == 8
        case "lane":
            assert is_stored
        case "order_key":
            assert envelope.order_key == "7"
        case "delay":
            assert (envelope.eta or 0) - made >= _HOUR
        case "expires":
            assert envelope.expires is not None
            assert envelope.expires - made <= 2 * _HOUR
        case "tenant":
            assert envelope.tenant == "acme"
        case "meta":
            assert (envelope.meta or {})["colour"] == "blue"
        case _:
            raise AssertionError(f"two jobs of one {option} key, and no error")
