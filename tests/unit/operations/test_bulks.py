"""Stored bulks: carried out in pieces by any available process, each job at most once."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from taskmq import TaskMQ
from taskmq.client.session import Session
from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.identity import Actor, AuditFilter
from taskmq.contracts.jobs import JobDetail, JobRecord, JobUpdate, NewJob, Submitted
from taskmq.errors import InvalidFilter, InvalidOption, StoreUnavailable
from taskmq.model.identity import EVERYTHING_OF_ALL
from taskmq.model.jobs.bulks import Bulk
from taskmq.model.jobs.changes import RetryMode
from taskmq.model.jobs.dependencies import JobDependency
from taskmq.model.states import JobState
from taskmq.model.units import LAST_INSTANT
from taskmq.operations.bulks import BulkOrder, BulkRunner, TenantBulks
from taskmq_local import open_memory_broker
from tests.coroutines import run_by
from tests.unit.app_kit import use_session
from tests.unit.scheduler.stage import Stage, play
from tests.unit.store_kit import StagedStore

_ANN = Actor(user_id="u1", user="ann", via="session")
_HOUR = 3_600_000


def _app(stage: Stage, store: StagedStore | None = None) -> TaskMQ:
    """Build an app, as in another process, on the stage's store."""
    app = TaskMQ(f"memory://{stage.name}", name="shop")
    app.sessions.clock = stage.clock
    broker = open_memory_broker(f"memory://{stage.name}", BrokerOptions(name="bulk", clock=stage.clock))
    session = Session(broker, None, send_timeout=5.0, store=store or stage.store, clock=stage.clock)
    use_session(app, lambda: session)
    return app


def _bulks(stage: Stage, tenant: str | None = None) -> TenantBulks:
    return TenantBulks(_app(stage), tenant, by=_ANN)


async def _jobs(stage: Stage, count: int, **fields: Any) -> list[str]:
    """Submit jobs that are due in an hour."""
    return await stage.submit(count, due=stage.clock.now_ms() + _HOUR, **fields)


async def _wait_for_end(stage: Stage, bulk: Bulk) -> Bulk:
    found = await stage.store.bulks.get(bulk.id)
    assert found is not None
    assert found.state == "done"
    return found


def _marks(stage: Stage, ids: list[str], bulk: Bulk) -> Counter[str]:
    """Return how often the bulk changed each job."""
    return Counter(job_id for job_id in ids for event in stage.database.events(job_id) if bulk.mark in event.note)


class Fragile(StagedStore):
    """A store whose process dies after changing or creating that many jobs; the last call is not answered."""

    def __init__(self, stage: Stage, changes: int) -> None:
        super().__init__(stage.database, clock=stage.clock)
        self.left = changes

    async def update(self, update: JobUpdate) -> JobRecord | None:
        version = await super().update(update)
        self._count()
        return version

    async def submit(self, jobs: Sequence[NewJob], *, connection: Any = None) -> list[Submitted]:
        answers = await super().submit(jobs, connection=connection)
        self._count(len(jobs))
        return answers

    async def retry(self, job: NewJob, update: JobUpdate) -> Submitted | None:
        answer = await super().retry(job, update)
        self._count()
        return answer

    def _count(self, changes: int = 1) -> None:
        self.left -= changes
        if self.left <= 0:
            self.is_reachable = False
            raise StoreUnavailable("it is gone")


class Stalled(StagedStore):
    """A store whose changes wait until the test releases them."""

    go = asyncio.Event()

    async def update(self, update: JobUpdate) -> JobRecord | None:
        await self.go.wait()
        return await super().update(update)


