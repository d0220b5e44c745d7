"""Jobs that wait for limits of their tasks, with a worker that a test controls."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from taskmq import Concurrency, RateLimit, TaskMQ
from taskmq.contracts.jobs import JobUpdate, NewJob, Pick, ReadyJob, partition_of
from taskmq.model.envelope import BlobReference, Envelope, decode_envelope, encode_envelope, new_job_id
from taskmq.model.states import JobState
from taskmq.scheduler.gates import Gates, TaskDemands
from taskmq.stored_jobs.explanations import explain_job
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Player, Stage, play, play_one, until


def _read_account(account: str) -> str:
    return account


def _define(app: TaskMQ) -> None:
    @app.task(name="one", queue="work", concurrency=Concurrency(1, key="account"))
    def one(account: str, number: int = 0) -> None: ...

    @app.task(name="two", queue="work", concurrency=2)
    def two(number: int = 0) -> None: ...

    @app.task(name="paced", queue="work", rate_limit=RateLimit("10/s"))
    def paced(number: int = 0) -> None: ...

    @app.task(name="fast", queue="work", rate_limit="100/s")
    def fast(number: int = 0) -> None: ...

    @app.task(name="free", queue="work")
    def free(number: int = 0) -> None: ...


async def _submit(
    stage: Stage, task: str, *args: object, count: int = 1, queue: str = "work", **fields: Any
) -> list[str]:
    jobs: list[NewJob] = []
    for _ in range(count):
        job_id = new_job_id(stage.clock.now_ms(), len(stage.database.jobs).to_bytes(5) + len(jobs).to_bytes(5))
        call = Envelope(id=job_id, task=task, args=msgspec.Raw(msgspec.json.encode(args)))
        jobs.append(NewJob(id=job_id, task=task, queue=queue, body=encode_envelope(call), **fields))
    await stage.store.submit(jobs)
    return [job.id for job in jobs]


async def _cancel(stage: Stage, job_id: str) -> None:
    job = stage.job(job_id)
    update = JobUpdate(id=job_id, before=job.state, version=job.version, after=JobState.CANCELLED, kind="cancel")
    assert await stage.store.update(update) is not None


def _in_hand(player: Player) -> list[str]:
    found = [decode_envelope(each.body).store for each in player.deliveries]
    return [each.id for each in found if each is not None]


def test_a_scheduler_reads_the_limits_of_a_job_from_its_message_alone() -> None:
    app = TaskMQ("memory://demands")
    _define(app)

    @app.task(rate_limit=RateLimit("5/s", strict=True), concurrency=Concurrency(3, key="account"), name="strict")
    def strict(account: str) -> None: ...

    demands = TaskDemands(app.tasks.by_name.values())

    def of(task: str, **fields: Any) -> list[str]:
        return [demand.key for demand in demands.of(task, encode_envelope(Envelope(id="j", task=task, **fields)))]

    call = {"args": msgspec.Raw(b'["ann"]')}
    assert demands.queues == {"work", "default"}
    assert of("one", **call) == ["places:one:ann"]
    assert of("one", kwargs=msgspec.Raw(b'{"account":"ann"}'), tenant="acme") == ["places:@acme:one:ann"]
    assert of("two") == ["places:two"]
    assert of("paced") == ["rate:paced"]
    assert of("strict", **call) == ["places:strict:ann"]
    assert of("free", **call) == of("unknown", **call) == []
    # An unknown limit is left to the worker.
    assert of("one", args=msgspec.Raw(b"[7]")) == of("one", args=msgspec.Raw(b'["a\\u0000"]')) == []
    assert of("one", args=msgspec.Raw(b"{}")) == []
    keys = {"places:one": "bob"}
    assert of("one", args=msgspec.Raw(b"[7]"), limits=keys, tenant="acme") == ["places:@acme:one:bob"]
    blob = BlobReference(name="n", size=1, sha256="0" * 64)
    assert of("one", blob=blob, limits=keys) == ["places:one:bob"]
    assert (of("one", blob=blob), of("two", blob=blob)) == ([], ["places:two"])
    assert demands.of("two", b"no message") == ()
    assert [[each.key for each in demands.of(task, b"")] for task in ("one", "two")] == [[], ["places:two"]]


def test_without_a_state_the_scheduler_decides_all_rates() -> None:
    app = TaskMQ("memory://demands")

    @app.task(name="strict", rate_limit=RateLimit("20/s", strict=True, name="api"))
    def strict() -> None: ...

    @app.task(name="keyed", rate_limit=RateLimit("5/s", key=_read_account))
    def keyed(account: str) -> None: ...

    demands = TaskDemands(app.tasks.by_name.values(), is_final=True)

    def rates_of(task: str, **fields: Any) -> list[str]:
        return [demand.key for demand in demands.rates(task, encode_envelope(Envelope(task=task, **fields)))]

    call = {"args": msgspec.Raw(b'["ann"]')}
    assert rates_of("strict") == ["rate:api"]
    assert rates_of("keyed", limits={"rate:keyed": "ann"}, **call) == ["rate:keyed:ann"]
    # Calls whose keys are unknown share one rate.
    assert rates_of("keyed", **call) == ["rate:keyed"]
    assert rates_of("keyed", limits={"rate:keyed": "a\0"}, **call) == ["rate:keyed"]
    assert demands.rates("keyed", b"") == ()


@run_by(play_one, _define)
async def test_a_key_dispatches_only_as_many_jobs_as_may_run_and_others_pass(stage: Stage, /) -> None:
    acme = await _submit(stage, "one", "acme", count=700)
    other = await _submit(stage, "one", "other", count=2)
    free = await _submit(stage, "free", count=3)
    stage.start()
    player = await stage.player_of_declared()

    await until(lambda: len(player.deliveries) == 5)
    await stage.pass_by(5)
    assert sorted(_in_hand(player)) == sorted([acme[0], other[0], *free])
    assert len(stage.database.gates) == 700
    explained = await explain_job(stage.session, stage.store, stage.job(acme[1]))
    assert "as many jobs run as the concurrency limit 'one:acme' of its task allows" in explained.reasons

    await player.finish()
    await player.has(2)
    await stage.pass_by(5)

    assert _in_hand(player) == [acme[1], other[1]]
    assert stage.states()[JobState.QUEUED] == 698


@run_by(play_one, _define)
async def test_expired_jobs_behind_a_gate_do_not_delay_the_others(stage: Stage, /) -> None:
    stage.start()
    player = await stage.player_of_declared()
    await _submit(stage, "one", "acme")
    await player.has(1)
    await _submit(stage, "one", "acme", count=300, expires=stage.clock.now_ms() + 5_000)
    (live,) = await _submit(stage, "one", "acme")
    await until(lambda: len(stage.database.gates) == 301)
    await stage.pass_by(10)

    await player.finish()
    await stage.pass_by(3)

    assert _in_hand(player) == [live]
    assert stage.states()[JobState.EXPIRED] == 300


@run_by(play_one, _define)
async def test_all_jobs_of_a_limit_end_without_ever_exceeding_it(stage: Stage, /) -> None:
    stage.start()
    player = await stage.player_of_declared()
    await _submit(stage, "two", count=20)
    most = 0
    while stage.database.live:
        await player.has(1)
        await stage.pass_by(0.1)
        most = max(most, len(player.deliveries))
        await player.finish()
        await stage.pass_by(0.01)

    assert most == 2
    assert stage.database.gates == {}


@run_by(play_one, _define)
async def test_a_rate_dispatches_jobs_at_its_pace(stage: Stage, /) -> None:
    await _submit(stage, "paced", count=51)
    stage.start()
    player = await stage.player_of_declared()
    await player.has(1)
    began = stage.clock.monotonic()

    await stage.pass_by(2)
    assert 20 <= len(player.deliveries) <= 23
    explained = await explain_job(stage.session, stage.store, next(stage.job(job) for job in stage.database.gates))
    assert "as many jobs have started as the rate limit 'paced' of its task allows" in explained.reasons
    await player.has(51)

    assert 4.5 <= stage.clock.since(began) <= 5.5


@pytest.mark.nightly("tests/unit/scheduler/test_gates.py::test_a_rate_dispatches_jobs_at_its_pace")
@run_by(play_one, _define)
async def test_a_thousand_jobs_of_a_fast_rate_are_on_time_and_few_at_once(stage: Stage, /) -> None:
    await _submit(stage, "fast", count=1000)
    stage.start()
    player = await stage.player_of_declared()
    await player.has(1)
    began, done, most = stage.clock.monotonic(), 0, 0
    while done < 1000:
        await player.has(1)
        most = max(most, len(player.deliveries))
        done += len(player.deliveries)
        # At most the rate, beside the jobs dispatched ahead.
        assert done <= (stage.clock.since(began) + 0.26) * 100 + 1
        await player.finish()

    assert 9.5 <= stage.clock.since(began) <= 10.5
    assert most <= 26


@run_by(play_one, _define)
async def test_a_limit_exhausted_elsewhere_stops_further_dispatches_for_a_while(stage: Stage, /) -> None:
    jobs = await _submit(stage, "one", "acme", count=3)
    stage.start()
    player = await stage.player_of_declared()
    await player.has(1)
    await player.finish("snoozed", delay=120_000, started=None, limited=True)

    await stage.pass_by(8)
    assert player.deliveries == []
    await player.has(1)

    assert _in_hand(player) == [jobs[1]]
    assert stage.job(jobs[0]).state is JobState.SCHEDULED


@run_by(play_one, _define)
async def test_a_job_returned_for_another_reason_frees_its_permit(stage: Stage, /) -> None:
    jobs = await _submit(stage, "one", "acme", count=2)
    stage.start()
    player = await stage.player_of_declared()
    await player.has(1)
    await player.finish("snoozed", delay=120_000, started=None)

    await player.has(1, within=2)

    assert _in_hand(player) == [jobs[1]]


@run_by(play_one, _define)
async def test_a_snooze_by_the_task_frees_its_permit(stage: Stage, /) -> None:
    jobs = await _submit(stage, "one", "acme", count=2)
    stage.start()
    player = await stage.player_of_declared()
    await player.has(1)
    await player.finish("snoozed", delay=120_000)

    await player.has(1, within=2)

    assert _in_hand(player) == [jobs[1]]


@run_by(play_one, _define)
async def test_the_permit_of_a_cancelled_job_goes_to_the_next(stage: Stage, /) -> None:
    jobs = await _submit(stage, "one", "acme", count=4)
    stage.start()
    player = await stage.player_of_declared()
    await player.has(1)
    await stage.pass_by(1)
    for job in jobs[1:3]:
        await _cancel(stage, job)
    await player.finish()

    await player.has(1)

    assert _in_hand(player) == [jobs[3]]


@run_by(play_one, _define)
async def test_the_next_holder_counts_jobs_in_flight_and_reads_all_others_again(stage: Stage, /) -> None:
    jobs = await _submit(stage, "one", "acme", count=600)
    first = stage.start()
    player = await stage.player_of_declared()
    await player.has(1)
    await until(lambda: len(stage.database.gates) == 599)
    await stage.pass_by(1)
    await first.kill()
    stage.start()
    await stage.pass_by(30)

    assert _in_hand(player) == [jobs[0]]
    assert len(stage.database.gates) == 599
    await player.finish()
    await player.has(1)
    assert _in_hand(player) == [jobs[1]]


@run_by(play_one, _define)
async def test_jobs_are_not_read_again_if_the_last_limited_one_was_long_ago(stage: Stage, /) -> None:
    store, looked = stage.store, list[str]()
    look = store.dispatching.look

    async def note_picks(picks: Sequence[Pick]) -> list[ReadyJob]:
        looked.extend(pick.lane.queue for pick in picks)
        return await look(picks)

    vars(store.dispatching)["look"] = note_picks
    stage.start(store=store)
    player = await stage.player_of_declared("elsewhere")
    await _submit(stage, "one", "acme", count=2, queue="elsewhere")
    await player.has(2)
    await player.finish()
    await _submit(stage, "free", queue="elsewhere")
    await player.has(1)
    assert looked == ["elsewhere"]
    await player.finish()
    await stage.pass_by(61)

    await _submit(stage, "free", queue="elsewhere")
    await player.has(1)

    assert looked == ["elsewhere"]


@run_by(play_one, _define)
async def test_an_unavailable_store_delays_jobs_behind_a_gate(stage: Stage, /) -> None:
    jobs = await _submit(stage, "one", "acme", count=2)
    process = stage.start()
    player = await stage.player_of_declared()
    await player.has(1)
    process.store.is_reachable = False
    await stage.pass_by(2)
    process.store.is_reachable = True
    await player.finish()

    await player.has(1)

    assert _in_hand(player) == [jobs[1]]


def _define_shared(app: TaskMQ) -> None:
    rate = RateLimit("10/s", name="both")
    for queue in ("q0", "q1"):

        @app.task(name=f"call_{queue}", queue=queue, rate_limit=rate)
        def call(number: int = 0) -> None: ...


@pytest.mark.nightly("tests/unit/scheduler/test_gates.py::test_a_rate_dispatches_jobs_at_its_pace")
@run_by(play, _define_shared)
async def test_two_schedulers_share_the_rate_of_queues_in_two_partitions(stage: Stage, /) -> None:
    assert partition_of("q0") != partition_of("q1")
    for queue in ("q0", "q1"):
        await _submit(stage, f"call_{queue}", count=30, queue=queue)
    schedulers = [stage.start(), stage.start()]
    players = [await stage.player_of_declared(queue) for queue in ("q0", "q1")]
    await until(lambda: any(player.deliveries for player in players))
    began = stage.clock.monotonic()

    def count() -> int:
        # A killed scheduler may leave an invitation without its confirm, which the next one publishes again.
        return sum(len(set(_in_hand(player))) for player in players)

    while count() < 30:
        await stage.pass_by(0.1)
        assert count() <= (stage.clock.since(began) + 0.26) * 10 + 1
    await schedulers[0].kill()
    while count() < 60:
        await stage.pass_by(0.1)
        assert count() <= (stage.clock.since(began) + 0.26) * 10 + 1

    assert all(len(set(_in_hand(player))) == 30 for player in players)


@run_by(play_one, _define)
async def test_a_job_that_came_too_late_is_dispatched_anew(stage: Stage, /) -> None:
    (job,) = await _submit(stage, "paced")
    stage.start()
    player = await stage.player_of_declared()
    await player.has(1)
    before = stage.job(job)

    await player.finish("interrupted", started=None, limited=True)
    await player.has(1)

    after = stage.job(job)
    assert _in_hand(player) == [job]
    assert (after.state, after.attempt) == (JobState.DISPATCHED, before.attempt)
    assert after.token > before.token
    assert stage.database.events(job) == []


def test_jobs_that_come_too_late_get_more_time_until_they_are_in_time() -> None:
    gates = Gates(TaskDemands(()))
    first = gates.lead

    gates.note_late(now=1)
    gates.note_late(now=1)
    assert gates.lead == 1.5 * first
    for now in range(5, 50, 3):
        gates.note_late(now=now)
    longest = gates.lead
    gates.note_in_time(now=51)
    assert gates.lead == longest == 2
    for now in range(60, 1_000, 11):
        gates.note_in_time(now=now)
    assert gates.lead == first
