"""Followers of a job are published before the job is settled."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmq import Context, InvalidOption, Reject, TaskMQ
from taskmq.model.envelope import Envelope, decode_envelope
from taskmq.reactions import JobEnded, ReactionEvent, all_of, any_of, file, job, message
from taskmq.schedules.triggers import every
from taskmq.worker import Worker, WorkerConfig
from taskmq.worker.guards.build import build_guards
from tests.coroutines import run_by
from tests.unit.worker.gate import working
from tests.unit.worker.staged import Fault, StagedApp, open_staged
from tests.unit.worker.test_returned_invitations import QUEUE, declare_reports, invite, settle
from tests.virtual_time import run


def _define(app: TaskMQ) -> None:
    @app.task(name="load", queue="work", retry=None)
    async def load(what: str) -> str:
        if what == "bad":
            raise Reject(what)
        return what

    @app.on(job(load))
    @app.task(name="index", queue="later")
    async def index(ended: JobEnded) -> None: ...

    @app.on(job("load", state=["failed", "cancelled"]))
    @app.task(name="alarm", queue="alarms")
    async def alarm(context: Context, ended: JobEnded) -> None: ...


def _play(
    test: Callable[[StagedApp], Awaitable[None]],
    define: Callable[[TaskMQ], None] = _define,
    *,
    with_state: bool = True,
) -> None:
    async def main() -> None:
        with open_staged(with_state=with_state) as app:
            define(app)
            await test(app)
            await app.aclose()

    run(main())


async def _envelopes(app: StagedApp, queue: str) -> list[Envelope]:
    return [decode_envelope(each.body) for each in await app.messages(queue)]


def _load(what: str, job_id: str) -> tuple[bytes, str]:
    return b'{"task":"load","id":"%s","root":"r","args":["%s"]}' % (job_id.encode(), what.encode()), job_id


async def _put(app: StagedApp, what: str, job_id: str = "job-1") -> None:
    body, name = _load(what, job_id)
    await app.put(body, job_id=name, task="load")


@run_by(_play)
async def test_a_successful_job_is_followed_by_its_dependent_before_it_is_settled(app: StagedApp, /) -> None:
    async with working(app, queues=("work",)):
        await _put(app, "good")
        await asyncio.sleep(1)

    (follower,) = await _envelopes(app, "later")
    assert follower.task == "index"
    assert (follower.parent, follower.root) == ("job-1", "r")
    assert follower.key == follower.id
    args, _ = app.tasks["index"].signature.decode(follower.args, follower.kwargs, "application/json")
    (ended,) = args
    assert isinstance(ended, JobEnded)
    assert (ended.job_id, ended.task, ended.state) == ("job-1", "load", "succeeded")
    assert app.story() == ["confirmed later", "stored succeeded", "acked work"]


@run_by(_play)
async def test_a_dead_job_is_followed_by_its_failure_dependent(app: StagedApp, /) -> None:
    async with working(app, queues=("work",)):
        await _put(app, "bad")
        await asyncio.sleep(1)

    assert [each.task for each in await _envelopes(app, "alarms")] == ["alarm"]
    assert not (await app.stats("work")).ready
    with pytest.raises(Exception, match="later"):
        await _envelopes(app, "later")


@run_by(_play)
async def test_a_job_with_an_unconfirmed_follower_is_not_settled(app: StagedApp, /) -> None:
    async with working(app, queues=("work",)):
        app.points.rest = Fault.UNKNOWN
        await _put(app, "good")
        await asyncio.sleep(20)
        assert "acked work" not in app.story()
        app.points.rest = Fault.NONE
        await asyncio.sleep(60)

    ids = {each.id for each in await _envelopes(app, "later")}
    assert len(ids) == 1
    assert "acked work" in app.story()


@given(plan=st.lists(st.sampled_from([Fault.NONE, Fault.REFUSED, Fault.UNKNOWN]), max_size=12))
def test_every_job_gets_one_follower_despite_any_failure(plan: list[Fault]) -> None:
    async def test(app: StagedApp) -> None:
        async with working(app, queues=("work",)):
            app.points.plan = [Fault.NONE] * len(app.points.names) + plan
            for number in range(3):
                await _put(app, "good", f"job-{number}")
            await asyncio.sleep(300)
        # A returned one goes to the next worker.
        other = app.twin()
        _define(other)
        async with working(other, queues=("work",)):
            await asyncio.sleep(300)

        assert not (await app.stats("work")).ready
        assert {each.parent for each in await _envelopes(app, "later")} == {"job-0", "job-1", "job-2"}
        assert len({each.id for each in await _envelopes(app, "later")}) == 3

    _play(test)


@run_by(_play, with_state=False)
async def test_a_follower_without_a_state_has_no_key(app: StagedApp, /) -> None:
    async with working(app, queues=("work",)):
        await _put(app, "good")
        await asyncio.sleep(1)

    (follower,) = await _envelopes(app, "later")
    assert follower.key is None


def test_a_partial_condition_is_recorded_in_the_state_before_the_job_is_settled() -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="load", queue="work")
        async def load(what: str) -> None: ...

        @app.on(all_of(job(load), file("/in/*")))
        @app.task(name="both", queue="later")
        async def both(happened: list[ReactionEvent]) -> None: ...

    async def test(app: StagedApp) -> None:
        async with working(app, queues=("work",)):
            await _put(app, "good")
            await asyncio.sleep(1)
            status = await app.reactions.astatus("both")

        (happened,) = status.received.values()
        assert isinstance(happened, JobEnded)
        assert happened.job_id == "job-1"
        assert list(status.received) == ["a job of load has succeeded"]
        assert (status.fired, status.waiting, status.last) == (0, 0, None)

    _play(test, define)


def test_a_call_that_is_a_stored_job_is_left_to_the_scheduler_of_the_stored_job() -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="load", queue="work", lane="store")
        async def load(what: str) -> None: ...

        @app.on(job(load))
        @app.task(name="index", queue="later", lane="store")
        async def index(ended: JobEnded) -> None: ...

    async def test(app: StagedApp) -> None:
        # A worker without the address of a store.
        assert app.sessions.store_url is None
        await declare_reports(app)
        await invite(app, "good", task="load")
        async with working(app, queues=("work",)):
            assert await settle(app, kinds=1) == ["succeeded"]

        assert f"acked {QUEUE}" in app.story()

    _play(test, define, with_state=False)


def test_jobs_without_followers_pass_no_gate() -> None:
    def define(app: TaskMQ) -> None:
        @app.task(name="load", queue="work")
        async def load(what: str) -> None: ...

        @app.task(name="other", queue="work")
        async def other() -> None: ...

        @app.on(job(load))
        @app.task(name="index", queue="later")
        async def index(ended: JobEnded) -> None: ...

    async def test(app: StagedApp) -> None:
        guards = build_guards(app, WorkerConfig(), worker="w1")
        assert guards.concern_task(app.tasks["load"])
        assert not guards.concern_task(app.tasks["other"])
        assert not guards.concern_task(app.tasks["index"])

    _play(test, define)


def test_a_worker_with_a_reaction_on_an_unknown_task_does_not_start() -> None:
    async def test(app: StagedApp) -> None:
        worker = Worker(app, WorkerConfig(queues=("work",)))
        with pytest.raises(InvalidOption, match=r"waits for jobs of 'lod', and this app has no such task"):
            await worker.run()

    def define(app: TaskMQ) -> None:
        @app.on(job("lod"))
        @app.task(name="index", queue="work")
        async def index(ended: JobEnded) -> None: ...

    _play(test, define)


def test_a_task_that_cannot_accept_the_event_is_refused_at_definition() -> None:
    app = TaskMQ()

    @app.task(name="nothing")
    def nothing() -> None: ...

    @app.task(name="number")
    def number(of: int) -> None: ...

    @app.task(name="either")
    def either(what: JobEnded) -> None: ...

    @app.task(name="lists")
    def lists(events: list[ReactionEvent]) -> None: ...

    with pytest.raises(InvalidOption, match="must accept a FileArrived as its only argument"):
        app.on(file("/in/*"))(nothing)
    with pytest.raises(InvalidOption, match="must accept a MessageArrived"):
        app.on(message("orders.#"))(number)
    with pytest.raises(InvalidOption, match="must accept a list of JobEnded"):
        app.on(any_of(job("a"), job("b")))(either)
    with pytest.raises(InvalidOption, match=r"is not a condition: use job\(\).*@app.every or @app.cron"):
        app.on(every("1m"))(nothing)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="a condition that waits"):
        app.on(any_of(job("a"), job("b")), limit="1h")(lists)
    with pytest.raises(InvalidOption, match="give more than 0 s"):
        app.on(all_of(job("a"), job("b")), limit=0)(lists)
    assert not app.reactions


def test_names_are_unique_and_cycles_are_refused() -> None:
    app = TaskMQ()

    @app.task(name="a")
    def a(ended: JobEnded) -> None: ...

    @app.task(name="b")
    def b(ended: JobEnded) -> None: ...

    with pytest.raises(InvalidOption, match="forever"):
        app.on(job("a"))(a)
    app.on(job("a"))(b)
    with pytest.raises(InvalidOption, match="defined twice"):
        app.on(job("c"))(b)
    app.on(job("c"), name="c to b")(b)
    with pytest.raises(InvalidOption, match="forever"):
        app.on(job("b"))(a)
    with pytest.raises(InvalidOption, match="printable text"):
        app.on(job("c"), name="\n")(b)
    assert [*app.reactions] == ["b", "c to b"]
    assert app.reactions["b"].describe() == "when a job of a has succeeded"
