"""The audit is sealed each second, by one scheduler at a time."""

from pathlib import Path

import pytest

from taskmq.contracts.identity import Actor
from taskmq.durable.service import ServiceGroup
from taskmq.model.identity import ChainLink, broken_link
from taskmq.scheduler.duties import AuditSeal
from taskmq.testing import FakeClock
from taskmq_sql.sqlite.store import SqliteJobStore
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Stage, play_one
from tests.unit.store_kit import StagedStore


async def _add(stage: Stage, count: int = 1) -> None:
    await stage.store.identity.audit.add([Actor(user="ann").entry("queue.purge")] * count)


def _sealed_number(stage: Stage) -> int:
    return int(stage.database.ask("SELECT count(*) FROM audit_seal")[0][0])


@run_by(play_one)
async def test_a_scheduler_seals_new_entries_each_second(stage: Stage, /) -> None:
    stage.start()
    await stage.pass_by(1)

    for turn in range(1, 40):
        await _add(stage)
        await stage.pass_by(1.01)
        assert _sealed_number(stage) == turn

    assert broken_link(ChainLink(), await stage.store.identity.audit.chain()) == ""


@run_by(play_one)
async def test_a_backlog_of_entries_is_sealed_without_a_pause(stage: Stage, /) -> None:
    await _add(stage, 1200)
    stage.start()

    await stage.pass_by(0.5)

    assert _sealed_number(stage) == 1200


@run_by(play_one)
async def test_the_next_scheduler_seals_after_the_first_died(stage: Stage, /) -> None:
    first, _ = stage.start(), stage.start()
    await stage.pass_by(1)
    await _add(stage)
    await stage.pass_by(1.01)
    assert _sealed_number(stage) == 1

    await first.kill()
    await _add(stage)
    await stage.pass_by(32)

    assert _sealed_number(stage) == 2


@run_by(play_one)
async def test_an_unavailable_store_is_tried_again(stage: Stage, /) -> None:
    await _add(stage)
    store = StagedStore(stage.database, clock=stage.store.clock)
    store.is_reachable = False
    async with ServiceGroup() as group:
        await group.start(AuditSeal(store, me="a"), "seals")
        await stage.pass_by(3)
        assert _sealed_number(stage) == 0
        store.is_reachable = True
        await stage.pass_by(1.01)
        assert _sealed_number(stage) == 1


class _SetClock(FakeClock):
    """A clock that a test sets."""

    ahead = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead


@pytest.mark.real_time
async def test_entries_are_sealed_even_if_the_store_clock_was_ahead_for_a_while(tmp_path: Path) -> None:
    clock = _SetClock()
    store = SqliteJobStore("sqlite:///jobs.db", tmp_path / "jobs.db", clock=clock)
    audit = store.identity.audit
    entry = Actor(user="ann").entry("queue.purge")
    for clock.ahead in (0, 3_600_000, 0):
        await audit.add([entry])
        await audit.seal()

    clock.advance("2h")
    await audit.add([entry])
    await audit.seal()

    assert await audit.count_unsealed() == 0
    assert broken_link(ChainLink(), await audit.chain()) == ""
    await store.aclose()
