"""Receivers of one tenant that never answer do not delay the alerts of another one."""

import asyncio
from pathlib import Path

import pytest

from taskmq.contracts.broker import BrokerOptions
from taskmq.contracts.history import AlertNotice, history_of
from taskmq.model.history.alerts import Alert, AlertChange, AlertRule, AlertState
from taskmq.scheduler.alerts import AlertSettings, NoticeSender
from taskmq_sql import open_job_store

_HOSTS = [f"127.0.0.{number}" for number in range(1, 21)]


@pytest.fixture(
    params=[pytest.param("sqlite", marks=pytest.mark.nightly("tests/integration/test_alert_turns.py")), "postgres"]
)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    url: str = request.getfixturevalue("job_store_url")
    return url


def _notice(notice_id: str, tenant: str, channel: str) -> AlertNotice:
    rule = AlertRule(name="fails", metric="failures", threshold=1, tenant=tenant, severity="critical")
    alert = Alert(tenant=tenant, rule="fails", subject="", state=AlertState.FIRING, since=1, value=2, changed=1)
    change = AlertChange(kind="firing", alert=alert)
    return AlertNotice(id=notice_id, channel=channel, rule=rule, changes=[change], at=1, next=1)


@pytest.mark.real_time
async def test_200_notices_to_receivers_that_never_answer_delay_no_other_tenant(store_url: str) -> None:
    hanging = most = 0
    both_hang, is_told, is_over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hanging, most
        hanging += 1
        most = max(most, hanging)
        if hanging == 2:
            both_hang.set()
        await is_over.wait()
        writer.close()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        is_told.set()
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    pit = await asyncio.start_server(hang, _HOSTS[0], 0)
    port = pit.sockets[0].getsockname()[1]
    pits = [pit, *[await asyncio.start_server(hang, host, port) for host in _HOSTS[1:]]]
    site = await asyncio.start_server(answer, "127.0.0.1", 0)
    store = open_job_store(store_url, BrokerOptions(name="test"))
    alerts = history_of(store).alerts
    sender = NoticeSender(alerts, AlertSettings(allows_private=True))
    sending = asyncio.create_task(sender.run())
    try:
        async with asyncio.timeout(60):
            flood = [
                _notice(f"a{number:03}", "acme", f"http://{_HOSTS[number % 20]}:{port}/{number}")
                for number in range(200)
            ]
            await alerts.commit([], flood)
            await both_hang.wait()
            await alerts.commit([], [_notice("z", "beta", f"http://127.0.0.1:{site.sockets[0].getsockname()[1]}/")])
            await is_told.wait()
        assert most == 2
    finally:
        sender.stop()
        sending.cancel()
        await asyncio.wait([sending])
        is_over.set()
        for server in [*pits, site]:
            server.close()
        await store.aclose()
