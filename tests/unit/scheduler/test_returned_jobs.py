"""Invitations that workers got a second time: what the scheduler makes of them."""

from taskmq import TaskMQ
from taskmq.contracts.jobs import JobUpdate
from taskmq.model.envelope import Envelope, Invitation
from taskmq.model.retry import RunOptions
from taskmq.model.states import JobState
from tests.coroutines import run_by
from tests.unit.scheduler.stage import START, Player, Stage, play_one, until


def _define(app: TaskMQ) -> None:
    @app.task(name="once", ack="early")
    async def once() -> None: ...


async def _hand_out(stage: Stage, **fields: object) -> tuple[str, Player, Envelope]:
    """Return a job, its worker and the invitation that the worker has."""
    (job_id,) = await stage.submit(**fields)  # type: ignore[arg-type]
    player = await stage.player()
    return job_id, player, await _next(player)


async def _next(player: Player) -> Envelope:
    await until(lambda: len(player.deliveries) == 1)
    (envelope,) = player.envelopes
    return envelope


def _invitation(envelope: Envelope) -> Invitation:
    assert envelope.store is not None
    return envelope.store


async def _return(player: Player) -> None:
    """Return the message, as a worker does that gets it a second time."""
    (delivery,), (envelope,) = player.deliveries, player.envelopes
    player.deliveries.clear()
    await player.report(envelope, "interrupted", redelivered=True, worker="other", started=None)
    delivery.ack()


def _beats(stage: Stage, *workers: str) -> None:
    for name in workers:
        stage.worker_says("beat", name=name)


async def _events(stage: Stage, job_id: str) -> list[tuple[str, str]]:
    return [(event.kind, event.by) for event in await stage.store.events(job_id)]


@run_by(play_one)
async def test_a_job_that_no_worker_started_is_published_again_under_its_token(stage: Stage, /) -> None:
    process = stage.start()
    job_id, player, first = await _hand_out(stage)

    await _return(player)

    again = await _next(player)
    assert (_invitation(again).token, again.attempt) == (_invitation(first).token, 1)
    assert (_invitation(first).crashes, _invitation(again).crashes) == (None, 0)
    assert process.scheduler.status().reports == {"redelivered": 1}
    # The first worker may have run it all the same.
    await player.report(first, "succeeded", worker="first")
    await until(lambda: stage.job(job_id).state is JobState.SUCCEEDED)
    await player.finish(worker="other")
    await until(lambda: process.scheduler.status().reports.get("superseded") == 1)
    assert stage.job(job_id).worker == "first"


@run_by(play_one)
async def test_reports_that_came_before_count_before_a_returned_invitation(stage: Stage, /) -> None:
    process = stage.start()
    job_id, player, envelope = await _hand_out(stage)

    await player.report(envelope, "succeeded")
    await _return(player)

    await until(lambda: process.scheduler.status().reports.get("redelivered") == 1)
    await stage.pass_by(400)
    assert stage.job(job_id).state is JobState.SUCCEEDED
    assert player.deliveries == []
    assert await _events(stage, job_id) == []


@run_by(play_one)
async def test_an_invitation_of_an_earlier_dispatch_is_returned_without_effect(stage: Stage, /) -> None:
    process = stage.start()
    job_id, player, first = await _hand_out(stage)
    await player.report(first, "interrupted")
    await until(lambda: len(player.deliveries) == 2)
    second = player.deliveries.pop()

    await _return(player)

    await until(lambda: process.scheduler.status().reports.get("redelivered") == 1)
    await stage.pass_by(10)
    assert player.deliveries == []
    assert stage.job(job_id).state is JobState.DISPATCHED
    player.deliveries.append(second)
    await player.finish()
    await stage.all_ended()