@run_by(play)
async def test_a_bulk_applies_to_all_matches_and_the_audit_records_its_begin_and_end(stage: Stage, /) -> None:
    ids = await _jobs(stage, 50)
    others = await _jobs(stage, 3, queue="other")
    bulk = await _bulks(stage).begin(BulkOrder("hold", "queue:work", note="inventory"))

    async with stage.running(BulkRunner(_app(stage), me="a")):
        await stage.pass_by(1)

    ended = await _wait_for_end(stage, bulk)
    assert (ended.matched, ended.done, ended.refused, ended.pending) == (50, 50, 0, ())
    assert {stage.job(job_id).state for job_id in ids} == {JobState.HELD}
    assert {stage.job(job_id).state for job_id in others} == {JobState.SCHEDULED}
    assert {(event.by, event.note) for event in stage.database.events(ids[0])} == {
        ("ann", f"inventory (bulk {bulk.id})")
    }
    page = await stage.store.identity.audit.entries(EVERYTHING_OF_ALL, AuditFilter(action="bulk."), limit=10)
    assert [(one.action, one.user_id, one.subject) for one in page.entries[::-1]] == [
        ("bulk.begin", "u1", bulk.id),
        ("bulk.end", "u1", bulk.id),
    ]


@pytest.mark.parametrize("changes", [1, 2, 19, 20, 21, 30])
@pytest.mark.parametrize("action", ["hold", "change", "retry"])
@run_by(play)
async def test_a_successor_of_a_killed_runner_changes_each_job_once(
    stage: Stage, /, action: str, changes: int
) -> None:
    ids = await _jobs(stage, 45)
    if action == "retry":
        async with stage.running(BulkRunner(_app(stage), me="before")):
            await _bulks(stage).begin(BulkOrder("cancel", ""))
            await stage.pass_by(1)
    bulk = await _bulks(stage).begin(BulkOrder(action, "", priority=7 if action == "change" else None))  # type: ignore[arg-type]

    async with stage.running(BulkRunner(_app(stage, Fragile(stage, changes)), me="a"), is_killed=True):
        await stage.pass_by(1)
    async with stage.running(BulkRunner(_app(stage), me="b")):
        await stage.pass_by(28)
        assert (await stage.store.bulks.open()) != []
        await stage.pass_by(10)

    ended = await _wait_for_end(stage, bulk)
    assert (ended.done, ended.refused) == (45, 0)
    if action == "retry":
        assert Counter(job.detail.retry_of for job in stage.database.jobs.values() if job.detail) == Counter(ids)
    else:
        assert _marks(stage, ids, bulk) == Counter(ids)


@run_by(play)
async def test_a_second_bulk_retries_an_already_retried_job_only_on_request(stage: Stage, /) -> None:
    ids = await _jobs(stage, 3)
    bulks = _bulks(stage)
    ended: list[Bulk] = []
    orders = [BulkOrder("cancel", ""), *[BulkOrder("retry", "status:cancelled")] * 2]
    async with stage.running(BulkRunner(_app(stage), me="a")):
        for order in (*orders, BulkOrder("retry", "status:cancelled", again=True)):
            bulk = await bulks.begin(order)
            await stage.pass_by(6)
            ended.append(await _wait_for_end(stage, bulk))

    assert [(one.matched, one.done, one.refused) for one in ended] == [(3, 3, 0), (3, 3, 0), (0, 0, 0), (3, 3, 0)]
    again = {job.detail.retry_of: job.id for job in stage.database.jobs.values() if job.detail}
    assert len(stage.database.jobs) == 9
    assert {one.job_id: one.retried_as for one in ended[3].repeated} == again
    assert {stage.job(job_id).retried_as for job_id in ids} == set(again.values())
    assert {one.job_id for one in ended[1].repeated} == set(ids)
    assert ended[0].repeated == ended[2].repeated == ()


@run_by(play)
async def test_only_a_retry_can_be_repeated_and_has_a_mode(stage: Stage, /) -> None:
    for order in (BulkOrder("cancel", "", again=True), BulkOrder("cancel", "", mode="new")):
        with pytest.raises(InvalidOption, match="only `retry` takes a mode or `again`"):
            await _bulks(stage).begin(order)


