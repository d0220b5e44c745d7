"""Several jobs in one message: when a scheduler sends them, and what follows if the message does not arrive."""

from functools import partial

import pytest

from taskmq import TaskMQ
from taskmq.contracts.broker import BrokerOptions, Delivery, Outgoing, Subscription
from taskmq.errors import PublishRejected, SendError, TooLarge, Unroutable
from taskmq.model.envelope import JSON, Envelope, decode_envelope
from taskmq.model.headers import REASON
from taskmq.model.jobs.reports import decode_parcel
from taskmq.model.states import JobState
from taskmq.testing import Published
from taskmq_local import open_memory_broker
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Player, Process, Stage, play_one, until

_SLOTS = 500


def _define(app: TaskMQ) -> None:
    @app.task(name="t", queue="work")
    async def t() -> None: ...


_play = partial(play_one, define=_define)


class _Unpacker:
    """A consumer of parcels."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []

    @property
    def parcels(self) -> list[list[Envelope]]:
        return [[decode_envelope(each) for each in decode_parcel(one.body)] for one in self.deliveries]


async def _unpacker(stage: Stage) -> _Unpacker:
    unpacker = _Unpacker()
    broker = open_memory_broker(f"memory://{stage.name}", BrokerOptions(name="worker", clock=stage.clock))
    await broker.consume([Subscription("work.parcels", 1000)], unpacker.deliveries.append)
    return unpacker


async def _teach(stage: Stage, *, parcels: bool = True) -> tuple[Process, Player]:
    """Return a scheduler that knows the task to be short, and a worker of the queue."""
    process = stage.start()
    await until(lambda: stage.holds_all(process))
    _beat(stage, parcels=parcels)
    await stage.submit(100)
    player = await stage.player()
    await player.has(100)
    await player.finish()
    await stage.all_ended()
    return process, player


def _beat(stage: Stage, *, parcels: bool = True, name: str = "player") -> None:
    stage.worker_says(name=name, slots=_SLOTS, parcels=parcels)


async def _end(stage: Stage, player: Player, unpacker: _Unpacker) -> None:
    for parcel, delivery in zip(unpacker.parcels, unpacker.deliveries, strict=True):
        for envelope in parcel:
            await player.report(envelope)
        delivery.ack()
    await player.finish()
    await stage.all_ended()


@run_by(_play)
async def test_many_jobs_of_a_short_task_travel_in_parcels(stage: Stage, /) -> None:
    process, player = await _teach(stage)
    unpacker = await _unpacker(stage)

    ids = await stage.submit(80, announced=True)
    await until(lambda: len(unpacker.deliveries) == 4)

    assert [len(parcel) for parcel in unpacker.parcels] == [20] * 4
    assert sorted(job.id for parcel in unpacker.parcels for job in parcel) == ids
    first = unpacker.parcels[0][0]
    assert first.store is not None
    assert (first.store.token, first.store.reports) == (
        stage.job(first.id).token,
        f"taskmq.reports.shop.{_of(stage)}",
    )
    sent = [each.message for each in process.broker.journal if isinstance(each, Published)]
    (one, *_) = (each for each in sent if each.queue == "work.parcels")
    assert (one.task, one.content_type, one.job_id.count("/")) == ("t", JSON, 1)
    assert player.deliveries == []
    await _end(stage, player, unpacker)
    assert process.scheduler.status().reports == {"accepted": 180}


def _of(stage: Stage) -> int:
    (partition,) = {each[0] for each in stage.database.ask("SELECT partition FROM dispatch_batch")}
    return int(partition)


@run_by(_play)
async def test_a_job_that_is_dispatched_alone_travels_alone(stage: Stage, /) -> None:
    _, player = await _teach(stage)

    await stage.submit(1, announced=True)

    await player.has(1)
    assert not any(each.ready for each in await stage.broker.stats(["work.parcels"]))
    await player.finish()


@pytest.mark.parametrize("others", [(False,), (True, False)], ids=str)
@run_by(_play)
async def test_a_worker_that_does_not_unpack_parcels_keeps_its_queue_free_of_them(
    stage: Stage, /, others: tuple[bool, ...]
) -> None:
    _, player = await _teach(stage, parcels=others[0])
    for number, parcels in enumerate(others[1:]):
        _beat(stage, parcels=parcels, name=f"other {number}")

    await stage.submit(80, announced=True)

    await player.has(80)
    assert not any(each.ready for each in await stage.broker.stats(["work.parcels"]))
    await player.finish()
    await stage.all_ended()


@pytest.mark.parametrize(
    "error", [Unroutable("work.parcels"), PublishRejected("full"), TooLarge(2, 1, "a parcel")], ids=str
)
@run_by(_play)
async def test_the_jobs_of_a_refused_parcel_are_published_singly_at_once(stage: Stage, /, error: SendError) -> None:
    process, player = await _teach(stage)
    process.broker.fail_publishes(4, error)

    ids = await stage.submit(80, announced=True)

    await player.has(80, within=1.0)
    assert sorted(each.id for each in player.envelopes) == ids
    assert {stage.job(each).token >> 32 for each in ids} == {1}
    assert process.scheduler.status().paused == {}
    await player.finish()
    await stage.all_ended()


@run_by(_play)
async def test_the_jobs_of_a_parcel_that_the_broker_dropped_are_dispatched_again(stage: Stage, /) -> None:
    _, player = await _teach(stage)
    unpacker = await _unpacker(stage)
    ids = await stage.submit(80, announced=True)
    await until(lambda: len(unpacker.deliveries) == 4)
    first = unpacker.parcels[0][0]
    assert first.store is not None

    for delivery in unpacker.deliveries:
        # As the broker sends it, however often its workers died.
        await stage.broker.publish(_letter(delivery, first.store.reports), timeout=5)
        delivery.ack()

    await player.has(80)
    assert sorted(each.id for each in player.envelopes) == ids
    assert {(stage.job(each).token >> 32, stage.job(each).attempt) for each in ids} == {(2, 1)}
    await player.finish()
    await stage.all_ended()
    assert await stage.parked_messages() == []


def _letter(delivery: Delivery, reports: str) -> Outgoing:
    return Outgoing(
        queue=reports,
        body=delivery.body,
        content_type=JSON,
        job_id="1/1",
        task="t",
        headers={REASON: "delivery_limit"},
    )


@run_by(_play)
async def test_a_returned_job_of_a_parcel_is_ready_again_and_its_task_travels_alone(stage: Stage, /) -> None:
    _, player = await _teach(stage)
    unpacker = await _unpacker(stage)
    await stage.submit(80, announced=True)
    await until(lambda: len(unpacker.deliveries) == 4)
    returned = unpacker.parcels[0][0]

    await player.report(returned, "interrupted", started=None, ran=0)

    await player.has(1)
    again = player.envelopes[0]
    assert again.store is not None
    assert (again.id, again.attempt, again.store.token >> 32, again.store.crashes) == (returned.id, 1, 2, None)
    await stage.submit(80, announced=True)
    await player.has(81)
    unpacker.deliveries[0].requeue()
    await _end(stage, player, unpacker)


@run_by(_play)
async def test_a_parcel_that_came_back_is_decided_job_by_job(stage: Stage, /) -> None:
    process, player = await _teach(stage)
    unpacker = await _unpacker(stage)
    await stage.submit(80, announced=True)
    await until(lambda: len(unpacker.deliveries) == 4)
    ended, started, waiting, *_ = unpacker.parcels[0]
    stage.worker_says(name="first", parcels=True)
    await player.report(ended, worker="first")
    await player.report(started, "started", worker="first")

    for job in (ended, started, waiting):
        await player.report(job, "interrupted", redelivered=True, started=None, worker="second")

    await player.has(1)
    (again,) = player.envelopes
    assert again.store is not None
    assert (again.id, again.store.token >> 32, again.store.crashes) == (waiting.id, 1, 0)
    assert stage.job(started.id).state is JobState.RUNNING
    assert process.scheduler.status().reports["redelivered"] == 3
    await _end(stage, player, unpacker)


@pytest.mark.nightly(
    "tests/unit/scheduler/test_in_flight.py::test_a_job_that_waits_in_its_queue_or_with_a_worker_is_never_lost"
)
@run_by(_play)
async def test_jobs_in_parcels_are_not_lost_while_their_queue_has_messages(stage: Stage, /) -> None:
    _, player = await _teach(stage)
    await stage.submit(80, announced=True)
    await stage.pass_by(400)

    assert player.deliveries == []

    unpacker = await _unpacker(stage)
    await until(lambda: len(unpacker.deliveries) == 4)
    await _end(stage, player, unpacker)
