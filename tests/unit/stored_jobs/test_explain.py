"""Reasons of a waiting job, with a store, a broker and a state that a test pauses, empties and stops."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from taskmq import Job
from taskmq.contracts.history import history_of
from taskmq.errors import BrokerUnavailable
from taskmq.model.history.rollups import MINUTE, Rollup, RollupKey, minute_of
from taskmq.model.jobs.filters import JobFilter
from taskmq.model.states import JobState
from taskmq.model.topology import Policy
from taskmq.model.units import to_datetime
from taskmq.operations.queues import pause_queues, resume_queues
from taskmq.operations.tenant_jobs import TenantJobs
from taskmq.stored_jobs.explanations import Explanation, explain_job
from taskmq.stored_jobs.explanations.expected_starts import MINUTES
from taskmq.worker import WorkerConfig
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Stage, play_one, until
from tests.unit.stored_jobs.kit import Shop, in_shop


async def _submit_unconsumed(shop: Shop) -> Job[Any]:
    """Submit a job whose message no worker consumes."""
    job: Job[Any] = await shop.jobs.asubmit("double", 1)
    await until(lambda: shop.stage.job(job.id).state is JobState.DISPATCHED)
    return job


async def _explain(shop: Shop, job: Job[Any], *, tenant: str | None = None) -> list[str]:
    found: Explanation = await TenantJobs(shop.app, tenant, by="ann").explain(job.id)
    assert [each.text for each in found.items] == found.reasons
    assert found.answer in found.reasons
    return found.reasons


async def _alternatives(shop: Shop, job: Job[Any], *, tenant: str | None = None) -> list[str]:
    return [each.text for each in (await TenantJobs(shop.app, tenant, by="ann").explain(job.id)).alternatives]


@run_by(in_shop)
async def test_a_paused_queue_is_the_first_reason_with_its_operator_and_note(shop: Shop, /) -> None:
    await pause_queues(shop.app, ["work"], note="the printer is broken", by="ann")
    shop.worker.look_at_pauses()
    job: Job[int] = await shop.jobs.asubmit("double", 1)
    await shop.stage.pass_by(5)
    since = shop.stage.clock.now_ms()

    operator, tenant = await _explain(shop, job), await _explain(shop, job, tenant="")

    assert operator[0].startswith("queue 'work' has been paused since 2023-11-14T22:13:20")
    assert operator[0].endswith(" by ann (the printer is broken)")
    assert operator[1].startswith("it has been ready since ")
    assert await _alternatives(shop, job) == ["resume queue 'work' (`taskmq queue resume work`)"]
    # A tenant learns the reason, but neither the operator nor the operator's remedy.
    assert await _alternatives(shop, job, tenant="") == []
    assert tenant[0].endswith("+00:00 (the printer is broken)")
    assert not any("waits for a free slot" in reason or "no worker" in reason for reason in [*operator, *tenant])
    await resume_queues(shop.app, ["work"])
    shop.worker.look_at_pauses()
    assert await job.aresult(timeout=60) == 2
    assert shop.stage.clock.now_ms() >= since


@run_by(in_shop)
async def test_a_reason_has_a_kind_and_names_its_subject(shop: Shop, /) -> None:
    await until(lambda: shop.stage.holds_all(shop.process))
    held: Job[Any] = await shop.jobs.asubmit("double", 1, held=True)
    waiting: Job[Any] = await shop.jobs.asubmit("double", 1, depends_on=[held])
    await pause_queues(shop.app, ["work"])

    items = [(await TenantJobs(shop.app, None, by="ann").explain(job.id)).items for job in (held, waiting)]

    checks = (await TenantJobs(shop.app, None, by="ann").explain(waiting.id)).checks
    assert [each.name for each in checks if each.state == "blocking"] == ["dependencies"]
    assert {each.name for each in checks if each.since} == {"pause"}
    (hold,) = [
        each
        for each in (await TenantJobs(shop.app, None, by="ann").explain(held.id)).checks
        if each.state == "blocking"
    ]
    assert (hold.name, hold.since) == ("hold", to_datetime((await shop.app.jobs.aget(held.id)).submitted))
    assert [[(each.kind, each.subject) for each in found] for found in items] == [
        [("held", ""), ("paused", "work")],
        [("dependency", held.id), ("paused", "work")],
    ]


@run_by(in_shop)
async def test_a_hold_whose_event_is_not_kept_has_no_known_begin(shop: Shop, /) -> None:
    job: Job[Any] = await shop.jobs.asubmit("double", 1, delay="1h")
    await shop.jobs.ahold(job.id)
    shop.stage.database.ask("DELETE FROM event")

    found: Explanation = await TenantJobs(shop.app, None, by="ann").explain(job.id)

    assert [each.since for each in found.items if each.kind == "held"] == [None]


@run_by(in_shop)
async def test_a_job_that_waits_for_its_time_knows_that_its_queue_is_paused(shop: Shop, /) -> None:
    await until(lambda: shop.stage.holds_all(shop.process))
    later: Job[Any] = await shop.jobs.asubmit("double", 1, delay="1h")
    held: Job[Any] = await shop.jobs.asubmit("double", 1, held=True)
    waiting: Job[Any] = await shop.jobs.asubmit("double", 1, depends_on=[held])
    before = [await _explain(shop, job) for job in (later, held, waiting)]

    await pause_queues(shop.app, ["work"])

    after = [await _explain(shop, job) for job in (later, held, waiting)]
    assert [len(reasons) for reasons in before] == [1, 1, 1]
    assert before[0][0].endswith("+00:00, in 1h")
    assert all(reasons[-1].startswith("queue 'work' has been paused since ") for reasons in after)


@run_by(in_shop)
async def test_a_queue_without_a_worker_is_named_with_its_broker(shop: Shop, /) -> None:
    shop.worker.requeue_now()
    await shop.running
    job = await _submit_unconsumed(shop)

    operator, tenant = await _explain(shop, job), await _explain(shop, job, tenant="")

    assert operator[0] == f"no worker consumes queue 'work' at {shop.process.broker.address}"
    assert tenant[0] == "no worker consumes queue 'work'"
    assert await _alternatives(shop, job, tenant="") == ["start a worker for queue 'work'"]
    assert operator[1].startswith("its message has been in work.jobs since ")


@run_by(play_one)
async def test_a_job_without_a_scheduler_names_the_scheduler_and_the_workers_too(stage: Stage, /) -> None:
    (job,) = await stage.submit()

    found = await explain_job(stage.session, stage.store, stage.job(job))

    reasons = found.reasons
    assert found.answer == reasons[0]
    assert [each.kind for each in found.alternatives] == ["scheduler", "workers"]
    assert reasons[0].startswith("no scheduler holds its queue's partition")
    assert reasons[1].startswith("no worker consumes queue 'work' at memory://")
    assert reasons[2].endswith("and waits for that and for its turn in queue 'work'")
    assert len(reasons) == 3


@run_by(in_shop)
async def test_an_unavailable_broker_is_named(shop: Shop, /) -> None:
    shop.worker.requeue_now()
    await shop.running
    job = await _submit_unconsumed(shop)
    shop.process.broker.fail_calls("connect", 1, BrokerUnavailable("gone"))

    reasons = await _explain(shop, job)

    address = shop.process.broker.address
    assert reasons[0] == f"the broker at {address} does not answer: no job reaches a worker until it is back"
    assert not any("no worker" in reason for reason in reasons)


@run_by(in_shop)
async def test_an_unavailable_state_makes_pauses_unknown_and_workers_stay_known(shop: Shop, /) -> None:
    for _ in range(40):
        await shop.jobs.asubmit("sleep", 5.0)
    await until(lambda: JobState.DISPATCHED in shop.stage.states() and JobState.RUNNING in shop.stage.states())
    job = next(job for job in shop.stage.database.jobs.values() if job.state is JobState.DISPATCHED)
    state = shop.app.sessions.current().state
    assert state is not None
    await state.aclose()

    reasons = (await shop.jobs.aexplain(job.id)).reasons

    assert "1 worker consumes that queue" in reasons[0]
    assert reasons[1] == "cannot tell whether queue 'work' is paused: the state does not answer"
    await shop.stage.all_ended()


async def _work_for_half_an_hour(stage: Stage) -> None:
    """Record runs of five seconds in all slots of a worker."""
    now = minute_of(stage.clock.now_ms())
    figures = [Rollup(RollupKey(now - number * MINUTE, "sleep", "work", "")) for number in range(1, MINUTES + 2)]
    for each in figures:
        for _ in range(WorkerConfig().concurrency * 60 // 5):
            each.ran.add(5.0)
    await history_of(stage.store).rollups.add(figures)


def _last_waiting(shop: Shop, jobs: Sequence[Job[Any]]) -> Job[Any]:
    """Return the ready job that is dispatched last; the first ones left before the others were submitted."""
    return max((job for job in jobs if shop.stage.job(job.id).state is JobState.QUEUED), key=lambda job: job.id)


@run_by(in_shop)
async def test_a_ready_job_starts_within_its_expected_time(shop: Shop, /) -> None:
    slots = WorkerConfig().concurrency
    await _work_for_half_an_hour(shop.stage)
    jobs = [await shop.jobs.asubmit("sleep", 5.0) for _ in range(8 * slots)]
    await until(lambda: JobState.RUNNING in shop.stage.states())
    last = _last_waiting(shop, jobs)
    runs = next(job for job in jobs if shop.stage.job(job.id).state is JobState.RUNNING)

    found = (await shop.jobs.aexplain(last.id)).start
    first = (await shop.jobs.aexplain(runs.id)).start
    await pause_queues(shop.app, ["work"])
    paused = (await shop.jobs.aexplain(last.id)).start
    await resume_queues(shop.app, ["work"])
    shop.worker.look_at_pauses()
    await shop.stage.all_ended()

    assert found is not None
    assert 4 * slots < found.position <= 8 * slots
    started = shop.stage.job(last.id).started
    assert started is not None
    assert found.earliest <= to_datetime(started) <= found.latest
    assert found.latest - found.earliest < timedelta(minutes=1)
    # Neither for a job that runs, nor for one that something else keeps from its run.
    assert (first, paused) == (None, None)


@run_by(in_shop)
async def test_a_ready_job_has_no_expected_start_without_figures(shop: Shop, /) -> None:
    jobs = [await shop.jobs.asubmit("sleep", 5.0) for _ in range(8 * WorkerConfig().concurrency)]
    await until(lambda: JobState.RUNNING in shop.stage.states())

    found = await shop.jobs.aexplain(_last_waiting(shop, jobs).id)

    assert found.state is JobState.QUEUED
    assert found.start is None
    await shop.stage.all_ended()


@run_by(play_one)
async def test_a_ready_job_without_a_scheduler_has_no_expected_start(stage: Stage, /) -> None:
    await _work_for_half_an_hour(stage)
    await stage.player_of_declared("work")
    (job,) = await stage.submit()

    found = await explain_job(stage.session, stage.store, stage.job(job))

    assert [each.kind for each in found.items] == ["scheduler", "turn"]
    assert found.start is None


@pytest.mark.parametrize(
    "policy",
    [
        "fair",
        pytest.param(
            "priority",
            marks=pytest.mark.nightly(
                "tests/unit/stored_jobs/test_explain.py::test_a_ready_job_starts_as_early_as_an_alternative_promises"
            ),
        ),
    ],
)
@run_by(in_shop)
async def test_a_ready_job_starts_as_early_as_an_alternative_promises(shop: Shop, /, policy: Policy) -> None:
    slots = WorkerConfig().concurrency
    await shop.app.pools.aset_policy("work", policy)
    await _work_for_half_an_hour(shop.stage)
    await shop.stage.store.nodes.report_workers([shop.worker.status()])
    jobs = [await shop.jobs.asubmit("sleep", 5.0) for _ in range(8 * slots)]
    await until(lambda: JobState.RUNNING in shop.stage.states())
    last = _last_waiting(shop, jobs)

    found = await TenantJobs(shop.app, None, by="ann").explain(last.id)
    by_tenant = await TenantJobs(shop.app, "", by="ann").explain(last.id)
    raised, widened = found.alternatives
    await shop.jobs.achange(last.id, priority=9)
    await shop.stage.all_ended()

    assert found.start is not None
    assert raised.start is not None
    assert widened.start is not None
    assert (raised.kind, widened.kind) == ("priority", "slots")
    assert f": {found.start.position - 1} jobs start before it, " in found.answer
    assert raised.text.startswith("raise its priority from 4 to 9: ")
    assert f"at position {raised.start.position} instead of {found.start.position} " in raised.text
    assert widened.text.startswith(f"start one more worker of {slots} slots for queue 'work': ")
    assert widened.start.likely < found.start.likely
    started = shop.stage.job(last.id).started
    assert started is not None
    # All slots of the worker end their runs of five seconds at once.
    assert to_datetime(started) <= raised.start.latest + timedelta(seconds=5) < found.start.earliest
    # A tenant cannot start workers.
    assert [each.kind for each in by_tenant.alternatives] == ["priority"]


@run_by(in_shop)
async def test_a_cap_of_one_job_is_worded_in_the_singular(shop: Shop, /) -> None:
    await shop.app.pools.aset("acme", max={"slots": 1})
    await pause_queues(shop.app, ["work"])
    shop.worker.look_at_pauses()
    job: Job[Any] = await shop.jobs.asubmit("double", 1, tenant="acme")
    await shop.stage.pass_by(5)

    reasons = await _explain(shop, job)

    assert "pool 'acme' has 0 of at most 1 job in flight in that queue" in reasons


@pytest.mark.parametrize("user", [None, "ann"])
@run_by(in_shop)
async def test_a_quota_keeps_a_job_from_its_run_only_while_it_has_no_room(shop: Shop, /, user: str | None) -> None:
    quota = "acme" if user is None else f"acme/{user}"
    await shop.app.pools.aset_quota("acme", user=user, running=1, rate=0.05, on_limit="wait")
    first: Job[Any] = await shop.jobs.asubmit("sleep", 5, tenant="acme", owner="ann")
    await until(lambda: shop.stage.job(first.id).state is JobState.RUNNING)
    second: Job[Any] = await shop.jobs.asubmit("double", 1, tenant="acme", owner="ann")

    both: Explanation = await TenantJobs(shop.app, None, by="bob").explain(second.id)
    by_tenant: Explanation = await TenantJobs(shop.app, "acme", by="ann").explain(second.id)
    await until(lambda: shop.stage.job(first.id).state.is_final)
    rate: Explanation = await TenantJobs(shop.app, None, by="bob").explain(second.id)
    await shop.stage.pass_by(30)

    assert both.answer == (
        f"quota {quota!r} allows 1 job in flight at a time, over all queues, and has no room for it"
    )
    assert [each.name for each in both.checks if each.state == "blocking"] == ["quota"]
    assert [each.text for each in both.alternatives] == [f"raise quota {quota!r}"]
    assert by_tenant.alternatives == []
    assert both.start is None
    assert rate.answer.startswith(f"quota {quota!r} allows 0.05 jobs per second: the next one at 2023-11-14T22:13:")
    assert shop.stage.job(second.id).state is JobState.SUCCEEDED


@run_by(in_shop)
async def test_a_quota_with_room_does_not_explain_a_wait(shop: Shop, /) -> None:
    async def give_up(which: JobFilter, *, cap: int = 1) -> int:
        """Count jobs as a store that has too many to count them."""
        del which
        return cap + 1

    vars(shop.app.sessions.store())["count_jobs"] = give_up
    await shop.app.pools.aset_quota("acme", running=1, rate=1, on_limit="wait")
    await pause_queues(shop.app, ["work"])
    shop.worker.look_at_pauses()
    job: Job[Any] = await shop.jobs.asubmit("double", 1, tenant="acme")
    await shop.stage.pass_by(5)

    assert "quota" not in {each.kind for each in (await TenantJobs(shop.app, None, by="ann").explain(job.id)).items}