@pytest.mark.parametrize("mode", ["new", "resume"])
@run_by(play)
async def test_a_failed_graph_is_retried_in_dependency_order(stage: Stage, /, mode: RetryMode) -> None:
    (first,) = await _jobs(stage, 1)
    upstream, ids = first, [first]
    for _ in range(30):
        (upstream,) = await _jobs(stage, 1, detail=JobDetail(depends_on=(JobDependency(upstream),)))
        ids.append(upstream)
    (alone,) = await _jobs(stage, 1, detail=JobDetail(depends_on=(JobDependency(first),)), tenant="")
    async with stage.running(BulkRunner(_app(stage), me="a")):
        await _bulks(stage).begin(BulkOrder("cancel", f"id:{first}"))
        await stage.pass_by(2)
        while (await stage.store.dispatching.release_dependents()).is_more:
            pass
        assert {stage.job(job_id).state for job_id in ids[1:]} == {JobState.UPSTREAM_FAILED}
        # Without the cancelled one, none of them waits for another.
        refused = await _bulks(stage).begin(BulkOrder("retry", "status:upstream_failed", mode=mode))
        await stage.pass_by(10)
        bulk = await _bulks(stage).begin(BulkOrder("retry", "status:cancelled,upstream_failed", mode=mode))
        await stage.pass_by(40)

    ended = await _wait_for_end(stage, refused)
    assert (ended.matched, ended.done, ended.refused) == (31, 0, 31)
    assert {each.error for each in ended.refusals} == {"JobConflict"}
    ended = await _wait_for_end(stage, bulk)
    assert (ended.matched, ended.done, ended.refused, ended.deferred) == (32, 32, 0, ())
    assert ended.reattached == 31
    again = {job_id: stage.job(job_id).retried_as or job_id for job_id in (*ids, alone)}
    assert stage.job(again[first]).state is JobState.QUEUED
    assert {stage.job(again[job_id]).state for job_id in (*ids[1:], alone)} == {JobState.WAITING}
    for before, job_id in itertools.pairwise(ids):
        assert [each.id for each in await stage.store.unmet(again[job_id])] == [again[before]]


@run_by(play)
async def test_a_runner_presumed_dead_changes_nothing_after_its_successor(stage: Stage, /) -> None:
    Stalled.go = asyncio.Event()
    ids = await _jobs(stage, 10)
    bulk = await _bulks(stage).begin(BulkOrder("change", "", priority=7))

    async with stage.running(BulkRunner(_app(stage, Stalled(stage.database, clock=stage.clock)), me="a")):
        await stage.pass_by(1)
        async with stage.running(BulkRunner(_app(stage), me="b")):
            await stage.pass_by(32)
        Stalled.go.set()
        await stage.pass_by(1)

    ended = await _wait_for_end(stage, bulk)
    assert (ended.holder, ended.done) == ("b", 10)
    assert _marks(stage, ids, bulk) == Counter(ids)


@run_by(play)
async def test_two_concurrent_runners_change_each_job_once(stage: Stage, /) -> None:
    ids = await _jobs(stage, 60)
    bulks = [await _bulks(stage).begin(BulkOrder("change", "", priority=number)) for number in (3, 4)]

    async with (
        stage.running(BulkRunner(_app(stage), me="a")),
        stage.running(BulkRunner(_app(stage), me="b")),
    ):
        await stage.pass_by(40)

    for bulk in bulks:
        assert (await _wait_for_end(stage, bulk)).done == 60
        assert _marks(stage, ids, bulk) == Counter(ids)


@run_by(play)
async def test_a_runner_finds_its_bulk_behind_any_number_of_others(stage: Stage, /) -> None:
    ids = await _jobs(stage, 3)
    others = [await _bulks(stage).begin(BulkOrder("cancel", "")) for _ in range(51)]
    await stage.pass_by(1)
    bulk = await _bulks(stage).begin(BulkOrder("hold", ""))

    async with stage.running(BulkRunner(_app(stage), me="a", only=bulk.id)):
        await stage.pass_by(2)

    assert (await _wait_for_end(stage, bulk)).done == 3
    assert {stage.job(job_id).state for job_id in ids} == {JobState.HELD}
    assert [await stage.store.bulks.get(other.id) for other in others] == others


