"""An alarm of RabbitMQ as idle schedulers see it: an alert begins and ends with it."""

from pathlib import Path

import pytest

from taskmq import TaskMQ
from taskmq.contracts.history import history_of
from taskmq.model.history.alerts import AlertRule
from taskmq.scheduler.alerts import AlertSettings, AlertWatch
from taskmq.scheduler.signals import LiveWorkers
from taskmq.testing.runner import eventually
from tests.servers import RabbitMQ

pytestmark = [pytest.mark.rabbitmq, pytest.mark.timeout(150)]

_RULE = AlertRule(name="rabbitmq", metric="broker_alarm", threshold=0, severity="critical")


@pytest.mark.real_time
async def test_an_alert_begins_and_ends_with_an_alarm_of_the_broker(
    rabbitmq_server: RabbitMQ, amqp_url: str, tmp_path: Path
) -> None:
    async with TaskMQ(amqp_url, store=f"sqlite:///{tmp_path}/jobs.db") as app:
        store = app.sessions.store()
        alerts = history_of(store).alerts
        await alerts.put_rule(_RULE)
        watch = AlertWatch(app, store, alerts, LiveWorkers(), AlertSettings(), me="a")

        async def states() -> list[str]:
            await watch.evaluate_all()
            return [str(alert.state) for alert in await alerts.alerts()]

        assert [await states() for _ in range(3)] == [[], [], []]
        with rabbitmq_server.alarm("memory"):
            await eventually(states, ["firing"], within=40)
        await eventually(states, ["resolved"], within=40)


@pytest.mark.real_time
async def test_a_broker_without_alarms_decides_nothing(tmp_path: Path) -> None:
    async with TaskMQ("memory://", store=f"sqlite:///{tmp_path}/jobs.db") as app:
        store = app.sessions.store()
        alerts = history_of(store).alerts
        await alerts.put_rule(AlertRule(name="no-alarm", metric="broker_alarm", threshold=1, below=True))
        await AlertWatch(app, store, alerts, LiveWorkers(), AlertSettings(), me="a").evaluate_all()

        assert await alerts.alerts() == []
