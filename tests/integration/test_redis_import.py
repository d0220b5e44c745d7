"""`taskmq store import` from a Redis with data of beats and workers."""

from functools import partial

import pytest

from taskmq.operations.store_import import import_state
from taskmq_local import forget_memory
from taskmq_redis import open_state
from tests.servers import Redis
from tests.unit.operations.test_store_import import Killed, World


def _in_redis(url: str) -> World:
    return World(partial(open_state, url))


@pytest.mark.real_time
async def test_schedules_and_delayed_jobs_of_redis_move_to_the_store(redis_url: str, redis_server: Redis) -> None:
    world = _in_redis(redis_url)
    await world.fill()
    app, _ = world.app()

    planned = await import_state(app, dry_run=True)
    assert (await world.state.delays.count(), world.database.jobs) == (3, {})
    moved = await import_state(app, dry_run=False)

    assert sorted(each.name for each in planned) == sorted(each.name for each in moved)
    assert [each.name for each in moved if each.outcome != "moves"] == ["new"]
    await world.check()
    # The rest is no definition and no message: records of schedules, which expire.
    left = _keys(redis_server)
    assert left
    assert not [key for key in left if "messages" in key or "definitions" in key]
    again = await import_state(app, dry_run=False)
    assert {each.outcome for each in again if each.what == "schedule"} == {"exists", "stays"}
    await world.state.aclose()
    forget_memory(world.name)


@pytest.mark.real_time
async def test_an_import_from_redis_killed_at_any_step_moves_everything_once(
    redis_url: str, redis_server: Redis
) -> None:
    at, is_killed = 0, True
    while is_killed:
        redis_server.flush()
        world = _in_redis(redis_url)
        await world.fill()
        app, _ = world.app(at)
        try:
            await import_state(app, dry_run=False)
            is_killed = False
        except Killed:
            # The lease of its claimed messages is over.
            for key in [key for key in _keys(redis_server) if key.endswith(":taken")]:
                redis_server.command("ZUNIONSTORE", key, "1", key, "WEIGHTS", "0")
        await import_state(world.app()[0], dry_run=False)
        await world.check()
        await world.state.aclose()
        forget_memory(world.name)
        at += 1
    assert at > 10


def _keys(server: Redis) -> list[str]:
    found = server.command("KEYS", "*")
    assert isinstance(found, list)
    return [str(key) for key in found]