@run_by(play)
async def test_a_bulk_respects_its_rate_and_stops_when_it_is_aborted(stage: Stage, /) -> None:
    ids = await _jobs(stage, 40)
    bulks = _bulks(stage)
    bulk = await bulks.begin(BulkOrder("hold", "", rate=2.0))

    async with stage.running(BulkRunner(_app(stage), me="a")):
        await stage.pass_by(5.5)
        found = await bulks.get(bulk.id)
        assert found is not None
        assert 8 <= found.done <= 12
        aborted = await bulks.abort(bulk.id)
        await stage.pass_by(60)

    assert aborted is not None
    assert (aborted.state, aborted.done) == ("aborted", found.done)
    assert await bulks.get(bulk.id) == await bulks.abort(bulk.id) == aborted
    assert _marks(stage, ids, bulk).total() == found.done


@run_by(play)
async def test_jobs_in_progress_at_the_abort_are_counted_when_they_are_done(stage: Stage, /) -> None:
    Stalled.go = asyncio.Event()
    ids = await _jobs(stage, 50)
    bulks = _bulks(stage)
    bulk = await bulks.begin(BulkOrder("hold", ""))

    async with stage.running(BulkRunner(_app(stage, Stalled(stage.database, clock=stage.clock)), me="a")):
        await stage.pass_by(1)
        aborted = await bulks.abort(bulk.id)
        Stalled.go.set()
        await stage.pass_by(10)

    found = await bulks.get(bulk.id)
    assert aborted is not None
    assert found is not None
    assert (aborted.done, found.state, found.ended) == (0, "aborted", aborted.ended)
    assert found.done == _marks(stage, ids, bulk).total() == 20


@run_by(play)
async def test_an_abandoned_bulk_counts_the_jobs_that_it_changed(stage: Stage, /) -> None:
    class Broken(StagedStore):
        """A store that fails for the third changed job."""

        changes = 0

        async def update(self, update: JobUpdate) -> JobRecord | None:
            self.changes += 1
            if self.changes == 3:
                raise RuntimeError("a bug")
            return await super().update(update)

    ids = await _jobs(stage, 10)
    bulk = await _bulks(stage).begin(BulkOrder("hold", ""))

    async with stage.running(BulkRunner(_app(stage, Broken(stage.database, clock=stage.clock)), me="a")):
        await stage.pass_by(5)

    found = await _bulks(stage).get(bulk.id)
    assert found is not None
    assert (found.state, found.done) == ("aborted", 9)
    assert [each.error for each in found.refusals] == ["RuntimeError"]
    assert _marks(stage, ids, bulk).total() == 9


@run_by(play)
async def test_a_rate_above_one_batch_a_second_is_reached(stage: Stage, /) -> None:
    await _jobs(stage, 200)
    bulk = await _bulks(stage).begin(BulkOrder("hold", "", rate=100.0))

    async with stage.running(BulkRunner(_app(stage), me="a")):
        await stage.pass_by(1.5)
        found = await _bulks(stage).get(bulk.id)
        assert found is not None
        assert 140 <= found.done <= 180
        await stage.pass_by(1)

    assert (await _wait_for_end(stage, bulk)).done == 200


@run_by(play)
async def test_a_change_to_an_infinite_time_is_one_to_the_last_instant(stage: Stage, /) -> None:
    (job_id,) = await _jobs(stage, 1)
    bulk = await _bulks(stage).begin(BulkOrder("change", "", delay="999999999d"))

    async with stage.running(BulkRunner(_app(stage), me="a")):
        await stage.pass_by(1)

    assert (await _wait_for_end(stage, bulk)).done == 1
    assert stage.job(job_id).due == LAST_INSTANT


def test_a_failing_bulk_gives_the_reason_and_does_not_delay_others(caplog: pytest.LogCaptureFixture) -> None:
    async def test(stage: Stage) -> None:
        await _jobs(stage, 30)
        broken = Bulk(id="0", tenant=None, action="hold", filter="stats:held", began=0, user_id="u1")
        await stage.store.bulks.add(broken)
        bulk = await _bulks(stage).begin(BulkOrder("hold", ""))

        async with stage.running(BulkRunner(_app(stage), me="a")):
            await stage.pass_by(1)

        assert (await _wait_for_end(stage, bulk)).done == 30
        found = await stage.store.bulks.get("0")
        assert found is not None
        assert (found.state, [one.error for one in found.refusals]) == ("aborted", ["InvalidFilter"])
        page = await stage.store.identity.audit.entries(EVERYTHING_OF_ALL, AuditFilter(action="bulk.abort"), limit=10)
        assert [(one.subject, one.user_id) for one in page.entries] == [("0", "u1")]

    play(test)
    assert "bulk 0 failed, aborting it" in caplog.text


