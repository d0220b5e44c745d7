"""Concurrency limits of an app without a state, and idempotency keys: the store decides, over all queues."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from taskmq import Concurrency, InvalidOption, TaskMQ, WorkQueue
from taskmq.contracts.jobs import JobClaim, JobUpdate, NewJob, OpenedClaims, partition_of
from taskmq.errors import StoreUnavailable
from taskmq.model.envelope import Envelope, decode_envelope, encode_envelope, new_job_id
from taskmq.model.history.suspensions import SUSPENDED
from taskmq.model.keys import line_key, once_key, tenant_key
from taskmq.model.outcome import ErrorRecord
from taskmq.model.states import JobState
from taskmq.run.facts import SCHEDULE_NAME, SCHEDULED_FOR
from taskmq.scheduler.gates.claims import ClaimWaits, TaskClaims
from taskmq.schedules.triggers import every
from taskmq.stored_jobs.explanations import explain_job
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Player, Stage, play, play_one, until

_QUEUES = ("work", "other-1", "other-2")


def _define(app: TaskMQ) -> None:
    def account_of(account: str, number: int = 0) -> str:
        return account

    shared = Concurrency(1, key=account_of, name="accounts")

    for queue in _QUEUES:

        @app.task(name=f"book-{queue}", queue=queue, concurrency=shared)
        def book(account: str, number: int = 0) -> None: ...

    @app.task(name="pay", queue="work", idempotency_ttl="1h")
    def pay(order: str) -> None: ...

    @app.task(name="free", queue="work")
    def free() -> None: ...


async def _submit(stage: Stage, task: str, *args: object, count: int = 1, **fields: Any) -> list[str]:
    queue = task.removeprefix("book-") if task.startswith("book-") else "work"
    limits = {"places:accounts": str(args[0])} if queue != "work" or task == "book-work" else None
    jobs: list[NewJob] = []
    for _ in range(count):
        job_id = new_job_id(stage.clock.now_ms(), next(stage.numbers).to_bytes(10, "big"))
        call = Envelope(
            id=job_id, task=task, args=msgspec.Raw(msgspec.json.encode(args)), limits=limits, key=fields.get("key")
        )
        jobs.append(NewJob(id=job_id, task=task, queue=queue, body=encode_envelope(call)))
    await stage.store.submit(jobs)
    return [job.id for job in jobs]


def _ids(player: Player) -> list[str]:
    return [each.store.id for each in player.envelopes if each.store is not None]


@run_by(play, _define)
async def test_queues_of_several_partitions_share_one_limit(stage: Stage, /) -> None:
    assert len({partition_of(queue) for queue in _QUEUES}) == len(_QUEUES)
    for queue in _QUEUES:
        await _submit(stage, f"book-{queue}", "acme", count=4)
    stage.start(has_state=False)
    stage.start(has_state=False)
    players = [await stage.player_of_declared(queue) for queue in _QUEUES]
    began, most = stage.clock.monotonic(), 0

    while stage.database.live:
        await until(lambda: any(player.deliveries for player in players) or not stage.database.live)
        most = max(most, sum(len(player.deliveries) for player in players))
        for player in players:
            if player.deliveries:
                await player.finish()

    assert most == 1
    # A freed claim is announced: no job waits for the check of once a second.
    assert stage.clock.since(began) < 6


@run_by(play_one, _define)
async def test_a_limit_stays_held_while_its_scheduler_is_replaced(stage: Stage, /) -> None:
    jobs = await _submit(stage, "book-work", "acme", count=3)
    first = stage.start(has_state=False)
    player = await stage.player_of_declared()
    await player.has(1)
    await until(lambda: len(stage.database.gates) == 2)
    explained = await explain_job(stage.session, stage.store, stage.job(jobs[1]))
    assert "as many jobs run as the concurrency limit 'accounts:acme' of its task allows" in explained.reasons
    await stage.pass_by(1)
    await first.kill()
    stage.start(has_state=False)
    await stage.pass_by(30)

    assert _ids(player) == jobs[:1]
    for job in jobs:
        await player.has(1)
        assert _ids(player) == [job]
        await player.finish()
    await stage.all_ended()


@run_by(play_one, _define)
async def test_a_run_that_ended_before_the_take_over_frees_its_limit_without_another_run(stage: Stage, /) -> None:
    async def never_confirms(batches: Sequence[int]) -> None:
        raise StoreUnavailable("the confirm is not recorded (staged)")

    store = stage.store
    vars(store.dispatching)["confirm"] = never_confirms
    jobs = await _submit(stage, "book-work", "acme", count=2)
    first = stage.start(has_state=False, store=store)
    player = await stage.player_of_declared()
    await player.has(1)
    await first.kill()
    await player.finish()

    stage.start(has_state=False)
    await player.has(1)
    await stage.pass_by(20)

    assert _ids(player) == jobs[1:]
    await player.finish()
    await stage.all_ended()


@run_by(play_one, _define)
async def test_jobs_without_claims_pass_those_that_wait(stage: Stage, /) -> None:
    limited = await _submit(stage, "book-work", "acme", count=50)
    free = await _submit(stage, "free", count=3)
    stage.start(has_state=False)
    player = await stage.player_of_declared()

    await until(lambda: len(player.deliveries) == 4)
    await stage.pass_by(3)

    assert sorted(_ids(player)) == sorted([limited[0], *free])


@pytest.mark.parametrize("has_state", [True, False])
@run_by(play_one, _define)
async def test_the_work_of_a_key_is_done_once_and_answers_all_its_jobs(stage: Stage, /, has_state: bool) -> None:
    jobs = await _submit(stage, "pay", "7", count=40, key="order:7")
    stage.start(has_state=has_state)
    player = await stage.player_of_declared()
    await player.has(1)
    await stage.pass_by(2)
    assert _ids(player) == jobs[:1]
    (invitation,) = [each.store for each in player.envelopes]
    assert invitation is not None
    assert invitation.fence

    await player.finish("failed")
    await player.has(1)
    (second,) = [each.store for each in player.envelopes]
    assert second is not None
    assert (second.fence or 0) > invitation.fence
    await player.finish(content_type="application/json", result=b'"paid"')
    await stage.all_ended()

    assert player.deliveries == []
    assert stage.states() == {JobState.FAILED: 1, JobState.SUCCEEDED: 39}
    assert {(await stage.store.get(job)).result for job in jobs[1:]} == {b'"paid"'}  # type: ignore[union-attr] # exists


@pytest.mark.parametrize(
    "has_state",
    [
        pytest.param(
            True,
            marks=pytest.mark.nightly(
                "tests/unit/scheduler/test_claims.py::test_jobs_of_a_key_wait_while_its_job_is_suspended"
            ),
        ),
        False,
    ],
)
@run_by(play_one, _define)
async def test_jobs_of_a_key_wait_while_its_job_is_suspended(stage: Stage, /, has_state: bool) -> None:
    first, second = await _submit(stage, "pay", "7", count=2, key="order:7")
    process = stage.start(has_state=has_state)
    player = await stage.player_of_declared()
    await player.has(1)
    why = ErrorRecord(type_name=SUSPENDED, message="asleep")
    await player.finish("snoozed", delay=150_000, error=why)
    await until(lambda: stage.job(first).state is JobState.SCHEDULED)
    await stage.pass_by(60)
    assert player.deliveries == []
    # The next holder of the partition knows no job in flight.
    await process.kill()
    stage.start(has_state=has_state)
    await _submit(stage, "pay", "7", count=20, key="order:7")
    await stage.pass_by(60)
    assert player.deliveries == []

    await player.has(1, within=150)
    assert _ids(player) == [first]
    await player.finish(content_type="application/json", result=b'"paid"')
    await stage.all_ended()

    assert stage.states() == {JobState.SUCCEEDED: 22}
    assert stage.job(second).attempt == 1


@run_by(play_one, _define)
async def test_a_new_holder_leaves_jobs_that_wait_for_a_key_where_they_are(stage: Stage, /) -> None:
    jobs = await _submit(stage, "pay", "7", count=40, key="order:7")
    first = stage.start(has_state=False)
    player = await stage.player_of_declared()
    await until(lambda: len(stage.database.gates) == 39)
    versions = {job: stage.job(job).version for job in jobs[1:]}
    await first.kill()
    stage.start(has_state=False)
    await stage.pass_by(30)

    assert {job: stage.job(job).version for job in jobs[1:]} == versions
    await player.has(1)
    await player.finish()
    await stage.all_ended()


@run_by(play_one, _define)
async def test_later_jobs_of_a_key_are_not_dispatched_before_its_work_is_done(stage: Stage, /) -> None:
    await _submit(stage, "pay", "7", count=2, key="order:7")
    stage.start(has_state=False)
    player = await stage.player_of_declared()
    await until(lambda: len(stage.database.gates) == 1)
    jobs = await _submit(stage, "pay", "7", count=200, key="order:7")
    await until(lambda: len(stage.database.gates) == 201)

    assert {stage.job(job).version for job in jobs} == {1}
    await player.has(1)
    await player.finish()
    await stage.all_ended()
    # One dispatch and one end.
    assert {stage.job(job).version for job in jobs} == {3}


@run_by(play_one, _define)
async def test_an_unavailable_store_delays_claims(stage: Stage, /) -> None:
    jobs = await _submit(stage, "book-work", "acme", count=2)
    process = stage.start(has_state=False)
    player = await stage.player_of_declared()
    await player.has(1)
    process.store.is_reachable = False
    await player.finish()
    await stage.pass_by(3)
    process.store.is_reachable = True

    await player.has(1)

    assert _ids(player) == [jobs[1]]


@run_by(play_one, _define)
async def test_a_cancelled_job_gets_no_claims_and_ends(stage: Stage, /) -> None:
    (job,) = await _submit(stage, "book-work", "acme")
    process = stage.start(has_state=False)
    take = process.store.dispatching.take_claims

    async def cancel_first(*args: Any) -> Any:
        stage.database.ask("UPDATE job SET cancel_requested = 'not needed'")
        return await take(*args)

    vars(process.store.dispatching)["take_claims"] = cancel_first
    player = await stage.player_of_declared()
    await stage.all_ended()

    assert player.deliveries == []
    assert stage.job(job).state is JobState.CANCELLED


def _define_line(app: TaskMQ) -> None:
    app.task(name="post", queue="ledger", order_key="account", retry=None)(lambda account: None)


@run_by(play_one, _define_line, queues=[WorkQueue("ledger", ordered=2)])
async def test_stored_jobs_of_a_key_run_in_order_while_schedulers_are_replaced(stage: Stage, /) -> None:
    jobs = {key: await _post(stage, key, count=6) for key in ("north", "south")}
    process = stage.start(has_state=False)
    await stage.broker.declare([WorkQueue("ledger", ordered=2)])
    player = await stage.player("ledger")
    ran: list[str] = []

    while stage.database.live:
        await until(lambda: bool(player.deliveries) or not stage.database.live)
        ids = _ids(player)
        assert len({job for job in ids if job in jobs["north"]}) <= 1
        assert len({job for job in ids if job in jobs["south"]}) <= 1
        ran += ids
        await player.finish("retry" if len(ran) % 3 == 1 else "succeeded", delay=2_000)
        if len(ran) % 4 == 0:
            await process.kill()
            process = stage.start(has_state=bool(len(ran) % 8))

    for its in jobs.values():
        assert list(dict.fromkeys(job for job in ran if job in its)) == its


@pytest.mark.parametrize("has_state", [True, False])
@run_by(play_one, _define)
async def test_the_message_of_a_key_says_whether_the_job_holds_its_limits(stage: Stage, /, has_state: bool) -> None:
    for task in ("book-work", "pay", "unknown"):
        await _submit(stage, task, "a", key="k")
    stage.start(has_state=has_state)
    player = await stage.player()
    await player.has(3)

    found = {each.task: each.store.leaves_limits for each in player.envelopes if each.store and each.store.fence}
    # Code of workers may limit the tasks whose limits the scheduler does not know.
    assert found == {"book-work": has_state, "pay": True, "unknown": True}
    await player.finish()


@run_by(play_one, _define_line, queues=[WorkQueue("ledger", ordered=2)])
async def test_a_delayed_job_holds_up_its_key_until_it_is_cancelled(stage: Stage, /) -> None:
    (first,) = await _post(stage, "north", due=stage.clock.now_ms() + 3_600_000)
    second, third = await _post(stage, "north", count=2)
    (other,) = await _post(stage, "south")
    stage.start(has_state=False)
    player = await stage.player("ledger")
    await player.has(1)
    await stage.pass_by(5)
    assert _ids(player) == [other]

    await stage.store.update(
        JobUpdate(id=first, before=JobState.SCHEDULED, version=1, after=JobState.CANCELLED, kind="cancel")
    )
    await player.has(2)
    await stage.pass_by(5)

    assert _ids(player) == [other, second]
    await player.finish()
    await player.has(1)
    assert _ids(player) == [third]
    (invitation,) = [each.store for each in player.envelopes]
    assert invitation is not None
    assert invitation.fence is None


@run_by(play_one, _define_line, queues=[WorkQueue("ledger", ordered=2)])
async def test_occurrences_and_submitted_jobs_of_a_key_share_its_line(stage: Stage, /) -> None:
    (first,) = await _post(stage, "north")
    process = stage.start(has_state=False)
    await stage.broker.declare([WorkQueue("ledger", ordered=2)])
    player = await stage.player("ledger")
    await process.app.schedules.aadd("booking", process.app.tasks["post"], every("1s"), args=("north",))
    await player.has(1)
    await stage.pass_by(5)
    await process.app.schedules.aremove("booking")
    ran: list[str] = []

    while stage.database.live:
        await player.has(1)
        (job,) = _ids(player)
        ran.append(job)
        await player.finish()
        await until(lambda: bool(player.deliveries) or not stage.database.live)

    assert ran[0] == first
    assert len(ran) >= 5
    instants = [int((decode_envelope(stage.job(job).body).meta or {})[SCHEDULED_FOR]) for job in ran[1:]]
    assert instants == sorted(set(instants))


@run_by(play_one, _define_line, queues=[WorkQueue("ledger", ordered=2), WorkQueue("work")])
async def test_a_schedule_without_the_key_that_its_queue_needs_is_refused(stage: Stage, /) -> None:
    process = stage.start(has_state=False)
    post = process.app.tasks["post"]
    keyless = process.app.task(name="keyless", queue="work")(lambda: None)
    add = process.app.schedules.aadd

    with pytest.raises(InvalidOption, match="schedule 'a': queue 'work': order_key needs an ordered queue"):
        await add("a", post, every("1s"), args=("north",), job_options={"queue": "work"})
    with pytest.raises(InvalidOption, match="schedule 'a': queue 'ledger': it is ordered, so each job needs"):
        await add("a", keyless, every("1s"), job_options={"queue": "ledger"})


async def _post(stage: Stage, key: str, *, count: int = 1, due: int = 0) -> list[str]:
    jobs: list[NewJob] = []
    for _ in range(count):
        job_id = new_job_id(stage.clock.now_ms(), (1_000_000 - next(stage.numbers)).to_bytes(10, "big"))
        call = Envelope(id=job_id, task="post", args=msgspec.Raw(msgspec.json.encode([key])), order_key=key)
        line = line_key("ledger", key, tenant=None)
        jobs.append(NewJob(id=job_id, task="post", queue="ledger", body=encode_envelope(call), due=due, line=line))
    await stage.store.submit(jobs)
    return [job.id for job in jobs]


def test_periodic_checks_ask_for_all_waiting_claims_in_turns_of_500() -> None:
    waits = ClaimWaits(TaskClaims({}).of)
    gates = [f"once:pay:{number}" for number in range(1_200)]
    assert all(map(waits.adopt, gates))
    asked: list[str] = []

    for second in range(3):
        due = waits.due(now=float(second))
        assert waits.due(now=float(second)) == {}
        waits.record_opened(due, OpenedClaims(frozenset(), frozenset(due)))
        asked += due

    assert len(asked) == 1_500
    assert set(asked) == set(gates)


def test_a_claim_that_jobs_wait_for_since_the_store_was_asked_is_asked_for_again() -> None:
    waits = ClaimWaits(TaskClaims({}).of)
    claim = JobClaim("once:pay:1")
    waits.wait_for(claim, queue="work", now=0.0)
    asked = waits.due(now=1.0)

    waits.wait_for(claim, queue="work", now=1.0)
    waits.record_opened(asked, OpenedClaims(frozenset(), frozenset()))

    assert waits.due(now=waits.next()) == {"once:pay:1": 1}
    waits.record_opened(asked, OpenedClaims(frozenset(), frozenset()))
    assert waits.next() == math.inf


@pytest.mark.parametrize("tenant", [None, "acme"])
def test_a_state_keeps_the_keys_of_occurrences_that_a_beat_may_have_sent(tenant: str | None) -> None:
    occurrence = Envelope(id=tenant_key(tenant, "o1"), task="pay", tenant=tenant, key="o1", meta={SCHEDULE_NAME: "s"})
    others = [replace(occurrence, meta=None), replace(occurrence, key="order:7")]

    assert TaskClaims({}, has_state=True).of("pay", "q", encode_envelope(occurrence)) == ()
    for each, has_state in ((occurrence, False), *((other, True) for other in others)):
        (claim,) = TaskClaims({}, has_state=has_state).of("pay", "q", encode_envelope(each))
        assert claim.name == once_key("pay", str(each.key), tenant=tenant)


def test_the_claim_of_a_long_key_begins_with_its_tenant() -> None:
    body = msgspec.json.encode({"id": "j1", "task": "pay", "tenant": "acme", "key": "k" * 2_000})

    (claim,) = TaskClaims({}).of("pay", "q", body)

    assert claim.name.startswith("@acme:once:")
    assert len(claim.name) < 500
