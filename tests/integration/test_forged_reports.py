"""Reports forged by a client that may publish at the broker and cannot read there."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from taskmq import Job, TaskMQ
from taskmq.model import headers as header
from taskmq.model.envelope import Envelope, Invitation, encode_envelope
from taskmq.model.states import JobState
from taskmq.model.topology import reports_queue
from taskmq.scheduler import Scheduler
from taskmq.worker import Worker, WorkerConfig
from tests.integration.raw_rabbitmq import Raw
from tests.servers.waiting import until

pytestmark = [pytest.mark.rabbitmq, pytest.mark.real_time]

_TOKENS: Final = (1, 2**32 + 12_345, 2**53 - 1)
_FORGED: Final = b64encode(b'"FORGED"').decode()


@dataclass
class _Shop:
    """An app with waiting, running and ended jobs on a broker and a store, and a record of its tasks."""

    app: TaskMQ
    scheduler: Scheduler
    amqp_url: str
    charged: list[int] = field(default_factory=list[int])
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)

    def count_refused(self) -> int:
        reports = self.scheduler.status().reports
        return reports.get("invented", 0) + reports.get("superseded", 0)

    async def forge(self, *jobs: Job[Any]) -> int:
        """Publish every end of these jobs with invented tokens; return their number."""
        partitions = range(self.app.sessions.store().dispatching.partitions)
        ids = [job.id for job in jobs]

        def publish() -> int:
            count = 0
            with Raw(self.amqp_url) as raw:
                for job_id in ids:
                    for token in _TOKENS:
                        queue = reports_queue("shop", count % len(partitions))
                        for kind in ("succeeded", "failed", "cancelled", "expired", "retry", "started"):
                            report = {"id": job_id, "token": token, "kind": kind, "worker": "evil"}
                            if kind == "succeeded":
                                report |= {"content_type": "application/json", "result": _FORGED}
                            if kind == "failed":
                                report |= {"proof": "AAAA" + "A" * 22}
                            body = json.dumps([report]).encode()
                            raw.publish("", queue, body, content_type="application/json", type="taskmq.reports")
                            count += 1
                        invitation = Invitation(id=job_id, token=token, reports=queue)
                        letter = encode_envelope(Envelope(id=job_id, task="billing.charge", store=invitation))
                        death = {"queue": "billing.jobs", "reason": "delivery_limit", "count": 1, "exchange": ""}
                        headers = {"x-death": [death], header.REASON: "delivery_limit"}
                        raw.publish("", queue, letter, headers=headers, content_type="application/json")
                        count += 1
            return count

        return await asyncio.to_thread(publish)


@asynccontextmanager
async def _open(amqp_url: str, store_url: str) -> AsyncIterator[_Shop]:
    app, of_scheduler = (TaskMQ(amqp_url, name="shop", store=store_url) for _ in range(2))
    scheduler = Scheduler(of_scheduler)
    shop = _Shop(app, scheduler, amqp_url)

    @app.task(name="billing.charge", queue="billing")
    async def charge(amount: int) -> int:
        shop.charged.append(amount)
        return amount

    @app.task(name="billing.slow", queue="billing")
    async def slow() -> str:
        await shop.goes_on.wait()
        return "genuine"

    async with app:
        worker = Worker(app, WorkerConfig(name="honest"))
        running = [asyncio.create_task(scheduler.run()), asyncio.create_task(worker.run())]
        try:
            yield shop
        finally:
            shop.goes_on.set()
            worker.drain()
            scheduler.stop()
            await asyncio.gather(*running)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            "sqlite",
            marks=pytest.mark.nightly("tests/integration/test_forged_reports.py"),
        ),
        "postgresql",
    ],
)
async def test_forged_reports_end_no_job_and_start_no_waiting_one(
    amqp_url: str, job_store_url: str, tmp_path: Path, kind: str
) -> None:
    store_url = job_store_url if kind == "postgresql" else f"sqlite:///{tmp_path}/jobs.db"
    async with _open(amqp_url, store_url) as shop:
        jobs, store = shop.app.jobs, shop.app.sessions.store()
        held = await jobs.asubmit("billing.charge", 9, held=True)
        dependent = await jobs.asubmit("billing.charge", 10, depends_on=[held])
        running = await jobs.asubmit("billing.slow")
        ids = [job.id for job in (held, dependent, running)]

        async def runs() -> bool:
            record = await store.get(running.id)
            return record is not None and record.state is JobState.RUNNING

        await until(runs, "the slow job runs")
        before = [await store.get(job_id) for job_id in ids]

        count = await shop.forge(held, dependent, running)

        await until(lambda: shop.count_refused() >= count, "all that was forged is refused")
        assert [await store.get(job_id) for job_id in ids] == before
        assert shop.charged == []
        shop.goes_on.set()
        assert await running.aresult(30) == "genuine"
        await jobs.arelease(held.id)
        assert await held.aresult(30) == 9
        assert await dependent.aresult(30) == 10
        assert shop.charged == [9, 10]
        assert await store.identity.audit.count_unsealed() == 0
        assert (await store.identity.audit.head()).position == 0
