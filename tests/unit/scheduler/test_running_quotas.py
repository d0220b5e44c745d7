"""Jobs that wait for their quotas, with a worker that a test controls."""

import asyncio

from taskmq import WorkQueue
from taskmq.contracts.jobs import JobDetail
from taskmq.model.jobs.quotas import Quota, Quotas, usage_name
from taskmq.model.nodes import LOST_AFTER_MS, NodeTold
from taskmq.model.states import JobState
from taskmq.model.topology import node_queue
from taskmq.stored_jobs.explanations import explain_job
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Stage, play_one, until


async def _limit(stage: Stage, *quotas: Quota) -> None:
    said = {usage_name(each.tenant, each.user): each for each in quotas}
    assert await stage.store.limit(Quotas(version=1, quotas=said))


@run_by(play_one)
async def test_jobs_beyond_the_quota_wait_and_start_when_others_end_in_any_queue(stage: Stage, /) -> None:
    await _limit(stage, Quota(tenant="acme", running=2))
    for _ in range(2):
        stage.start()
    first, second = await stage.player_of_declared("a"), await stage.player_of_declared("b")
    for queue in "ab":
        await stage.submit(3, queue=queue, tenant="acme")
    await stage.submit(5, queue="a", tenant="other")

    await until(lambda: len(first.deliveries) + len(second.deliveries) == 7)
    await stage.pass_by(5)
    assert stage.states() == {JobState.DISPATCHED: 7, JobState.QUEUED: 4}
    waiting = next(job for job in stage.database.jobs.values() if job.state is JobState.QUEUED)
    explained = await explain_job(stage.session, stage.store, waiting)
    text = "quota 'acme' allows 2 jobs in flight at a time, over all queues, and has no room for it"
    assert text in explained.reasons

    most = 0
    while stage.database.live:
        await first.finish()
        await second.finish()
        await stage.pass_by(0.1)
        under_way = [job for job in stage.database.jobs.values() if job.state is JobState.DISPATCHED]
        most = max(most, len([job for job in under_way if job.tenant == "acme"]))
    assert most == 2


@run_by(play_one)
async def test_only_an_operator_learns_that_a_general_quota_holds_a_job_back(stage: Stage, /) -> None:
    await _limit(stage, Quota(tenant="*", running=0))
    (job,) = await stage.submit(tenant="acme")

    operator = await explain_job(stage.session, stage.store, stage.job(job))
    tenant = await explain_job(stage.session, stage.store, stage.job(job), reader="acme")

    assert [each.text for each in operator.alternatives if each.kind == "quota"] == ["raise quota '*'"]
    assert [each.subject for each in tenant.items if each.kind == "quota"] == ["acme"]
    assert "quota" not in {each.kind for each in tenant.alternatives}


@run_by(play_one, queues=(WorkQueue("train", placed=True),))
async def test_placed_jobs_wait_for_their_quota_and_leave_the_nodes_to_others_meanwhile(stage: Stage, /) -> None:
    await _limit(stage, Quota(tenant="acme", running=2))
    stage.start()
    told = NodeTold(name="a", capacity={"slots": 4.0}, lost_after=LOST_AFTER_MS, runs_jobs=True)

    async def tell() -> None:
        while True:
            stage.worker_says("beat", name="w", node=told)
            await stage.pass_by(1)

    stage.tasks.append(asyncio.create_task(tell()))
    player = await stage.player_of_declared(node_queue("a"))
    await stage.submit(6, queue="train", tenant="acme")
    await stage.submit(2, queue="train", tenant="other")

    await player.has(4)
    await stage.pass_by(3)
    under_way = [job.tenant for job in stage.database.jobs.values() if job.state is JobState.DISPATCHED]
    assert sorted(under_way) == ["acme", "acme", "other", "other"]

    for left in (4, 3, 2, 1, 0):
        await player.finish()
        await stage.pass_by(3)
        under_way = [job.tenant for job in stage.database.jobs.values() if job.state is JobState.DISPATCHED]
        assert under_way.count("acme") == min(2, len(under_way))
        assert stage.states().get(JobState.QUEUED, 0) <= left


@run_by(play_one)
async def test_an_exhausted_rate_dispatches_one_job_after_the_other(stage: Stage, /) -> None:
    await _limit(stage, Quota(tenant="*", user="ann", rate=0.1, burst=2, on_limit="wait"))
    stage.start()
    player = await stage.player_of_declared()
    await stage.submit(4, tenant="acme", detail=JobDetail(owner="ann"))
    await stage.submit(1, detail=JobDetail(owner="ann"))
    await player.has(3)
    began = stage.clock.monotonic()
    waiting = next(job for job in stage.database.jobs.values() if job.state is JobState.QUEUED)
    explained = await explain_job(stage.session, stage.store, waiting)
    assert any(
        reason.startswith("quota 'acme/ann' allows 0.1 jobs per second: the next") for reason in explained.reasons
    )

    await player.has(5, within=60)

    assert 18 <= stage.clock.since(began) <= 22
    assert any(
        "jobs per second" in reason for reason in (await explain_job(stage.session, stage.store, waiting)).reasons
    )
