"""Streams of events with a lost and restored broker."""

import asyncio
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from taskmq import TaskMQ
from taskmq.events.stream import as_broadcasting
from taskmq.model.telemetry.events import JobEvent, encode_batch, job_topic
from taskmq.server.live.hub import EventHub, HubEvent
from tests.servers import RabbitMQ, TcpProxy

pytestmark = pytest.mark.rabbitmq


def test_a_stream_reports_a_lost_broker_and_resumes_when_it_returns(rabbitmq_server: RabbitMQ, amqp_url: str) -> None:
    job = f"job-{uuid4().hex}"

    async def main(proxy: TcpProxy) -> None:
        through = urlsplit(amqp_url)._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}").geturl()
        async with TaskMQ(through) as app, TaskMQ(amqp_url) as other, asyncio.timeout(40):
            hub = EventHub(app)
            async with hub.subscribe("ann", lambda _: True) as (inbox, _):

                async def hub_events() -> list[HubEvent]:
                    found: list[HubEvent] = []
                    while not found:
                        found = await inbox.take(10)
                    return found

                await hub.wait_until_ready()
                proxy.refuse(True)
                proxy.cut()
                lost = await hub_events()
                proxy.refuse(False)
                back = await hub_events()
                event = JobEvent(number=1, at=1, event="dead", job_id=job, task="t", queue="q")
                broker = as_broadcasting(other.sessions.current().broker)
                broker.announce(job_topic("dead", "q"), encode_batch("w1", [event], dropped=0))
                heard = await hub_events()
            await hub.aclose()
        assert [(one.event, one.is_connected) for one in (*lost, *back)] == [(None, False), (None, True)]
        assert [one.event.job_id for one in heard if isinstance(one.event, JobEvent)] == [job]

    with TcpProxy(rabbitmq_server.port) as proxy:
        asyncio.run(main(proxy))
