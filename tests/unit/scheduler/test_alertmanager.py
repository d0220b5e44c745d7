"""Continuing alerts are repeated to an Alertmanager, which ends any that are not."""

import asyncio
from datetime import datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from taskmq import TaskMQ
from taskmq.model.history.alerts import Alert, AlertRule, AlertState, Silence
from taskmq.model.history.rollups import Rollup, RollupKey, minute_of
from taskmq.scheduler.alerts import AlertSettings, AlertWatch
from taskmq.scheduler.alerts.repetition import AlertRepetition
from taskmq.scheduler.signals import LiveWorkers
from taskmq.testing import FakeClock
from tests.coroutines import run_by
from tests.unit.scheduler.notice_run import send_next
from tests.unit.scheduler.site import Site, with_site
from tests.unit.store_kit import StagedStore

_START = 1_700_000_000_000
_PRIVATE = AlertSettings(allows_private=True)


class _World:
    """A scheduler's evaluation of one rule without `repeat`, and the alerts received by the Alertmanager."""

    def __init__(self, site: Site, **fields: Any) -> None:
        self.clock = FakeClock(_START)
        self.store = StagedStore(clock=self.clock)
        self.alerts = self.store.history.alerts
        self.rule = AlertRule(
            name="fails", metric="failures", threshold=3, repeat=0, channels=(f"alertmanager+{site.url}",), **fields
        )
        self.watch = AlertWatch(
            TaskMQ("memory://alertmanager"), self.store, self.alerts, LiveWorkers(), _PRIVATE, me="a"
        )
        self._site = site

    async def fail(self) -> None:
        key = RollupKey(minute_of(self.clock.now_ms()), "t", "work", "")
        await self.store.history.rollups.add([Rollup(key, {"dead": 5})])

    async def look(self, times: int = 1) -> None:
        """Evaluate and send due notices every ten seconds."""
        for _ in range(times):
            await self.watch.evaluate_all()
            while await send_next(self.alerts, _PRIVATE):
                pass
            self.clock.advance("10s")

    def received_alerts(self) -> list[tuple[float, float]]:
        """Return begin and end of each received alert, in seconds from the start."""
        bodies = [msgspec.json.decode(body) for _, _, body in self._site.requests]
        self._site.requests.clear()
        return [(_seconds(alert["startsAt"]), _seconds(alert["endsAt"])) for body in bodies for alert in body]


def _seconds(instant: str) -> float:
    return datetime.fromisoformat(instant).timestamp() - _START / 1000


@run_by(with_site)
async def test_a_continuing_alert_is_repeated_each_minute_until_it_ends(site: Site, /) -> None:
    world = _World(site)
    await world.alerts.put_rule(world.rule)
    await world.fail()
    await world.look(20)

    # Includes the notice of its beginning; each lasts beyond the next.
    assert world.received_alerts() == [(0, 300), (0, 300), (0, 360), (0, 420), (0, 480)]

    await world.look(20)
    *before, end = world.received_alerts()
    assert end[1] < min(until for _, until in before)
    await world.look(20)
    assert world.received_alerts() == []


@run_by(with_site)
async def test_a_silence_does_not_stop_repetitions_to_an_alertmanager(site: Site, /) -> None:
    world = _World(site)
    await world.alerts.put_rule(world.rule)
    await world.fail()
    await world.look()
    world.received_alerts()
    await world.alerts.add_silence(Silence(id="1", begins=_START, ends=_START + 3_600_000))

    await world.look(12)

    assert len(world.received_alerts()) == 2


@pytest.mark.parametrize("fields", [{"channels": ("mailto:a@b.c",)}, {"is_enabled": False}])
@run_by(with_site)
async def test_other_channels_and_disabled_rules_are_not_repeated(site: Site, /, fields: dict[str, Any]) -> None:
    world = _World(site)
    await world.alerts.put_rule(world.rule)
    await world.fail()
    await world.look()
    world.received_alerts()
    await world.alerts.put_rule(replace(world.rule, **fields))

    await world.look(8)

    # The end of the disabled rule's alert is a notice.
    assert all(until <= 80 for _, until in world.received_alerts())


def test_an_unavailable_alertmanager_delays_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def test(site: Site) -> None:
        world = _World(site)
        await world.alerts.put_rule(world.rule)
        await world.fail()

        await world.look(8)

        assert world.watch.evaluated == _START + 70_000

    with_site(test, *[b"503 Away"] * 99)

    assert "repeating alerts over" in caplog.text


@pytest.mark.real_time
async def test_a_tenant_with_many_hanging_alertmanagers_uses_two_connections() -> None:
    hanging = most = 0
    both_hang, is_over = asyncio.Event(), asyncio.Event()

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hanging, most
        hanging += 1
        most = max(most, hanging)
        if hanging == 2:
            both_hang.set()
        await is_over.wait()
        hanging -= 1
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        url = f"alertmanager+http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        channels = tuple(f"{url}/{number}" for number in range(8))
        rule = AlertRule(name="fails", metric="failures", threshold=3, tenant="acme", channels=channels)
        alert = Alert(
            tenant="acme", rule="fails", subject="", state=AlertState.FIRING, since=1, value=5, changed=1, told=1
        )
        repeated = asyncio.create_task(AlertRepetition(_PRIVATE).repeat([rule], [alert], now=_START))
        await both_hang.wait()
        is_over.set()
        await repeated

    assert most == 2
