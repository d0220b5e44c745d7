"""The server as a process: jobs submitted over HTTP run, and accepted ones survive."""

import asyncio
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from taskmq import TaskMQ
from taskmq.access import IdentityAdministration, PasswordHasher
from taskmq.contracts.identity import Actor, AuditFilter
from taskmq.errors import TaskFailed
from taskmq.http import Client
from taskmq.model.identity import EVERYTHING_OF_ALL
from taskmq.model.jobs.bulks import Bulk
from taskmq.operations.bulks import BulkOrder, TenantBulks
from tests.cli.kit import Started
from tests.servers import eventually

_PATIENCE = timedelta(seconds=40)
_BULK = 600
_SHOP = """\
from taskmq import TaskMQ

app = TaskMQ()


@app.task(name="data_processing", queue="work", retry=None)
def data_processing(key: str = "") -> str:
    if key == "bad":
        raise ValueError(key)
    return key.upper()
"""


def _token(store: str) -> str:
    """Return an API token of the first admin."""

    async def make() -> str:
        async with TaskMQ("memory://token", store=store) as app:
            hasher = PasswordHasher(time_cost=1, memory_cost=64)
            administration = IdentityAdministration(app.sessions.store().identity, hasher=hasher)
            user = await administration.add_first_admin("root", "correct horse battery", by=Actor())
            return (await administration.add_token(user.id, "test", by=Actor())).secret

    return asyncio.run(make())


@contextmanager
def _server(folder: Path, environment: dict[str, str], token: str) -> Iterator[tuple[Started, httpx.Client]]:
    with Started(folder, "server", "shop:app", "--port", "0", env=environment) as server:
        server.says("at http://")
        (address,) = re.findall(r"at (http://[0-9.:]+)", server.said)
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=f"{address}/api/v1", headers=headers, timeout=30) as client:
            yield server, client


@pytest.mark.rabbitmq
def test_a_job_submitted_over_http_runs_and_its_result_is_read_back(
    tmp_path: Path, amqp_url: str, job_store_url: str
) -> None:
    (tmp_path / "shop.py").write_text(_SHOP)
    environment = {"TASKMQ_URL": amqp_url, "TASKMQ_STORE": job_store_url}
    with (
        Started(tmp_path, "worker", "shop:app", env=environment) as worker,
        Started(tmp_path, "scheduler", "shop:app", env=environment) as scheduler,
        _server(tmp_path, environment, _token(job_store_url)) as (server, client),
        Client(str(client.base_url).partition("/api")[0], token=client.headers["authorization"][7:]) as ours,
    ):
        worker.says("waiting for jobs")
        scheduler.says("taskmq scheduler")
        told = _Follower(ours)
        # Workers publish events once they know of a listener.
        eventually(lambda: "worker" in told.kinds, "an event of the worker", within=_PATIENCE)
        good = {"job_id": "good", "job_type": "data_processing", "priority": "high", "payload": {"key": "value"}}

        assert client.post("/jobs", json=good).json()["status"] == "submitted"
        assert client.post("/jobs", json={**good, "job_id": "bad", "payload": {"key": "bad"}}).status_code == 201

        done, failed = (_wait_for_end(client, name) for name in ("good", "bad"))
        assert (done["status"], done["result"], done["retries"]) == ("completed", "VALUE", 0)
        assert done["start_time"] <= done["end_time"]
        assert (failed["status"], failed["result"], failed["error"]["type"]) == ("failed", None, "ValueError")
        assert [job["job_id"] for job in client.get("/jobs?status=completed").json()] == ["good"]
        assert client.delete("/jobs/good").json()["state"] == "succeeded"
        assert len(client.get("/workers").json()["items"]) == 1
        assert client.get("/health/ready").json()["status"] == "ready"

        assert ours.jobs.result("good", timeout=40) == "VALUE"
        with pytest.raises(TaskFailed, match="ValueError: bad"):
            ours.jobs.result("bad", timeout=40)
        eventually(lambda: "succeeded" in told.events, "the event of the job's end", within=_PATIENCE)

        # An open stream does not keep the server from ending.
        assert server.signal_and_wait(signal.SIGTERM) == 0
        assert told.ended.wait(40)


class _Follower:
    """Follows the server's events in a thread, until they end."""

    def __init__(self, client: Client) -> None:
        self.kinds: set[str] = set()
        self.events: list[str] = []
        self.ended = threading.Event()
        self._client = client
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        try:
            for event in self._client.events(reconnect=False):
                self.kinds.add(event.kind)
                self.events.append(event.data.get("event", ""))
        finally:
            self.ended.set()


