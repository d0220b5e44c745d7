"""The list of workers in the store: schedulers write heartbeats and delete workers that stop."""

import pytest

from taskmq.app_api.nodes import HostWorkers, list_hosts
from tests.coroutines import run_by
from tests.unit.scheduler.stage import Process, Stage, play_one, until


async def _hosts(process: Process) -> list[tuple[str, list[str], list[str]]]:
    def name(host: HostWorkers) -> tuple[str, list[str], list[str]]:
        return host.name, [one.name for one in host.workers], [one.name for one in host.silent]

    return [name(host) for host in await list_hosts(process.app)]


@pytest.mark.nightly("tests/unit/scheduler/test_worker_list.py::test_heartbeats_wait_for_the_store")
@run_by(play_one)
async def test_heartbeats_of_all_workers_are_listed_until_they_stop_or_are_silent(stage: Stage, /) -> None:
    process = stage.start()
    await stage.pass_by(1)
    stage.worker_says("online", name="a", host="one")
    stage.worker_says("online", name="b", host="two")
    stage.worker_says("online", name="b" * 300, host="three")
    stage.worker_says("online", name="b", host="four", pid=2**63)
    await stage.pass_by(2)
    assert await _hosts(process) == [("one", ["a"], []), ("two", ["b"], [])]

    stage.worker_says("beat", name="a", host="one")
    stage.worker_says("offline", name="a", host="one")
    await stage.pass_by(40)
    assert await _hosts(process) == [("two", [], ["b"])]

    await stage.pass_by(600)
    assert await _hosts(process) == []


@run_by(play_one)
async def test_heartbeats_wait_for_the_store(stage: Stage, /) -> None:
    process = stage.start()
    await stage.pass_by(1)
    process.store.is_reachable = False
    stage.worker_says("online", name="a", host="one")
    await stage.pass_by(5)

    process.store.is_reachable = True

    async def is_listed() -> bool:
        return await _hosts(process) == [("one", ["a"], [])]

    await until(is_listed)
