"""The audit is sealed each second, by one scheduler at a time."""

from taskmq.contracts.identity import Actor
from taskmq.durable.service import ServiceGroup
from taskmq.model.identity import ChainLink, broken_link
from taskmq.scheduler.duties import AuditSeal
from taskmq.testing.job_store import MemoryJobStore
from tests.unit.scheduler.stage import Stage, play


async def _add(stage: Stage, count: int = 1) -> None:
    await stage.store.identity.audit.add([Actor(user="ann").entry("queue.purge")] * count)


def _sealed(stage: Stage) -> int:
    return sum(record.position is not None for record in stage.model.identity.audit)


def test_a_scheduler_seals_what_is_new_each_second() -> None:
    async def test(stage: Stage) -> None:
        stage.start()
        await stage.pass_by(1)

        for turn in range(1, 40):
            await _add(stage)
            await stage.pass_by(1.01)
            assert _sealed(stage) == turn

        assert broken_link(ChainLink(), await stage.store.identity.audit.chain()) == ""

    play(test)


def test_a_heap_of_entries_is_sealed_without_a_pause() -> None:
    async def test(stage: Stage) -> None:
        await _add(stage, 1200)
        stage.start()

        await stage.pass_by(0.5)

        assert _sealed(stage) == 1200

    play(test)


def test_the_next_scheduler_seals_when_one_has_died() -> None:
    async def test(stage: Stage) -> None:
        first, _ = stage.start(), stage.start()
        await stage.pass_by(1)
        await _add(stage)
        await stage.pass_by(1.01)
        assert _sealed(stage) == 1

        await first.kill()
        await _add(stage)
        await stage.pass_by(32)

        assert _sealed(stage) == 2

    play(test)


def test_a_store_that_is_away_is_asked_again() -> None:
    async def test(stage: Stage) -> None:
        await _add(stage)
        store = MemoryJobStore(stage.model, clock=stage.store.clock)
        store.is_reachable = False
        async with ServiceGroup() as group:
            await group.start(AuditSeal(store, me="a"), "seals")
            await stage.pass_by(3)
            assert _sealed(stage) == 0
            store.is_reachable = True
            await stage.pass_by(1.01)
            assert _sealed(stage) == 1

    play(test)
