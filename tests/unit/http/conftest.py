"""A server with its own accounts, and a client of it that records its calls."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar.testing import TestClient

from taskmq import TaskMQ
from taskmq.access import IdentityAdministration, PasswordHasher
from taskmq.api._generated.operations import OPERATIONS
from taskmq.contracts.broker import Broker, Outgoing
from taskmq.contracts.identity import Actor
from taskmq.http import Client, Retries
from taskmq.model.topology import WorkQueue
from taskmq.reactions import JobEnded, job
from tests.unit.app_kit import new_file_store, new_url
from tests.unit.server.kit import build_served, define

PASSWORD = "correct horse battery"
NO_WAIT = Retries(base=0)


class Served:
    """A served app, its first admin `root`, and a client of that admin."""

    def __init__(self, app: TaskMQ, http: "TestClient[Any]", token: str) -> None:
        self.app = app
        self.http = http
        self.url = str(http.base_url).rstrip("/")
        self.asked: set[str] = set()
        # Successful calls that are no reads, with the ids of their requests.
        self.changes: list[tuple[str, str]] = []
        http.event_hooks = {"request": [self._note], "response": [self._keep]}
        self.token = token
        self.client = self.by(token)

    def by(self, token: str, **more: Any) -> Client:
        """Return a client of the given user; no client waits between attempts."""
        options: dict[str, Any] = {"retries": NO_WAIT, "insecure": True} | more
        return Client(self.url, token=token, http=self.http, **options)

    def _note(self, request: httpx.Request) -> None:
        self.asked.add(_operation_of(request))

    def _keep(self, response: httpx.Response) -> None:
        if response.is_success and response.request.method not in {"GET", "HEAD"}:
            self.changes.append((_operation_of(response.request), response.headers["X-Request-ID"]))


def _operation_of(request: httpx.Request) -> str:
    fits = [
        (operation.path.count("{"), name)
        for name, operation in OPERATIONS.items()
        if operation.method == request.method and _has_form(request.url.path, operation.path)
    ]
    # `/jobs/count` is not a job.
    return min(fits)[1]


def _has_form(path: str, form: str) -> bool:
    parts, known = path.split("/"), form.split("/")
    return len(parts) == len(known) and all(
        one.startswith("{") or one == part for one, part in zip(known, parts, strict=True)
    )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Served]:
    with serve(tmp_path) as served:
        yield served


@contextmanager
def serve(folder: Path) -> Iterator[Served]:
    """Serve an app with a store in a folder."""
    app = TaskMQ(new_url(), store=new_file_store(folder))
    define(app)

    @app.on(job("data_processing"), name="bill")
    @app.on(job("billing.charge"))
    @app.task(name="tidy", queue="work")
    def tidy(ended: JobEnded) -> None: ...

    async def prepare() -> str:
        async with app:
            hasher = PasswordHasher(time_cost=1, memory_cost=64)
            administration = IdentityAdministration(app.sessions.store().identity, hasher=hasher)
            user = await administration.add_first_admin("root", PASSWORD, by=Actor(user="setup"))
            await _fill(app.sessions.current().broker)
            return (await administration.add_token(user.id, "test", by=Actor())).secret

    token = asyncio.run(prepare())
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        TestClient(build_served(app), raise_server_exceptions=False) as http,
    ):
        # No scheduler runs.
        monkeypatch.setattr("taskmq.workflow.runs.service._PATIENCE", 0.0)
        yield Served(app, http, token)


async def _fill(broker: Broker) -> None:
    """Publish two messages to queue `work`, and two dead letters."""
    await broker.declare([WorkQueue("work"), WorkQueue("billing")])
    for queue, name, error in (
        ("work", "m1", ""),
        ("work", "m2", ""),
        ("work.dlq", "d1", "E"),
        ("work.dlq", "d2", "E"),
    ):
        headers = {"x-taskmq-reason": "error", "x-taskmq-error": error, "x-taskmq-origin": "work"} if error else {}
        body = f'{{"id": "{name}", "task": "data_processing"}}'.encode()
        await broker.publish(
            Outgoing(
                queue=queue,
                body=body,
                content_type="application/json",
                job_id=name,
                task="data_processing",
                headers=headers,
            ),
            timeout=10,
        )