@run_by(play_one)
async def test_a_run_at_a_live_worker_continues_without_its_message(stage: Stage, /) -> None:
    process = stage.start()
    job_id, player, envelope = await _hand_out(stage)
    _beats(stage, "cut")
    await player.report(envelope, "started", worker="cut")

    await _return(player)

    for _ in range(30):
        _beats(stage, "cut")
        await player.report(envelope, "alive", worker="cut")
        await stage.pass_by(10)
    assert player.deliveries == []
    assert process.scheduler.status().lost == 0
    assert await _events(stage, job_id) == [("detached", "cut")]
    await player.report(envelope, "succeeded", worker="cut")
    await stage.all_ended()
    assert (stage.job(job_id).state, stage.job(job_id).attempt) == (JobState.SUCCEEDED, 1)


@run_by(play_one)
async def test_a_run_whose_worker_died_is_charged_once_and_published_again(stage: Stage, /) -> None:
    process = stage.start()
    job_id, player, envelope = await _hand_out(stage)
    _beats(stage, "killed", "other")
    await player.report(envelope, "started", worker="killed")

    await _return(player)

    for _ in range(3):
        assert player.deliveries == []
        _beats(stage, "other")
        await stage.pass_by(7)
    _beats(stage, "other")
    again = await _next(player)
    assert (_invitation(again).crashes, again.attempt) == (1, 1)
    assert _invitation(again).token == _invitation(envelope).token
    assert await _events(stage, job_id) == [("detached", "killed"), ("interrupted", "killed")]
    assert process.scheduler.status().lost == 1
    await player.finish()
    await stage.all_ended()


@run_by(play_one)
async def test_a_worker_that_ended_in_order_charges_no_job(stage: Stage, /) -> None:
    stage.start()
    job_id, player, envelope = await _hand_out(stage)
    _beats(stage, "ends")
    await player.report(envelope, "started", worker="ends")
    await until(lambda: stage.job(job_id).state is JobState.RUNNING)
    stage.worker_says("offline", name="ends", at=stage.clock.now_ms())

    await _return(player)

    await until(lambda: len(player.deliveries) == 1, within=6)
    again = await _next(player)
    assert _invitation(again).crashes == 0


@run_by(play_one)
async def test_a_later_process_of_the_same_name_is_no_sign_of_life(stage: Stage, /) -> None:
    stage.start()
    _, player, envelope = await _hand_out(stage)
    stage.worker_says("beat", name="web-1", pid=1, started=START)
    await player.report(envelope, "started", worker="web-1", started=stage.clock.now_ms())

    await _return(player)

    for _ in range(4):
        stage.worker_says("beat", name="web-1", pid=2, started=stage.clock.now_ms() + 60_000)
        await stage.pass_by(8)
    assert _invitation(await _next(player)).crashes == 1


@run_by(play_one)
async def test_a_short_run_that_killed_its_worker_counts_with_the_next_crash(stage: Stage, /) -> None:
    stage.start()
    _, player, _ = await _hand_out(stage)
    _beats(stage, "killed", "other")

    # Nobody knows yet whether the first worker had begun.
    await _return(player)
    again = await _next(player)
    assert _invitation(again).crashes == 0
    # From now on each start is reported before the run.
    await player.report(again, "started", worker="other")
    await _return(player)

    again = await _next(player)
    assert _invitation(again).crashes == 2


@run_by(play_one)
async def test_a_flapping_link_charges_no_job(stage: Stage, /) -> None:
    stage.start()
    job_id, player, _ = await _hand_out(stage)
    for _ in range(20):
        _beats(stage, "one", "two")
        await _return(player)
        await _next(player)
        await stage.pass_by(9)

    again = await _next(player)
    assert (_invitation(again).crashes, again.attempt) == (0, 1)
    assert await _events(stage, job_id) == []


@run_by(play_one)
async def test_a_returned_job_whose_end_was_asked_for_ends(stage: Stage, /) -> None:
    stage.start()
    job_id, player, _ = await _hand_out(stage)
    await _ask_for_the_end(stage, job_id)

    await _return(player)

    await stage.all_ended()
    assert stage.job(job_id).state is JobState.CANCELLED


@run_by(play_one)
async def test_a_run_whose_worker_died_and_whose_end_was_asked_for_ends(stage: Stage, /) -> None:
    stage.start()
    job_id, player, envelope = await _hand_out(stage)
    _beats(stage, "killed")
    await player.report(envelope, "started", worker="killed")
    await until(lambda: stage.job(job_id).state is JobState.RUNNING)
    await _ask_for_the_end(stage, job_id)

    await _return(player)

    await stage.all_ended()
    assert stage.job(job_id).state is JobState.CANCELLED


