"""The heartbeat of alerts; its silence means that rules are no longer evaluated."""

import asyncio

import pytest

from taskmq import TaskMQ
from taskmq.scheduler.alerts import AlertSettings, AlertWatch
from taskmq.scheduler.signals import LiveWorkers
from taskmq.testing import FakeClock
from tests.coroutines import run_by
from tests.unit.scheduler.site import Site, with_site
from tests.unit.scheduler.stage import until
from tests.unit.store_kit import StagedStore


def _watch(store: StagedStore, site: Site) -> AlertWatch:
    settings = AlertSettings(heartbeat=f"{site.url}/beat")
    return AlertWatch(TaskMQ("memory://"), store, store.history.alerts, LiveWorkers(), settings, me="s")


def test_each_poll_of_the_rules_is_followed_by_a_heartbeat() -> None:
    async def test(site: Site) -> None:
        watch = _watch(StagedStore(clock=FakeClock(10_000)), site)
        running = asyncio.create_task(watch.run())
        await until(lambda: bool(site.requests))
        watch.stop()
        await running

    ((line, _, body),) = with_site(test).requests
    assert (line, body) == ("POST /beat HTTP/1.1", b"{}")


def test_no_heartbeat_is_sent_while_rules_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    async def test(site: Site) -> None:
        store = StagedStore(clock=FakeClock(10_000))
        store.is_reachable = False
        watch = _watch(store, site)
        running = asyncio.create_task(watch.run())
        await until(lambda: "not evaluated" in caplog.text)
        watch.stop()
        await running

    assert with_site(test).requests == []


@run_by(with_site, b"503 Unavailable")
async def test_a_failed_heartbeat_does_not_end_polling(site: Site, /, caplog: pytest.LogCaptureFixture) -> None:
    watch = _watch(StagedStore(clock=FakeClock(10_000)), site)
    running = asyncio.create_task(watch.run())
    await until(lambda: "sending the alert heartbeat failed" in caplog.text)
    watch.stop()
    await running
    assert watch.evaluated is not None
