"""Lanes named when jobs become ready: their holder need not poll for them."""

from collections.abc import Sequence

import pytest

from taskmq.contracts.jobs import Lane, LaneHead, decode_lanes, encode_lanes, partition_of, ready_topic
from taskmq.model.jobs.pools import QueuePolicy, Sharing
from taskmq.model.topology import reports_queue
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Stage, play, play_one, until
from tests.unit.store_kit import StagedStore

# So long that no test waits for a poll started afterwards: it takes a tenth of the time.
_LOOK = 1.0


class _SlowLooks:
    """A store whose polls of a partition's lanes take a second and answer with the data of their start."""

    def __init__(self, store: StagedStore, stage: Stage) -> None:
        self._lanes = store.dispatching.lanes
        self._stage = stage
        self.begun = self.ended = 0
        vars(store.dispatching)["lanes"] = self.lanes

    async def lanes(self, partition: int) -> list[Lane]:
        found = await self._lanes(partition)
        if partition == partition_of("work"):
            self.begun += 1
            await self._stage.pass_by(_LOOK)
            self.ended += 1
        return found


def _announce(stage: Stage, *lanes: Lane) -> None:
    stage.broker.announce(ready_topic(partition_of("work")), encode_lanes(lanes))


@run_by(play)
async def test_jobs_of_a_named_lane_start_without_polling(stage: Stage, /) -> None:
    looks = _SlowLooks(stage.start().store, stage)
    player = await stage.player_of_declared()
    await until(lambda: looks.ended >= 2)
    begun = looks.begun

    await stage.submit(tenant="acme", priority=7)
    _announce(stage, Lane("work", 7, "acme"))

    await player.has(1, within=0.1)
    assert looks.begun == begun


@run_by(play)
async def test_a_lane_named_during_a_full_poll_is_not_forgotten(stage: Stage, /) -> None:
    looks = _SlowLooks(stage.start().store, stage)
    player = await stage.player_of_declared()
    await until(lambda: looks.begun > looks.ended >= 2)

    await stage.submit()
    _announce(stage, Lane("work", 4, ""))

    # The poll is still running, with an older answer.
    await player.has(1, within=1.1 * _LOOK)


@run_by(play)
async def test_a_lane_of_another_partition_is_left_to_its_holder(stage: Stage, /) -> None:
    stage.start()
    other = next(name for name in map(str, range(99)) if partition_of(name) != partition_of("work"))
    player = await stage.player_of_declared(other)
    await stage.submit(queue=other)
    await player.has(1)
    await stage.submit(queue=other)

    _announce(stage, Lane(other, 4, ""))

    await player.has(2)
    reports = {envelope.store.reports for envelope in player.envelopes if envelope.store is not None}
    assert reports == {reports_queue("shop", partition_of(other))}


@run_by(play_one)
async def test_jobs_behind_expired_ones_start_without_polling(stage: Stage, /) -> None:
    stage.start()
    player = await stage.player_of_declared()
    # All that the queue takes, but four.
    await stage.submit(60)
    await player.has(60)

    await stage.submit(3, expires=stage.clock.now_ms())
    await stage.submit(4)
    stage.broker.announce(ready_topic(0), b"")

    began = stage.clock.monotonic()
    await until(lambda: len(player.deliveries) == 64)

    assert stage.clock.since(began) < 0.1


@run_by(play_one)
async def test_a_full_queue_that_orders_by_age_is_read_twice_a_second(stage: Stage, /) -> None:
    await stage.store.share(Sharing(version=1, queues={"work": QueuePolicy(policy="fifo")}))
    dispatching, read = stage.start().store.dispatching, list[Sequence[str]]()
    heads = dispatching.heads

    async def count_reads(queues: Sequence[str]) -> dict[Lane, LaneHead]:
        read.append(queues)
        return await heads(queues)

    vars(dispatching)["heads"] = count_reads
    player = await stage.player_of_declared()
    await stage.submit(100)
    await player.has(64)
    await stage.pass_by(1)

    before = len(read)
    await stage.pass_by(10)

    assert 0 < len(read) - before <= 21


@pytest.mark.parametrize("body", [b"", b"[", b"{}", b'[["work"]]', b'[["work","4",""]]', b"\xff", b"[" * 100_000])
def test_an_announcement_without_lanes_polls_all_of_them(body: bytes) -> None:
    assert decode_lanes(body) == []


def test_up_to_fifty_lanes_are_named_individually() -> None:
    lanes = [Lane(f"queue {number}", number % 10, "tenant \u00e9") for number in range(51)]

    assert decode_lanes(encode_lanes(lanes[:50])) == lanes[:50]
    assert encode_lanes(lanes) == b""
