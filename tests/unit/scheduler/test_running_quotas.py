"""Jobs that their quotas let wait, with a worker that a test plays."""

from taskmq.contracts.jobs import JobDetail
from taskmq.model.jobs.quotas import Quota, Quotas, usage_name
from taskmq.model.states import JobState
from taskmq.submission.explain import explain_job
from tests.unit.scheduler.stage import Stage, play, until


async def _limit(stage: Stage, *quotas: Quota) -> None:
    said = {usage_name(each.tenant, each.user): each for each in quotas}
    assert await stage.store.limit(Quotas(version=1, quotas=said))


def test_jobs_beyond_what_may_run_wait_and_go_when_others_end_in_whichever_queue() -> None:
    async def test(stage: Stage) -> None:
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
        waiting = next(job for job in stage.model.jobs.values() if job.state is JobState.QUEUED)
        explained = await explain_job(stage.store, waiting)
        assert "quota 'acme' lets 2 jobs be under way at a time, in all queues" in explained.reasons

        most = 0
        while not all(job.state.is_final for job in stage.model.jobs.values()):
            await first.finish()
            await second.finish()
            await stage.pass_by(0.1)
            under_way = [job for job in stage.model.jobs.values() if job.state is JobState.DISPATCHED]
            most = max(most, len([job for job in under_way if job.tenant == "acme"]))
        assert most == 2

    play(test)


def test_a_rate_that_waits_lets_jobs_go_one_after_the_other() -> None:
    async def test(stage: Stage) -> None:
        await _limit(stage, Quota(tenant="*", user="ann", rate=0.1, burst=2, on_limit="wait"))
        stage.start()
        player = await stage.player_of_declared()
        await stage.submit(4, tenant="acme", detail=JobDetail(owner="ann"))
        await stage.submit(1, detail=JobDetail(owner="ann"))
        await player.has(3)
        began = stage.clock.monotonic()
        waiting = next(job for job in stage.model.jobs.values() if job.state is JobState.QUEUED)
        explained = await explain_job(stage.store, waiting)
        assert any(
            reason.startswith("quota 'acme/ann' lets 0.1 jobs a second go: the next") for reason in explained.reasons
        )

        await player.has(5, within=60)

        assert 18 <= stage.clock.since(began) <= 22
        assert any("jobs a second go" in reason for reason in (await explain_job(stage.store, waiting)).reasons)

    play(test)