@run_by(play)
async def test_a_bulk_changes_only_jobs_of_its_tenant_and_only_that_tenant_sees_it(stage: Stage, /) -> None:
    own, foreign = await _jobs(stage, 3, tenant="acme"), await _jobs(stage, 3, tenant="other")
    acme = _bulks(stage, "acme")
    bulk = await acme.begin(BulkOrder("cancel", ""))

    async with stage.running(BulkRunner(_app(stage), me="a")):
        await stage.pass_by(1)

    assert {stage.job(job_id).state for job_id in own} == {JobState.CANCELLED}
    assert {stage.job(job_id).state for job_id in foreign} == {JobState.SCHEDULED}
    assert [one.id for one in (await acme.page()).bulks] == [bulk.id]
    for stranger in (_bulks(stage, "other"), _bulks(stage, "")):
        assert await stranger.get(bulk.id) is None
        assert await stranger.abort(bulk.id) is None
        assert (await stranger.page()).bulks == []
    assert await _bulks(stage).get(bulk.id) == await acme.get(bulk.id)


@run_by(play)
async def test_a_bulk_skips_tasks_its_user_may_not_call_and_gives_the_reason(stage: Stage, /) -> None:
    await _jobs(stage, 2, task="billing.charge", held=True)
    (refused,) = await _jobs(stage, 1, task="report", held=True)
    bulk = await _bulks(stage).begin(BulkOrder("release", "", tasks=(("*",), ("billing.*",))))

    async with stage.running(BulkRunner(_app(stage), me="a")):
        await stage.pass_by(1)

    ended = await _wait_for_end(stage, bulk)
    assert (ended.done, ended.refused) == (2, 1)
    assert [(one.job_id, one.error) for one in ended.refusals] == [(refused, "NotPermitted")]


def test_an_unavailable_store_is_polled_again_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[int] = []

    async def test(stage: Stage) -> None:
        await _jobs(stage, 5)
        bulk = await _bulks(stage).begin(BulkOrder("hold", ""))
        store = stage.store
        store.is_reachable = False

        async with stage.running(BulkRunner(_app(stage, store), me="a")):
            await stage.pass_by(3)
            lines.append(caplog.text.count("store unavailable, bulk operations wait"))
            store.is_reachable = True
            await stage.pass_by(6)
            store.is_reachable = False
            await stage.pass_by(9)
            lines.append(caplog.text.count("store unavailable, bulk operations wait"))

        assert (await _wait_for_end(stage, bulk)).done == 5

    play(test)
    assert lines == [1, 2]


@run_by(play)
async def test_a_scheduler_carries_out_bulks(stage: Stage, /) -> None:
    await _jobs(stage, 5)
    bulk = await _bulks(stage).begin(BulkOrder("cancel", ""))
    stage.start()

    await stage.pass_by(3)

    assert (await _wait_for_end(stage, bulk)).done == 5


@pytest.mark.parametrize(
    ("order", "error"),
    [
        (BulkOrder("change", ""), InvalidOption),
        (BulkOrder("change", "", delay="1h", at=datetime(2099, 1, 1, tzinfo=UTC)), InvalidOption),
        (BulkOrder("change", "", delay="soon"), InvalidOption),
        (BulkOrder("change", "", priority=10), InvalidOption),
        (BulkOrder("hold", "", priority=3), InvalidOption),
        (BulkOrder("hold", "", rate=0.0), InvalidOption),
        (BulkOrder("hold", "", rate=float("inf")), InvalidOption),
        (BulkOrder("hold", "stats:held"), InvalidFilter),
    ],
)
@run_by(play)
async def test_an_impossible_bulk_is_not_started(stage: Stage, /, order: BulkOrder, error: type[Exception]) -> None:
    with pytest.raises(error):
        await _bulks(stage).begin(order)
    assert await stage.store.bulks.page(None) == []
