"""The history of a job that failed on RabbitMQ and never was in a store: from its worker to the API."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from taskmq import TaskMQ
from taskmq.operations.workers import list_workers
from taskmq.scheduler import Scheduler
from taskmq.testing.runner import eventually
from taskmq.worker import Worker, WorkerConfig
from tests.cli.kit import run_here
from tests.unit.server.kit import Site, open_site

pytestmark = pytest.mark.rabbitmq

_CARD = "4111-1111"
_PATIENCE = 40.0


def _store(folder: Path) -> str:
    return f"sqlite:///{folder}/jobs.db"


def _app(url: str, folder: Path) -> TaskMQ:
    app = TaskMQ(url, store=_store(folder), name="shop")

    @app.task(name="charge", queue="billing", retry=None)
    def charge(order: int, card: str) -> None:
        raise ConnectionError(f"password=hunter2: order {order} with card {card} is refused")

    return app


async def _fail(url: str, folder: Path, site: Site, **config: Any) -> None:
    """Wait until the API shows a job's failure at a worker, beside a scheduler that keeps the history."""
    worker = Worker(_app(url, folder), WorkerConfig(name="w", redact=r"(?P<keep>card )[\d-]+", **config))
    scheduler = Scheduler(_app(url, folder), counts_runs=True)

    async def is_heard() -> bool:
        return worker.stats.on_end is not None

    async def obeys() -> bool:
        return bool(await list_workers(sender))

    async def failures() -> int:
        return len((await asyncio.to_thread(site, "GET", "/failures", by="all-viewer")).json()["items"])

    async with _app(url, folder) as sender:
        running = [asyncio.create_task(worker.run())]
        try:
            await eventually(obeys, True, within=_PATIENCE)
            running.append(asyncio.create_task(scheduler.run()))
            # The scheduler asks workers for events once it listens.
            await eventually(is_heard, True, within=_PATIENCE)
            await sender.tasks["charge"].asend(13, card=_CARD)
            await eventually(failures, 1, within=_PATIENCE)
        finally:
            worker.drain()
            scheduler.stop()
            await asyncio.gather(*running)


def test_a_failed_job_of_rabbitmq_has_message_and_traceback_in_the_api(amqp_url: str, tmp_path: Path) -> None:
    with open_site(tmp_path, store=_store(tmp_path)) as site:
        asyncio.run(_fail(amqp_url, tmp_path, site))
        (listed,) = site("GET", "/failures", by="all-viewer").json()["items"]
        (whole,) = site("GET", "/failures?traceback=true", by="all-viewer").json()["items"]

    said = "password=[redacted] order 13 with card [redacted] is refused"
    assert (listed["task"], listed["error"], listed["reason"]) == ("charge", "ConnectionError", "error")
    assert (listed["message"], listed["traceback"]) == (said, None)
    assert whole["traceback"].startswith("Traceback (most recent call last):\n")
    assert "in charge\n" in whole["traceback"]
    assert whole["traceback"].endswith(f"ConnectionError: {said}\n")
    assert _CARD not in str(whole)

    (tmp_path / "shop.py").write_text(f"from taskmq import TaskMQ\n\napp = TaskMQ({amqp_url!r})\n")
    here = ("--app", "shop:app", "--store", f"sqlite:///{tmp_path}/jobs.db", "failures")
    rows = run_here(tmp_path, *here)
    shown = run_here(tmp_path, *here, listed["job_id"])
    assert said in rows.out
    assert "Traceback" not in rows.out
    assert f"ConnectionError: {said}\n" in shown.out


@pytest.mark.nightly(
    "tests/integration/test_run_history.py::test_a_failed_job_of_rabbitmq_has_message_and_traceback_in_the_api"
)
def test_error_messages_stay_in_a_worker_configured_to_keep_them(amqp_url: str, tmp_path: Path) -> None:
    with open_site(tmp_path, store=_store(tmp_path)) as site:
        asyncio.run(_fail(amqp_url, tmp_path, site, report_errors="type"))
        (whole,) = site("GET", "/failures?traceback=true", by="all-viewer").json()["items"]

    assert (whole["error"], whole["message"], whole["traceback"]) == ("ConnectionError", "", "")