def _wait_for_end(client: httpx.Client, name: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = client.get(f"/jobs/{name}?expand=result").json()
        return found if found["end_time"] else None

    found = eventually(look, f"the end of job {name}", within=_PATIENCE)
    assert found is not None
    return found


@pytest.mark.nightly(
    "tests/faults/test_job_store.py::test_every_accepted_job_ends_once_despite_kills_freezes_and_cuts"
)
def test_an_accepted_job_survives_a_kill(tmp_path: Path, job_store_url: str) -> None:
    """Clients submit without pause until the server is killed; another one then has all accepted jobs."""
    (tmp_path / "shop.py").write_text(_SHOP)
    environment = {"TASKMQ_URL": f"local://{tmp_path}/broker", "TASKMQ_STORE": job_store_url}
    token = _token(job_store_url)
    answered: list[str] = []
    enough = threading.Event()

    def submit(client: httpx.Client, number: int) -> None:
        for turn in range(10_000):
            body = {"job_type": "data_processing", "job_id": f"{number}-{turn}"}
            try:
                answer = client.post("/jobs", json=body)
            except httpx.TransportError:
                return
            assert answer.status_code == 201, answer.text
            answered.append(answer.json()["job_id"])
            if len(answered) >= 100:
                enough.set()

    with _server(tmp_path, environment, token) as (server, client), ThreadPoolExecutor(4) as clients:
        running = [clients.submit(submit, client, number) for number in range(4)]
        assert enough.wait(40)
        server.process.kill()
        for one in running:
            one.result(40)
    with _server(tmp_path, environment, token) as (_, client):
        lost = [name for name in answered if client.get(f"/jobs/{name}").status_code != 200]

    assert lost == []


def test_a_server_that_cannot_serve_gives_the_reason(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_SHOP)

    with Started(tmp_path, "server", "shop:app") as server:
        assert server.process.wait(40) == 2
        assert "needs a job store" in server.said


@pytest.mark.campaign
@pytest.mark.timeout(300)
@pytest.mark.parametrize("killed", ["server", "scheduler"])
def test_a_bulk_resumes_where_its_killed_server_stopped(tmp_path: Path, job_store_url: str, killed: str) -> None:
    """A server or scheduler is killed (-9) in the middle of a bulk; the other one completes it, once for each job."""
    (tmp_path / "shop.py").write_text(_SHOP)
    environment = {"TASKMQ_URL": f"local://{tmp_path}/broker", "TASKMQ_STORE": job_store_url}
    _token(job_store_url)
    with TaskMQ("memory://bulk", store=job_store_url) as app:
        task = app.task(name="data_processing", queue="work")(_other_address)
        jobs = [job.id for job in app.jobs.submit_many(task.options(delay="1h"), [()] * _BULK)]
        own = TenantBulks(app, None, by=Actor(user="ann", via="cli"))

        def bulk() -> Bulk:
            found = app.sessions.run_sync(own.get(begun.id), instead="get")
            assert found is not None
            return found

        port = ("--port", "0")
        with Started(tmp_path, killed, "shop:app", *(port if killed == "server" else ()), env=environment) as first:
            begun = app.sessions.run_sync(own.begin(BulkOrder("hold", "", rate=200.0)), instead="begin")
            eventually(lambda: bulk().done >= _BULK // 5, "it is under way", within=_PATIENCE)
            first.process.kill()
            first.process.wait(40)
        left = bulk()
        other = "scheduler" if killed == "server" else "server"
        with Started(tmp_path, other, "shop:app", *(port if other == "server" else ()), env=environment):
            eventually(lambda: bulk().state == "done", "another one has ended it", within=_PATIENCE * 2)

        assert (left.state, left.done < _BULK) == ("running", True)
        assert (bulk().done, bulk().refused) == (_BULK, 0)
        held = [[event.kind for event in app.jobs.history(job) if begun.mark in event.note] for job in jobs]
        assert held == [["hold"]] * _BULK
        entries = app.sessions.run_sync(_of_bulks(app), instead="entries")
        assert sorted(entries) == ["bulk.begin", "bulk.end"]


async def _of_bulks(app: TaskMQ) -> list[str]:
    audit = app.sessions.store().identity.audit
    page = await audit.entries(EVERYTHING_OF_ALL, AuditFilter(action="bulk."), limit=10)
    return [one.action for one in page.entries]


def _other_address(key: str = "") -> str:
    raise AssertionError(f"{key}: no worker runs here")