@run_by(play_one)
async def test_the_next_scheduler_publishes_the_returned_jobs_of_a_dead_one(stage: Stage, /) -> None:
    first = stage.start()
    job_id, player, envelope = await _hand_out(stage)
    first.broker.hang_publishes()
    await _return(player)
    await until(lambda: stage.job(job_id).version > 2)
    assert player.deliveries == []

    await first.kill()
    stage.start()

    again = await _next(player)
    assert (_invitation(again).token, _invitation(again).crashes) == (_invitation(envelope).token, 0)
    await player.finish()
    await stage.all_ended()
    await until(lambda: stage.batches() == 0)


@run_by(play_one)
async def test_a_worker_that_died_before_the_next_scheduler_began_is_missed(stage: Stage, /) -> None:
    first = stage.start()
    job_id, player, envelope = await _hand_out(stage)
    _beats(stage, "killed")
    await player.report(envelope, "started", worker="killed")
    await _return(player)
    await until(lambda: stage.job(job_id).version > 2)

    # The last scheduler of a chain: each is killed before it can miss the worker.
    for _ in range(3):
        await stage.pass_by(20)
        await first.kill()
        first = stage.start()
    await until(lambda: stage.holds_all(first))
    await stage.pass_by(20)
    assert player.deliveries == []
    await until(lambda: len(player.deliveries) == 1, within=16)

    again = await _next(player)
    assert (_invitation(again).token, _invitation(again).crashes) == (_invitation(envelope).token, 1)
    await player.finish()
    await stage.all_ended()


@run_by(play_one)
async def test_a_worker_without_events_that_reports_its_run_to_the_next_scheduler_keeps_it(stage: Stage, /) -> None:
    first = stage.start()
    job_id, player, envelope = await _hand_out(stage)
    await player.report(envelope, "detached", worker="quiet")
    player.deliveries.pop().ack()
    await until(lambda: stage.job(job_id).state is JobState.RUNNING)
    await first.kill()
    second = stage.start()
    await until(lambda: stage.holds_all(second))

    await player.report(envelope, "alive", worker="quiet")
    await stage.pass_by(50)

    assert second.scheduler.status().lost == 0
    again = await _next(player)
    assert second.scheduler.status().lost == 1
    assert _invitation(again).crashes == 1
    await player.finish()
    await stage.all_ended()


@run_by(play_one, _define)
async def test_a_job_that_must_not_run_twice_is_published_again_only_if_it_never_began(stage: Stage, /) -> None:
    stage.start()
    job_id, player, _ = await _hand_out(stage, task="once")
    _beats(stage, "killed")
    await _return(player)
    again = await _next(player)
    await player.report(again, "started", worker="killed")

    await _return(player)

    await stage.all_ended()
    job = stage.job(job_id)
    assert (job.state, player.deliveries) == (JobState.FAILED, [])
    assert job.error is not None
    assert "it is unknown whether it ran" in job.error.message


@run_by(play_one)
async def test_a_begun_job_with_a_guarantee_of_its_own_fails_when_its_message_returns(stage: Stage, /) -> None:
    stage.start()
    job_id, player, envelope = await _hand_out(stage, run=RunOptions(once=True))
    _beats(stage, "killed")
    await player.report(envelope, "started", worker="killed")

    await _return(player)

    await stage.all_ended()
    job = stage.job(job_id)
    assert (job.state, player.deliveries) == (JobState.FAILED, [])
    assert job.error is not None
    assert "it runs at most once" in job.error.message


async def _ask_for_the_end(stage: Stage, job_id: str) -> None:
    job = stage.job(job_id)
    request = JobUpdate(
        id=job_id,
        before=job.state,
        version=job.version,
        after=job.state,
        cancel_requested="no need",
        kind="cancel_requested",
    )
    assert await stage.store.update(request) is not None
